#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/flags/options.h"

namespace telegrad {

// Which samples a worker computes in an epoch: those of a step for each of its
// devices, in parts where gradients are accumulated, step by step.
struct EpochBatches {
  int64_t num_steps = 0;                       // steps of the whole epoch
  std::vector<std::vector<uint32_t>> batches;  // from the first step on
};

// Devices with equal loads have shares of their own, others parts of their
// worker's. `first_step` is the first whose batches are wanted.
EpochBatches DealSamples(const TrainOptions& options, size_t dataset_size,
                         uint64_t seed, int epoch, int rank, int num_workers,
                         int64_t first_step);

}  // namespace telegrad
