#!/usr/bin/env bash
# Fuzzes targets: tests/fuzz/run.sh [RUNS [TARGET...]]; 10,000,000 runs of every
# target by default.
# Needs clang with libFuzzer (Debian: clang libclang-rt-14-dev). Prints a row for each target in the
# end: executions, those of a second, edges of the program that were covered, inputs kept, MiB,
# findings. What was found stays in build/fuzz/findings, beside the output of each target; exit 1
# when there is anything.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
runs=${1:-10000000}
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] || targets=(codec_decoder_fuzz codec_encoder_fuzz codec_states_fuzz states_fuzz
  wire_fuzz nccl_xml_fuzz hwloc_xml_fuzz machine_json_fuzz sysfs_fuzz checkpoint_fuzz cursor_fuzz
  plan_fuzz calibration_fuzz job_config_fuzz images_fuzz data_files_fuzz control_record_fuzz opening_fuzz
  server_session_fuzz scheduler_session_fuzz)

command -v clang++ >/dev/null || {
  echo "no clang++; on Debian: apt-get install clang libclang-rt-14-dev" >&2
  exit 1
}
cmake --preset fuzz >/dev/null
cmake --build build/fuzz --target "${targets[@]}"
mkdir -p build/fuzz/findings
# Keeping where memory was allocated costs a tenth; a finding is run again for that.
export ASAN_OPTIONS="malloc_context_size=1:${ASAN_OPTIONS:-}"

# Of what a target has written: the number in a line of its statistics.
stat() { sed -n "s/^stat::$1: *//p" "$2" | tail -1; }

row() { printf '%-20s %12s %8s %7s %7s %5s  %s\n' "$@"; }

table=$(row target executions a_second edges inputs MiB findings)
failed=0
for target in "${targets[@]}"; do
  corpus=build/fuzz/corpus/$target log=build/fuzz/findings/$target.log
  mkdir -p "$corpus"
  # Preferring inputs of rare features costs more than running one.
  options=(-max_len=1024 -entropic=0)
  seeds=()  # good files to begin with
  case $target in
    nccl_xml_fuzz) seeds=(tests/topology/fixtures/nccl*.xml) ;;
    hwloc_xml_fuzz) seeds=(tests/topology/fixtures/hwloc*.xml) ;;
    machine_json_fuzz) seeds=(tests/topology/fixtures/*.json) ;;
    sysfs_fuzz) options+=(-dict=tests/fuzz/sysfs.dict) ;;
  esac
  if [ ${#seeds[@]} -gt 0 ]; then
    cp "${seeds[@]}" "$corpus"
    options+=(-max_len=20480)  # as large as these
  fi
  found=none
  if ! "build/fuzz/tests/fuzz/$target" -runs="$runs" "${options[@]}" \
    -artifact_prefix="build/fuzz/findings/$target-" -print_final_stats=1 "$corpus" 2>&1 | tee "$log"; then
    found=$(sed -n 's/^SUMMARY: //p' "$log" | tail -1)
    failed=1
  fi
  edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
  table+=$'\n'$(row "$target" "$(stat number_of_executed_units "$log")" "$(stat average_exec_per_sec "$log")" \
    "${edges:--}" "$(find "$corpus" -type f | wc -l)" "$(stat peak_rss_mb "$log")" "${found:-it ended by itself}")
done
echo "$table"
exit $failed
