#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/sparse_list.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {
namespace {

using kernels::SparseContent;
using kernels::SparseListKernels;

constexpr SparseContent kContents[] = {SparseContent::kSigns,
                                       SparseContent::kValues};

uint32_t Next(uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(state >> 33);
}

// About one of `every` elements, with signs where the content has them.
std::vector<uint32_t> Words(SparseContent content, size_t n, uint32_t every) {
  std::vector<uint32_t> words;
  uint64_t seed = n + every;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t random = kernels::SignBits(content) + 2 * Next(seed);
    if (random / 2 % every != 0) continue;
    words.push_back(static_cast<uint32_t>(i) << kernels::SignBits(content) |
                    (Next(seed) & kernels::SignBits(content)));
  }
  return words;
}

}  // namespace

// Lists of 1 % of the elements have gaps of 8 bits. What is written and read of
// `out` are sectors of 32 bytes.
void MeasureSparseList(Arrays& a, std::vector<Row>& rows) {
  const size_t n = num_elements;
  const SparseListKernels gpu = kernels::cuda::SparseList();
  const std::string names[] = {" signs 1 %", " values 1 %"};
  for (const SparseContent content : kContents) {
    const DeviceArray<uint32_t> words(Words(content, n, 100));
    const std::vector<uint64_t> size = {words.values().size(), 0};
    const DeviceArray<uint64_t> count(size);
    auto* const scratch = Allocate<uint8_t>(kernels::kSparseListScratchBytes);
    const double share = static_cast<double>(size[0]) / static_cast<double>(n);
    const std::string& name = names[static_cast<int>(content)];
    rows.push_back(Time("sparse_list_write" + name, 9 * share, [&] {
      gpu.write(content, words.get(), count.get(), n, 0.25f, a.packed,
                count.get() + 1, scratch, Stream{});
    }));
    const size_t bytes = count.values()[1];
    const double in = static_cast<double>(bytes) / static_cast<double>(n);
    rows.push_back(Time("sparse_list_decode" + name, 4 + 2 * in, [&] {
      gpu.decode(content, a.packed, bytes, n, a.y, scratch, Stream{});
    }));
    rows.push_back(
        Time("sparse_list_decode_add" + name, 2 * in + 64 * share, [&] {
          gpu.decode_add(content, a.packed, bytes, n, a.y, scratch, Stream{});
        }));
    cudaFree(scratch);
  }
}

}  // namespace telegrad::gpu_check
