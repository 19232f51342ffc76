#include "trainer/run/epoch_batches.h"

#include <algorithm>

#include "trainer/data/dataset.h"

namespace telegrad {

EpochBatches DealSamples(const TrainOptions& options, size_t dataset_size,
                         uint64_t seed, int epoch, int rank, int num_workers,
                         int64_t first_step) {
  const int devices = options.devices;
  const bool is_equal = options.work_load.empty();
  const int64_t per_share = int64_t{options.batch_size} *
                            options.grad_accumulation *
                            (is_equal ? 1 : devices);
  std::vector<std::vector<uint32_t>> shares;
  for (int device = 0; device < (is_equal ? devices : 1); ++device) {
    shares.push_back(EpochShare(
        dataset_size, seed, epoch, is_equal ? rank * devices + device : rank,
        is_equal ? num_workers * devices : num_workers, per_share));
  }
  EpochBatches dealt;
  dealt.num_steps = static_cast<int64_t>(shares[0].size()) / per_share;
  if (options.num_batches > 0) {
    dealt.num_steps = std::min(dealt.num_steps, options.num_batches);
  }
  std::vector<size_t> used(shares.size());
  for (int64_t step = 0; step < dealt.num_steps; ++step) {
    for (size_t device = 0; device < options.device_batches.size(); ++device) {
      const size_t share = is_equal ? device : 0;
      for (int part = 0; part < options.grad_accumulation; ++part) {
        const auto from =
            shares[share].begin() + static_cast<ptrdiff_t>(used[share]);
        const auto size = static_cast<size_t>(options.device_batches[device]);
        used[share] += size;
        if (step < first_step) continue;
        dealt.batches.emplace_back(from, from + static_cast<ptrdiff_t>(size));
      }
    }
  }
  return dealt;
}

}  // namespace telegrad
