#!/bin/bash
# run.sh [RESULTS]: builds gpu_check with nvcc alone and measures the CUDA
# kernels; measures and verifies copies where Abseil's headers are. With
# TEST_KERNELS it verifies the kernels by that program, and once more under
# compute-sanitizer where that is found. Results go to the folder RESULTS
# (default perf/results), each as it comes. A part that fails stops no other,
# and is told at the end.
# Exit: 0 all passed, 1 a difference or an error, 77 no nvcc or no device.
# Environment: NVCC, ARCH (default native), JOBS (default all processors), BUILD
# (default build-gpu-check),
# TEST_KERNELS (test_kernels of a bundle, docs/gpu.md, or of a build with CUDA),
# NO_SANITIZER (not empty: without).
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
build=${BUILD:-build-gpu-check}
results=${1:-perf/results}
if [[ ! -x $nvcc ]]; then
  echo "no nvcc: the CUDA Toolkit is needed to build the measurements"
  exit 77
fi
mkdir -p "$build" "$results" || exit 1
# A process for each file: nvcc takes one after the other.
rm -rf "$build/objects"
mkdir "$build/objects" || exit 1
compile() {
  "$nvcc" -std=c++17 -O3 -fmad=false -arch="${ARCH:-native}" -I. \
    -Xcompiler=-ffp-contract=off -x cu -c -o "$build/objects/${1//\//-}.o" "$1"
}
export -f compile
export nvcc build
printf '%s\n' perf/gpu_check/*.cu kernels/cuda/*.cu |
  xargs -P "${JOBS:-$(nproc)}" -I FILE bash -c 'compile FILE' || exit 1
"$nvcc" -arch="${ARCH:-native}" -o "$build/gpu_check" "$build"/objects/*.o ||
  exit 1

failed=()
# part NAME COMMAND...
part() {
  local name=$1 code=0
  shift
  echo "== $name"
  "$@" || code=$?
  if ((code == 77)); then exit 77; fi
  if ((code != 0)); then failed+=("$name (exit $code)"); fi
}

name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null |
  head -n 1 | tr ' A-Z' '-a-z')
part "measure kernels" "$build/gpu_check" \
  --json "$results/${name:-unknown}-$(date -u +%Y-%m-%d).json"

sanitizer=()
if [[ -z ${NO_SANITIZER:-} ]]; then
  sanitizer=("$(command -v compute-sanitizer)" --error-exitcode 1)
fi
[[ -n ${sanitizer[0]:-} ]] || echo "without compute-sanitizer"
if "$nvcc" -std=c++20 -O2 -I. -o "$build/copy_check" \
  perf/gpu_check/copy/copy_check.cc kernels/cuda/current_device.cc \
  kernels/cuda/device_copy.cc \
  kernels/cuda/pinned.cc 2>"$build/copy_check.log"; then
  nodes=(/sys/devices/system/node/node[0-9]*)
  part "measure and verify copies" "$build/copy_check" --nodes ${#nodes[@]}
  if [[ -n ${sanitizer[0]:-} ]]; then
    part "copies under compute-sanitizer" \
      "${sanitizer[@]}" "$build/copy_check" --verify-only
  fi
else
  echo "copies left out: Abseil's headers are needed, $build/copy_check.log"
fi
if [[ -n ${TEST_KERNELS:-} ]]; then
  export TELEGRAD_TEST_REQUIRE=cuda
  verify=("$TEST_KERNELS" --gtest_brief=1 '--gtest_filter=*cuda*')
  part "verify kernels" "${verify[@]}"
  if [[ -n ${sanitizer[0]:-} ]]; then
    export TELEGRAD_TEST_SIZES=few
    part "kernels under compute-sanitizer" "${sanitizer[@]}" "${verify[@]}"
  fi
else
  echo "kernels not verified: name test_kernels in TEST_KERNELS (docs/gpu.md)"
fi
if ((${#failed[@]} > 0)); then
  printf 'FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo "all parts passed"
