#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"

// Philox 4x32 with 7 rounds: random words that are pure functions of key and
// counter, so that every device draws the same. Source: Salmon et al.,
// "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011 (7 rounds pass
// BigCrush). base/random.h has the 10 rounds. C++17 and CUDA.
namespace telegrad::kernels {

constexpr int kPhiloxRounds = 7;
constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53;
constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9;
constexpr uint32_t kPhiloxWeyl1 = 0xBB67AE85;

// Which draws: those of one encoder (`key`) in one step.
struct DrawKey {
  uint64_t key = 0;
  uint64_t step = 0;
};

struct PhiloxWords {
  uint32_t word[4];
};

template <int kRounds = kPhiloxRounds>
TELEGRAD_HOST_DEVICE inline PhiloxWords PhiloxDraw(const DrawKey& draw,
                                                   uint64_t counter) {
  uint32_t k0 = static_cast<uint32_t>(draw.key);
  uint32_t k1 = static_cast<uint32_t>(draw.key >> 32);
  PhiloxWords c = {{static_cast<uint32_t>(counter),
                    static_cast<uint32_t>(counter >> 32),
                    static_cast<uint32_t>(draw.step),
                    static_cast<uint32_t>(draw.step >> 32)}};
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = uint64_t{kPhiloxMultiplier0} * c.word[0];
    const uint64_t p1 = uint64_t{kPhiloxMultiplier1} * c.word[2];
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c.word[1] ^ k0,
          static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c.word[3] ^ k1,
          static_cast<uint32_t>(p0)}};
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return c;
}

// Element i of a chunk takes word i/16%4 of counter i/64*16 + i%16: in a group
// of 64, lane l of any vector of 4, 8 or 16 has a counter of its own and draws
// for four runs of neighbours.
constexpr size_t kDrawGroup = 64;
constexpr size_t kDrawLanes = 16;

TELEGRAD_HOST_DEVICE inline uint32_t DrawFor(const DrawKey& draw, size_t i) {
  const uint64_t counter = uint64_t{i} / kDrawGroup * kDrawLanes + i % 16;
  return PhiloxDraw(draw, counter).word[i / kDrawLanes % 4];
}

}  // namespace telegrad::kernels
