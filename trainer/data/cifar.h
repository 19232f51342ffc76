#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"

namespace telegrad {

// Reads the binary version of CIFAR-10 (data_batch_1.bin to 5 and
// test_batch.bin) or CIFAR-100 (train.bin and test.bin, fine labels) from
// `directory`, plain or with .gz. A record is a label, of CIFAR-100 two, and
// 3 x 32 x 32 pixels. Source: https://www.cs.toronto.edu/~kriz/cifar.html (the
// format). NotFound names the file, DataLoss the byte in it, too.
absl::StatusOr<DatasetPair> ReadCifar10(const std::string& directory);
absl::StatusOr<DatasetPair> ReadCifar100(const std::string& directory);

}  // namespace telegrad
