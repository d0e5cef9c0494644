#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What libtagcast shows to the outside is exactly what tagcast.h declares: symbols.sh HEADER SO ARCHIVE
set -eu
declared=$(grep -o 'tagcast_[a-z_]*(' "$1" | tr -d '(' | sort -u | while read -r name; do
	grep -q "TAGCAST_API.*[ *]$name(" "$1" && echo "$name"; done)
shared=$(nm -D --defined-only "$2" | awk '{ print $3 }' | grep -v '^__\|^_init$\|^_fini$' | sort -u)
static=$(nm -g --defined-only "$3" | awk 'NF == 3 { print $3 }' | grep -v '^__' | sort -u)
[ -n "$declared" ] || { echo "nothing declared"; exit 1; }
[ "$declared" = "$shared" ] || { echo "shared library shows other names:"; echo "$shared"; exit 1; }
[ "$declared" = "$static" ] || { echo "archive shows other names:"; echo "$static"; exit 1; }
