#include <cstring>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/reference.h"
#include "kernels/sparse_list.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {
namespace {

using kernels::SparseContent;
using kernels::SparseListKernels;

constexpr SparseContent kContents[] = {SparseContent::kSigns,
                                       SparseContent::kValues};

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

// With its values, where it has any.
std::vector<uint8_t> EmptyPayload(SparseContent content, size_t n,
                                  size_t count) {
  std::vector<uint8_t> payload(
      kernels::ListAt(content, count) + kernels::BitmapBytes(content, n, count),
      7);
  if (content == SparseContent::kSigns) return payload;
  for (size_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(i) + 0.5f;
    std::memcpy(payload.data() + 8 + 4 * i, &value, sizeof(value));
  }
  return payload;
}

void Check(SparseContent content, size_t n, uint32_t every, Verdict& verdict) {
  const SparseListKernels gpu = kernels::cuda::SparseList();
  const SparseListKernels cpu = kernels::reference::SparseList();
  const std::vector<uint32_t> words = Words(content, n, every);
  const std::vector<uint64_t> count = {words.size()};
  std::vector<uint64_t> bytes = {0};
  std::vector<uint8_t> payload = EmptyPayload(content, n, count[0]);
  DeviceArray<uint32_t> w(words);
  DeviceArray<uint64_t> c(count);
  DeviceArray<uint64_t> b(bytes);
  DeviceArray<uint8_t> p(payload);
  DeviceArray<uint8_t> scratch(
      std::vector<uint8_t>(kernels::kSparseListScratchBytes, 0x55));
  gpu.write(content, w.get(), c.get(), n, 0.25f, p.get(), b.get(),
            scratch.get(), Stream{});
  cpu.write(content, words.data(), count.data(), n, 0.25f, payload.data(),
            bytes.data(), nullptr, Stream{});
  payload.resize(bytes[0]);
  verdict.Compare("sparse_list bytes", n, every, b.values(), bytes);
  verdict.Compare("sparse_list payload", n, every, p.values(), payload);
  std::vector<float> out(n);
  std::vector<float> sum = Floats(n, n);
  DeviceArray<float> o(out);
  DeviceArray<float> s(sum);
  gpu.decode(content, p.get(), bytes[0], n, o.get(), scratch.get(), Stream{});
  gpu.decode_add(content, p.get(), bytes[0], n, s.get(), scratch.get(),
                 Stream{});
  cpu.decode(content, payload.data(), bytes[0], n, out.data(), nullptr,
             Stream{});
  cpu.decode_add(content, payload.data(), bytes[0], n, sum.data(), nullptr,
                 Stream{});
  verdict.Compare("sparse_list decode", n, every, o.values(), out);
  verdict.Compare("sparse_list decode_add", n, every, s.values(), sum);
}

}  // namespace

void VerifySparseList(Verdict& verdict) {
  for (const SparseContent content : kContents) {
    for (const size_t n : {1, 7, 8, 9, 255, 1023, 1025, 4097, 100003}) {
      for (const uint32_t every : {1u, 3u, 60u, 1000u, 60000u}) {
        Check(content, n, every, verdict);
      }
    }
    Check(content, 3000017, 100, verdict);
  }
}

// Of 1 % of the elements: gaps of 8 bits. What is written and read of `out` are
// sectors of 32 bytes.
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
