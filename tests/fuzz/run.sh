#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs one fuzz target over its committed corpus, then over new inputs for FUZZ_SECONDS (10).
# Arguments: target, folder for new inputs, corpus, further options.
set -eu
target=$1 scratch=$2 corpus=$3
shift 3
rm -rf "$scratch"
mkdir -p "$scratch"
exec "$target" "$@" -max_total_time="${FUZZ_SECONDS:-10}" -timeout=10 -print_final_stats=1 \
	-artifact_prefix="$scratch/" "$scratch" "$corpus"
