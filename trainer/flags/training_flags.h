#pragma once

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"
#include "trainer/flags/options.h"
#include "trainer/networks/network.h"

namespace telegrad {

// For CLI11: empty, or why `text` is no finite number of 0 or more.
std::string CheckNotNegative(const std::string& text);
// For CLI11: empty, or why `text` is no finite number above 0; why it is none
// from 0 on and below 1.
std::string CheckRate(const std::string& text);
std::string CheckDecay(const std::string& text);

// What is trained: network, data, schedule.
void AddTrainingFlags(CLI::App& app, TrainOptions& options);

// After parsing: the network by its full name, flags that belong together.
absl::Status FinishTrainingFlags(TrainOptions& options);

// The network for input as the flags have it, where no data decide; with the
// first seed. Errors as ShapeOf's.
absl::StatusOr<NetworkSpec> RequestedSpec(const TrainOptions& options);

// What LoadDataset gets: the text's context and the images' shape.
DatasetRequest RequestedData(const TrainOptions& options,
                             const NetworkSpec& spec);

// Samples of an epoch of --benchmark 1, by the devices of all workers.
int64_t NumNoiseSamples(const TrainOptions& options, int num_devices);

// The place of the step from which --lr and its schedule make the rate.
struct Position {
  int64_t epoch = 0;
  int64_t batch = 0;
  int64_t num_batches = 1;  // steps of an epoch
};
float LearningRate(const TrainOptions& options, const Position& at);

// Makes `spec` one for samples of this shape.
void Fit(const SampleShape& samples, NetworkSpec& spec);
SampleShape SamplesOf(const NetworkSpec& spec);

}  // namespace telegrad
