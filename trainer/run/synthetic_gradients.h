#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "kernels/device_queue.h"
#include "kvstore/kvstore.h"

namespace telegrad {

// Gradients of a profile's sizes, filled once: tensor k has the scale 2^-(k%8)
// so that thresholds differ. One thread.
class SyntheticGradients {
 public:
  // The tensors' keys are their places in `specs`; `devices` are those of the
  // worker of this rank. Errors as MakeRoom, and of the devices.
  static absl::StatusOr<SyntheticGradients> Make(
      std::span<const TensorSpec> specs, uint64_t seed, int rank,
      std::span<const Device> devices);

  // One step, in seconds: pushes and pulls everything in the order in which a
  // backward pass would, last layers first; waits in forward order. After an
  // error nothing is under way: DeadlineExceeded names what is missing.
  absl::StatusOr<double> Exchange(KVStore& store,
                                  const std::function<int(size_t)>& priority_of,
                                  TimePoint deadline);

  int64_t num_bytes() const { return num_bytes_; }  // one device's
  // Sums by tensor, of the last step, in host memory.
  absl::StatusOr<std::vector<Buffer>> ReadSums();

 private:
  SyntheticGradients() = default;
  // What a tensor has on a device.
  struct Place {
    Buffer grad;
    Buffer sum;
  };
  using Queue = std::unique_ptr<kernels::DeviceQueue>;
  static absl::StatusOr<Place> MakePlace(kernels::DeviceQueue& queue,
                                         Buffer grad);
  // A copy to or from a device, and its end.
  static absl::Status Copy(kernels::DeviceQueue& queue, Bytes to,
                           ConstBytes from);

  std::vector<Queue> queues_;               // by device
  std::vector<std::vector<Place>> places_;  // by tensor, then device
  int64_t num_bytes_ = 0;
};

}  // namespace telegrad
