#include "perf/two_bit_data.h"

#include "kernels/dispatch.h"
#include "perf/workload.h"

namespace telegrad::perf {

TwoBitData::TwoBitData(size_t n, double wanted_density, uint32_t num_frames)
    : grad(NormalGradient(n)),
      threshold(ThresholdFor(grad.as<float>(), n, wanted_density)),
      residual(SettledResidual(grad.as<float>(), n, threshold)),
      codes(kernels::TwoBitBytes(n)) {
  kernels::EncodeStats stats;
  for (uint32_t f = 0; f < num_frames; ++f) {
    frames.emplace_back(kernels::TwoBitBytes(n));
    kernels::CpuKernels().two_bit_encode(
        grad.as<float>(), residual.as<float>(), n, threshold,
        kernels::NonFinite::kZero, frames.back().as<uint8_t>(), &stats, {});
  }
  density = static_cast<double>(stats.num_nonzero) /
            (static_cast<double>(n) * num_frames);
}

std::vector<const uint8_t*> TwoBitData::FramesFrom(size_t begin) const {
  std::vector<const uint8_t*> pointers;
  for (const HugeArray& frame : frames) {
    pointers.push_back(frame.as<uint8_t>() + begin / 4);
  }
  return pointers;
}

}  // namespace telegrad::perf
