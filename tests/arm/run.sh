#!/usr/bin/env bash
# Compiles for 64-bit Arm and runs tests in QEMU: tests/arm/run.sh [TEST...];
# base, kernels and compression by default, of which all bits are fixed.
# Without UCX, libfabric, PMIx, libtorch and CUDA.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(base kernels compression)

packages=(g++-aarch64-linux-gnu qemu-user)
for library in absl expat1 gmock gtest hwy re2 ssl bsd; do
  packages+=("lib$library-dev:arm64")
done
packages+=(zlib1g-dev:arm64 libjpeg62-turbo-dev:arm64 libpng-dev:arm64)
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null |
    grep -q '^install ok installed' || {
    echo "$package is not installed; on Debian:" >&2
    echo "  dpkg --add-architecture arm64 && apt-get update" >&2
    echo "  apt-get install ${packages[*]}" >&2
    exit 1
  }
done
cmake --preset arm64
for test in "${tests[@]}"; do
  cmake --build build/arm64 --target "tests/$test/all"
done
export GTEST_FILTER='-ProcessMemory.*'  # QEMU has no process_vm_readv
pattern=$(IFS='|'; echo "${tests[*]}")
ctest --test-dir build/arm64 -R "^($pattern)(/|\$)" -j "$(nproc)" --output-on-failure
