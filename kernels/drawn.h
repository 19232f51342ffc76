#pragma once

#include <cstddef>
#include <cstdint>

#include "base/stream.h"
#include "kernels/encode_stats.h"
#include "kernels/host_device.h"
#include "kernels/philox.h"

// Elements that all workers draw alike, one of each of k strata, sent without
// their places: randomk where the host cannot look at memory, on a GPU. On a
// CPU the codec has a loop of its own.
namespace telegrad::kernels {

// Philox 4x32-10, as base/random.h has it.
constexpr int kDrawnRounds = 10;

// The element of stratum j, [j * n / k, (j + 1) * n / k), of words that
// PhiloxDraw gives of the seed and j / 4. 1 <= k <= n < 2^31, j < k.
TELEGRAD_HOST_DEVICE inline PhiloxWords DrawnWords(uint64_t seed, size_t j) {
  DrawKey key;
  key.key = seed;
  return PhiloxDraw<kDrawnRounds>(key, j / 4);
}
TELEGRAD_HOST_DEVICE inline size_t DrawnAt(const PhiloxWords& words, size_t j,
                                           size_t n, size_t k) {
  const size_t first = j * n / k;
  const size_t next = (j + 1) * n / k;
  return first + ((next - first) * words.word[j % 4] >> 32);
}

// A payload: u64 seed, f32[k] values; aligned to 4.
constexpr size_t kDrawnValuesAt = 8;

// Writes a payload and takes it off the residual: what is sent is 0 there, and
// in momentum [n], unless that is null. NaN and infinities stay, 0 is sent for
// them. stats->num_nonzero is added to.
// Cost: 4 bytes and two sectors per element sent.
using TakeDrawnFn = void(float* residual, float* momentum, size_t n, size_t k,
                         uint64_t seed, uint8_t* payload, EncodeStats* stats,
                         Stream stream);

// decode: out [n] = the payload, 0 elsewhere; decode_add: out += the payload.
// Any bytes can be read. Cost: 4 bytes per element to decode, and per element
// sent 4 bytes and a sector of `out`.
using PutDrawnFn = void(const uint8_t* payload, size_t n, size_t k, float* out,
                        Stream stream);

// out = the payload of their sums, added in the given order, float32. All have
// one seed, of which the first's is taken. `out` may be the first's memory.
using SumDrawnFn = void(const uint8_t* const* payloads, uint32_t num_payloads,
                        size_t k, uint8_t* out, Stream stream);

struct DrawnKernels {
  TakeDrawnFn* take = nullptr;
  PutDrawnFn* decode = nullptr;
  PutDrawnFn* decode_add = nullptr;
  SumDrawnFn* sum = nullptr;
};

}  // namespace telegrad::kernels
