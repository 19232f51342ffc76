#include "perf/peers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

namespace telegrad::perf {
namespace {

constexpr uint8_t kPositive[4] = {0xC0, 0x30, 0x0C, 0x03};
constexpr uint8_t kNegative[4] = {0x80, 0x20, 0x08, 0x02};
constexpr uint8_t kBit[8] = {0x80, 0x40, 0x20, 0x10, 0x08, 0x04, 0x02, 0x01};
constexpr size_t kWord = 16;  // elements of a word of codes
constexpr size_t kWordOfSigns = 32;
constexpr size_t kInCache = 4096;

}  // namespace

void MxnetQuantize(const float* grad, float* residual, size_t n,
                   float threshold, uint8_t* codes) {
  for (size_t word = 0; word < (n + kWord - 1) / kWord; ++word) {
    uint8_t* byte = codes + 4 * word;
    std::memset(byte, 0, 4);
    const size_t end = std::min(n, word * kWord + kWord);
    for (size_t i = word * kWord; i < end; i += 4, ++byte) {
      for (size_t j = i; j < std::min(i + 4, end); ++j) {
        residual[j] += grad[j];
        if (residual[j] >= threshold) {
          *byte = static_cast<uint8_t>(*byte | kPositive[j & 3]);
          residual[j] -= threshold;
        } else if (residual[j] <= -threshold) {
          *byte = static_cast<uint8_t>(*byte | kNegative[j & 3]);
          residual[j] += threshold;
        }
      }
    }
  }
}

void MxnetDequantize(const uint8_t* codes, size_t n, float threshold,
                     float* out) {
  for (size_t i = 0; i < n; ++i) {
    const uint8_t masked = codes[i >> 2] & kPositive[i & 3];
    if (masked == kPositive[i & 3]) {
      out[i] = threshold;
    } else if (masked == kNegative[i & 3]) {
      out[i] = -threshold;
    } else {
      out[i] = 0;
    }
  }
}

void MxnetMerge(const uint8_t* codes, size_t n, float threshold,
                float* temporary, float* sum) {
  MxnetDequantize(codes, n, threshold, temporary);
  for (size_t i = 0; i < n; ++i) sum[i] += temporary[i];
}

void MxnetMergeInCache(const uint8_t* codes, size_t n, float threshold,
                       float* sum) {
  std::array<float, kInCache> temporary;
  for (size_t i = 0; i < n; i += kInCache) {
    MxnetMerge(codes + i / 4, std::min(kInCache, n - i), threshold,
               temporary.data(), sum + i);
  }
}

void MxnetQuantizeOneBit(const float* grad, float* residual, size_t n,
                         float threshold, uint8_t* codes) {
  for (size_t word = 0; word < (n + kWordOfSigns - 1) / kWordOfSigns; ++word) {
    uint8_t* byte = codes + 4 * word;
    std::memset(byte, 0, 4);
    const size_t end = std::min(n, (word + 1) * kWordOfSigns);
    for (size_t i = word * kWordOfSigns; i < end; i += 8, ++byte) {
      for (size_t j = i; j < std::min(i + 8, end); ++j) {
        residual[j] += grad[j];
        if (residual[j] > threshold) {
          *byte = static_cast<uint8_t>(*byte | kBit[j & 7]);
          residual[j] -= 1.0f;
        } else {
          residual[j] += 1.0f;
        }
      }
    }
  }
}

void MxnetDequantizeOneBit(const uint8_t* codes, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    out[i] = (codes[i >> 3] & kBit[i & 7]) != 0 ? 1.0f : -1.0f;
  }
}

size_t BytepsTopK(const float* grad, float* residual, size_t n, size_t k,
                  uint32_t* indices, float* values) {
  using Entry = std::pair<float, uint32_t>;  // magnitude, index
  std::vector<Entry> heap;
  heap.reserve(k);
  for (size_t i = 0; i < n; ++i) {
    residual[i] += grad[i];
    const Entry entry = {std::fabs(residual[i]), static_cast<uint32_t>(i)};
    if (heap.size() < k) {
      heap.push_back(entry);
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    } else if (entry.first > heap.front().first) {
      std::pop_heap(heap.begin(), heap.end(), std::greater<>());
      heap.back() = entry;
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  }
  for (size_t i = 0; i < heap.size(); ++i) {
    indices[i] = heap[i].second;
    values[i] = residual[heap[i].second];
    residual[heap[i].second] = 0;
  }
  return heap.size();
}

}  // namespace telegrad::perf
