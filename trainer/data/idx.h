#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace telegrad {

// An IDX file of unsigned bytes: a big-endian magic 0x000008DD where DD is the
// number of dimensions, DD big-endian 32-bit extents, then the bytes.
// Source: http://yann.lecun.com/exdb/mnist/ (the format, not a download).
struct IdxFile {
  std::vector<uint32_t> extents;
  std::vector<uint8_t> values;
};

// Where the values begin.
inline uint64_t IdxHeaderBytes(size_t num_dims) { return 4 + 4 * num_dims; }

// Reads a plain or gzip file. Memory follows what is in the file, not what its
// header claims. DataLoss names the file and the byte offset (in the IDX data,
// that is after gzip); NotFound when it is not there.
absl::StatusOr<IdxFile> ReadIdx(const std::string& path, size_t num_dims);

}  // namespace telegrad
