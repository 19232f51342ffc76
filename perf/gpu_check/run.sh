#!/bin/bash
# Builds gpu_check with nvcc alone, verifies the CUDA kernels (also under
# compute-sanitizer where that is found) and measures them.
# Exit: 0 all equal, 1 a difference or an error, 77 no nvcc or no device.
# Environment: NVCC, ARCH (default native), OUT (default build-gpu-check).
set -euo pipefail
cd "$(dirname "$0")/../.."

nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
out=${OUT:-build-gpu-check}
if [[ ! -x $nvcc ]]; then
  echo "no nvcc: the CUDA Toolkit is needed to build the check"
  exit 77
fi
mkdir -p "$out"
"$nvcc" -std=c++17 -O3 -fmad=false -arch="${ARCH:-native}" \
  -Xcompiler=-ffp-contract=off -I. -o "$out/gpu_check" -x cu \
  perf/gpu_check/*.cu kernels/cuda/*.cu kernels/reference/*.cc
"$nvcc" -std=c++20 -O2 -I. -o "$out/copy_check" \
  perf/gpu_check/copy/copy_check.cc kernels/cuda/device_copy.cc

sanitizer=$(command -v compute-sanitizer || true)
if [[ -n $sanitizer && -z ${NO_SANITIZER:-} ]]; then
  "$sanitizer" --error-exitcode 1 "$out/gpu_check" --verify-only
  "$sanitizer" --error-exitcode 1 "$out/copy_check" --verify-only
else
  echo "compute-sanitizer not found or switched off: verified without it"
fi

name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null |
  head -n 1 | tr ' A-Z' '-a-z' || true)
mkdir -p perf/results
"$out/copy_check"
exec "$out/gpu_check" \
  --json "perf/results/${name:-unknown}-$(date -u +%Y-%m-%d).json"
