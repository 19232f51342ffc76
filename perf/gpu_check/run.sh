#!/bin/bash
# run.sh [RESULTS]: builds gpu_check with nvcc alone, measures the CUDA kernels,
# verifies them, and verifies them again under compute-sanitizer where that is
# found. Results go to the folder RESULTS (default perf/results), each as it
# comes. A part that fails stops no other, and is told at the end.
# Exit: 0 all equal, 1 a difference or an error, 77 no nvcc or no device.
# Environment: NVCC, ARCH (default native), BUILD (default build-gpu-check),
# NO_SANITIZER (not empty: without).
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
build=${BUILD:-build-gpu-check}
results=${1:-perf/results}
if [[ ! -x $nvcc ]]; then
  echo "no nvcc: the CUDA Toolkit is needed to build the check"
  exit 77
fi
mkdir -p "$build" "$results" || exit 1
"$nvcc" -std=c++17 -O3 -fmad=false -arch="${ARCH:-native}" \
  -Xcompiler=-ffp-contract=off -I. -o "$build/gpu_check" -x cu \
  perf/gpu_check/*.cu kernels/cuda/*.cu kernels/reference/*.cc || exit 1
"$nvcc" -std=c++20 -O2 -I. -o "$build/copy_check" \
  perf/gpu_check/copy/copy_check.cc kernels/cuda/device_copy.cc \
  kernels/cuda/pinned.cc || exit 1

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
part "measure kernels" "$build/gpu_check" --measure-only \
  --json "$results/${name:-unknown}-$(date -u +%Y-%m-%d).json"
part "measure and verify copies" "$build/copy_check"
part "verify kernels" "$build/gpu_check" --verify-only
sanitizer=$(command -v compute-sanitizer || true)
if [[ -n $sanitizer && -z ${NO_SANITIZER:-} ]]; then
  part "kernels under compute-sanitizer" \
    "$sanitizer" --error-exitcode 1 "$build/gpu_check" --verify-only
  part "copies under compute-sanitizer" \
    "$sanitizer" --error-exitcode 1 "$build/copy_check" --verify-only
else
  echo "compute-sanitizer not found or switched off"
fi
if ((${#failed[@]} > 0)); then
  printf 'FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo "all parts passed"
