#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "perf/huge_array.h"

namespace telegrad::perf {

// An encoder in its steady state and frames of codes that it made in
// successive steps.
struct TwoBitData {
  TwoBitData(size_t n, double wanted_density, uint32_t num_frames);
  // The frames' codes from element `begin` on, which is a multiple of 16.
  std::vector<const uint8_t*> FramesFrom(size_t begin) const;

  HugeArray grad;
  float threshold;
  HugeArray residual;
  HugeArray codes;  // written by whoever encodes
  std::vector<HugeArray> frames;
  double density;  // the frames'
};

}  // namespace telegrad::perf
