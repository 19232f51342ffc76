#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"

namespace telegrad {

// Reads the four files of MNIST from `directory`:
// {train,t10k}-images-idx3-ubyte and -labels-idx1-ubyte, '.' or '-' before idx,
// with or without .gz.
absl::StatusOr<DatasetPair> ReadMnist(const std::string& directory);

}  // namespace telegrad
