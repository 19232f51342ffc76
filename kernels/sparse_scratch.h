#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/select.h"
#include "kernels/sparse.h"
#include "kernels/sparse_list.h"

// Where the arrays are that sparse encoders on a GPU work in: one after the
// other in memory aligned to 8, whose contents do not matter. `n` elements.
namespace telegrad::kernels {

TELEGRAD_HOST_DEVICE constexpr size_t RoomForSurvivors(size_t n) {
  return (n + kSurvivorSlack + 1) / 2 * 2;
}

// threshold's.
struct ThresholdScratch {
  TELEGRAD_HOST_DEVICE ThresholdScratch(void* memory, size_t n)
      : survivors(static_cast<uint32_t*>(memory)),
        count(reinterpret_cast<uint64_t*>(survivors + RoomForSurvivors(n))),
        parts(count + 1),
        tiles(parts + kSparseListParts) {}
  static constexpr size_t Bytes(size_t n) {
    return 4 * RoomForSurvivors(n) + 8 + kSparseListScratchBytes +
           SparseScratchBytes(n);
  }

  uint32_t* survivors;
  uint64_t* count;
  uint64_t* parts;  // WriteSparseListFn's scratch
  uint64_t* tiles;  // ThresholdEncodeFn's
};

// topk's and dgc's.
struct TopKScratch {
  TELEGRAD_HOST_DEVICE TopKScratch(void* memory, size_t n)
      : indices(static_cast<uint32_t*>(memory)),
        values(reinterpret_cast<float*>(indices + RoomForSurvivors(n))),
        num_listed(reinterpret_cast<uint64_t*>(values + RoomForSurvivors(n))),
        num_kept(num_listed + 1),
        threshold(reinterpret_cast<float*>(num_kept + 1)),
        scale(threshold + 1),
        tiles(reinterpret_cast<uint64_t*>(scale + 1)),
        work(tiles + SparseScratchBytes(n) / 8),
        kept(reinterpret_cast<uint32_t*>(work) + SelectScratchBytes(n) / 4) {}
  // Bytes of scratch of encoders that send at most `most` elements.
  static constexpr size_t Bytes(size_t n, size_t most) {
    return 8 * RoomForSurvivors(n) + 24 + SparseScratchBytes(n) +
           SelectScratchBytes(n) + 4 * most;
  }

  uint32_t* indices;  // candidates' indices
  float* values;
  uint64_t* num_listed;  // candidates
  uint64_t* num_kept;
  float* threshold;
  float* scale;
  uint64_t* tiles;  // LargeValuesFn's scratch
  uint64_t* work;   // scratch of the other kernels, one after the other
  uint32_t* kept;   // indices of those that are sent
};

}  // namespace telegrad::kernels
