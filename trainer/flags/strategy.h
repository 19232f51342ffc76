#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "kvstore/options.h"

namespace telegrad {

// What was asked for in the words of tf_cnn_benchmarks.
struct StrategyRequest {
  std::string variable_update = {};         // "replicated"; dashes as well
  std::string local_parameter_device = {};  // "cpu", "gpu"; empty: not said
  std::string all_reduce_spec = {};         // "pscpu", "xring"; as well
  int workers = 1;
  int devices = 1;  // each worker's
  float momentum = 0;
};

// The request in terms of stores. Sums of gradients, and of the weight decay
// that each device adds to its own, are divided by `divisor`.
struct Strategy {
  std::string name = {};
  std::string kv_store = {};
  UpdateOn update_on = UpdateOn::kWorker;
  int divisor = 1;
  std::string why = {};  // what is summed where
};

// InvalidArgument for what is no such word or does not fit together;
// Unimplemented, with the name and what is missing, for what cannot be done.
absl::StatusOr<Strategy> FindStrategy(const StrategyRequest& request);

// Whether it may be several devices of one process.
bool IsOfOneProcess(const StrategyRequest& request);

// Its optimizer: TensorFlow's devices decay weights in their loss, so that a
// sum over `num_devices` of them, of all workers, decays as often.
SgdParameters StrategySgd(const Strategy& strategy, int num_devices,
                          SgdParameters sgd);

}  // namespace telegrad
