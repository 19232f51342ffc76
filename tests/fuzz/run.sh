#!/usr/bin/env bash
# Fuzzes every target: tests/fuzz/run.sh [RUNS], 10,000,000 by default.
# Needs clang with libFuzzer (Debian: clang libclang-rt-14-dev). What was found
# stays in build/fuzz/findings; exit 1 when there is anything.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
runs=${1:-10000000}
targets=(codec_decoder_fuzz frame_fuzz)

command -v clang++ >/dev/null || {
  echo "no clang++; on Debian: apt-get install clang libclang-rt-14-dev" >&2
  exit 1
}
cmake --preset fuzz >/dev/null
cmake --build build/fuzz --target "${targets[@]}"
mkdir -p build/fuzz/findings
for target in "${targets[@]}"; do
  mkdir -p "build/fuzz/corpus/$target"
  "build/fuzz/tests/fuzz/$target" -runs="$runs" -max_len=8192 \
    -artifact_prefix=build/fuzz/findings/ -print_final_stats=1 \
    "build/fuzz/corpus/$target"
done
