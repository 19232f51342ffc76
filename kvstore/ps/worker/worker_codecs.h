#pragma once

#include <atomic>
#include <vector>

#include "kvstore/codec_control.h"
#include "kvstore/ps/worker/tensor_table.h"

namespace telegrad {

// How a worker's tensors are encoded from now on, and how their codes are
// packed.
class WorkerCodecs : public CodecControl {
 public:
  explicit WorkerCodecs(const TensorTable& tensors) : tensors_(tensors) {}

  // Before there are tensors.
  void Configure(PackingMode packing) { packing_ = packing; }
  // A new tensor follows what has been decided.
  void Add(TensorCodec& tensor);

  absl::Status SetCodec(Key key, int codec) override;
  PackingMode packing() const override;
  absl::Status SetPacking(PackingMode mode) override;
  std::vector<TensorReport> Report() const override;

 private:
  const TensorTable& tensors_;
  std::atomic<PackingMode> packing_{PackingMode::kPlain};
  bool has_choice_ = false;  // any tensor's codec
};

}  // namespace telegrad
