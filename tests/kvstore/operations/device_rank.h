#pragma once

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/device_queue.h"
#include "kvstore/operations/devices.h"
#include "tests/kvstore/operations/operations_ranks.h"

namespace telegrad::testing {

// A rank's device, and what a test puts there.
class DeviceRank {
 public:
  explicit DeviceRank(int number)
      : number_(number),
        queue_(
            kernels::MakeDeviceQueue(operations::DeviceOf(number_), nullptr)),
        stream_(queue_->MakeStream(0)) {}
  ~DeviceRank() { WaitForDevice(); }

  // Copied by the stream, behind which the request is ready.
  template <typename T>
  std::shared_ptr<Submission> Move(std::shared_ptr<Submission> wanted,
                                   const std::vector<T>& values) {
    const size_t bytes = sizeof(T) * values.size();
    memory_.push_back(queue_->MakeMemory(bytes + 1, stream_));
    host_.push_back(kernels::HostMemory(*queue_, bytes + 1));
    std::copy(values.begin(), values.end(), host_.back().as<T>());
    queue_->Copy(Bytes(memory_.back().data(), bytes, queue_->device()),
                 ConstBytes(host_.back().data(), bytes), stream_);
    wanted->request.device = number_;
    wanted->in = memory_.back().data();
    wanted->stream = stream_;
    return wanted;
  }

  template <typename T>
  std::vector<T> Read(const void* there, size_t count) {
    host_.push_back(kernels::HostMemory(*queue_, count * sizeof(T) + 1));
    if (count > 0) {
      queue_->Copy(Bytes(host_.back().data(), count * sizeof(T)),
                   ConstBytes(there, count * sizeof(T), queue_->device()),
                   stream_);
    }
    WaitForDevice();
    const T* const values = host_.back().as<T>();
    return std::vector<T>(values, values + count);
  }

  // Of one that is submitted and ends well.
  template <typename T>
  std::vector<T> ResultOf(Operations& operations, int64_t handle) {
    EXPECT_THAT(WaitFor(operations, handle), IsOk());
    const auto result = operations.queue().Result(handle);
    EXPECT_THAT(result, IsOk());
    if (!result.ok()) return {};
    const auto values =
        Read<T>((*result)->result, static_cast<size_t>((*result)->num_elems));
    EXPECT_THAT(operations.queue().Release(handle), IsOk());
    return values;
  }

 private:
  void WaitForDevice() {
    const Event event = queue_->MakeEvent();
    queue_->Record(event, stream_);
    while (queue_->Poll(event) == kernels::DeviceQueue::State::kRunning) {
      std::this_thread::yield();
    }
  }

  const int number_;
  const std::unique_ptr<kernels::DeviceQueue> queue_;
  const Stream stream_;
  std::vector<Buffer> memory_, host_;
};

}  // namespace telegrad::testing
