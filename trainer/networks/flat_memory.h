#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/device.h"

namespace telegrad {

torch::Device PlaceOf(Device device);

// One flat memory on a network's device. Waits for nothing but in Scale. Throws
// what the framework throws.
class FlatMemory {
 public:
  // Takes over what is in `filled`, host memory.
  void Place(Buffer filled, Device device);
  float* first() const { return first_; }
  // [num_elements] from `offset` on.
  torch::Tensor Part(size_t offset, const std::vector<int64_t>& shape) const {
    return torch::from_blob(tensor_.data_ptr<float>() + offset, shape,
                            tensor_.options());
  }
  void Clear() { tensor_.zero_(); }
  // Whether all are finite then.
  bool Scale(float factor) {
    if (factor != 1.0f) tensor_.mul_(factor);
    return tensor_.isfinite().all().item<bool>();
  }
  // To an L2 norm of at most `most`; as it is where that is not finite. The
  // same bits on every device.
  void Clip(double most);

 private:
  Buffer buffer_;
  torch::Tensor tensor_;
  float* first_ = nullptr;
};

}  // namespace telegrad
