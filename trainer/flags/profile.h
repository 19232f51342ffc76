#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvstore/kvstore.h"

namespace telegrad {

// Gradient profiles, "profile:vgg16": the parameter tensors of well-known
// networks, for benchmarks of pushing and pulling without a model. Sizes are
// those of tf_cnn_benchmarks with 1,001 classes, in forward order.
bool IsProfile(absl::string_view network);
absl::StatusOr<std::vector<TensorSpec>> LoadProfile(absl::string_view network);

// Networks that can be trained, and profiles, for --help.
std::string DescribeTrainable();

}  // namespace telegrad
