#!/usr/bin/env bash
# Fuzzes targets: tests/fuzz/run.sh [RUNS [TARGET...]]; 10,000,000 runs of every
# target by default.
# Needs clang with libFuzzer (Debian: clang libclang-rt-14-dev). What was found
# stays in build/fuzz/findings; exit 1 when there is anything.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
runs=${1:-10000000}
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] || targets=(codec_decoder_fuzz codec_encoder_fuzz codec_states_fuzz states_fuzz
  wire_fuzz nccl_xml_fuzz hwloc_xml_fuzz machine_json_fuzz sysfs_fuzz checkpoint_fuzz cursor_fuzz
  plan_fuzz calibration_fuzz job_config_fuzz images_fuzz data_files_fuzz control_record_fuzz opening_fuzz)

command -v clang++ >/dev/null || {
  echo "no clang++; on Debian: apt-get install clang libclang-rt-14-dev" >&2
  exit 1
}
cmake --preset fuzz >/dev/null
cmake --build build/fuzz --target "${targets[@]}"
mkdir -p build/fuzz/findings
# Keeping where memory was allocated costs a tenth.
export ASAN_OPTIONS="malloc_context_size=4:${ASAN_OPTIONS:-}"
for target in "${targets[@]}"; do
  corpus=build/fuzz/corpus/$target
  mkdir -p "$corpus"
  options=(-max_len=1024)
  seeds=()  # good files to begin with
  case $target in
    nccl_xml_fuzz) seeds=(tests/topology/fixtures/nccl*.xml) ;;
    hwloc_xml_fuzz) seeds=(tests/topology/fixtures/hwloc*.xml) ;;
    machine_json_fuzz) seeds=(tests/topology/fixtures/*.json) ;;
    sysfs_fuzz) options+=(-dict=tests/fuzz/sysfs.dict) ;;
  esac
  if [ ${#seeds[@]} -gt 0 ]; then
    cp "${seeds[@]}" "$corpus"
    options=(-max_len=20480)  # as large as these
  fi
  "build/fuzz/tests/fuzz/$target" -runs="$runs" "${options[@]}" \
    -artifact_prefix=build/fuzz/findings/ -print_final_stats=1 "$corpus"
done
