#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Makes one archive of one object in which only the public functions are visible, so that an integrator's
# own names cannot clash with ours: static.sh LD OBJCOPY AR OUTPUT WORKDIR CLIENT.a OTHERS.a...
set -eu
ld=$1 objcopy=$2 ar=$3 output=$4 work=$5 client=$6
shift 6
mkdir -p "$work"
"$ld" -r -o "$work/tagcast.o" --whole-archive "$client" --no-whole-archive --start-group "$@" --end-group
"$objcopy" --localize-hidden "$work/tagcast.o"
rm -f "$output"
"$ar" rcsD "$output" "$work/tagcast.o"
