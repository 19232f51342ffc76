#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// One parameter tensor of a network.
struct ProfileTensor {
  std::string name = {};
  int64_t num_elems = 0;   // > 0
  bool is_matrix = false;  // it has two or more dimensions: a layer's weights
  double ready_ms = 0;     // since the backward pass began; 0: not told
  bool operator==(const ProfileTensor&) const = default;
};

// What a step of a network exchanges: its parameter tensors, in forward order.
struct GradientProfile {
  std::string name = {};
  std::vector<ProfileTensor> tensors = {};

  int64_t num_elems() const;
  // Share of the backward pass after which each tensor's gradient is ready,
  // 0..1, in forward order: by `ready_ms`, the greatest of which ends the pass,
  // else assuming that every layer (a weight matrix and the vectors after it)
  // takes equally long, the last layer first.
  std::vector<double> ReadyShares() const;
  bool operator==(const GradientProfile&) const = default;
};

// The profiles that are built in: those of tf_cnn_benchmarks with 1,001
// classes.
std::vector<std::string> GradientProfileNames();

// A built-in profile by name, or a file (NAME.csv). NotFound for an unknown
// name, InvalidArgument for a bad file.
absl::StatusOr<GradientProfile> LoadGradientProfile(
    absl::string_view name_or_file);

// Reads the lines "name,shape,elements" below that heading, or
// "name,shape,elements,ready_ms"; the shape's product, "3x3x64x64", must be the
// number of elements. At most 100,000 tensors of at most 2^40 elements in all.
absl::StatusOr<GradientProfile> ParseGradientProfile(absl::string_view name,
                                                     absl::string_view csv);

}  // namespace telegrad
