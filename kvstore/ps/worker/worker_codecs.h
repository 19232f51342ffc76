#pragma once

#include <vector>

#include "kvstore/codec_control.h"
#include "kvstore/ps/worker/tensor_table.h"

namespace telegrad {

// How a worker's tensors are encoded from now on.
class WorkerCodecs : public CodecControl {
 public:
  explicit WorkerCodecs(const TensorTable& tensors) : tensors_(tensors) {}

  absl::Status SetCodec(Key key, int codec) override;
  std::vector<TensorReport> Report() const override;

 private:
  const TensorTable& tensors_;
};

}  // namespace telegrad
