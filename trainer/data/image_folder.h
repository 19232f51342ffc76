#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"

namespace telegrad {

// DIR/train and DIR/val (or DIR/test), each with a folder per class that has
// JPEG or PNG files; classes are numbered in the order of their names, which
// must be the same in both. Lists names alone: a sample is read when it is
// asked for, and fitted to `shape`. NotFound or InvalidArgument name the
// folder.
absl::StatusOr<DatasetPair> OpenImageFolder(const std::string& directory,
                                            const SampleShape& shape);

}  // namespace telegrad
