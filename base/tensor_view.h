#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/stream.h"

namespace telegrad {

// A tensor that somebody else owns, contiguous. On a GPU its content is ready
// when the work queued on `stream` so far has finished; on a CPU the stream is
// null and the content is ready now.
struct TensorView {
  Bytes bytes;  // has the device
  Dtype dtype = Dtype::kFloat32;
  int64_t num_elems = 0;
  Stream stream = {};
  // Row numbers where only some rows are here, in any order; elements follow
  // this order. Not owned.
  std::optional<std::span<const int64_t>> rows = {};

  // Whether there are as many bytes as the elements need.
  bool IsConsistent() const {
    return num_elems >= 0 && SizeOf(dtype) > 0 &&
           bytes.size / SizeOf(dtype) == static_cast<size_t>(num_elems) &&
           bytes.size % SizeOf(dtype) == 0;
  }
};

// A view of `num_elems` float32 in host memory.
inline TensorView HostTensor(float* elems, int64_t num_elems) {
  return {.bytes = {elems, static_cast<size_t>(num_elems) * sizeof(float)},
          .dtype = Dtype::kFloat32,
          .num_elems = num_elems};
}

}  // namespace telegrad
