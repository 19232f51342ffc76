#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "compression/encode_many.h"
#include "kernels/device_queue.h"

namespace telegrad {

// A stream of a GPU, and a table of what is launched together on it. Skips
// where there is no GPU.
template <typename Test>
class GpuBatchTest : public Test {
 protected:
  static constexpr Device kGpu = {DeviceKind::kCuda, 0};

  void SetUp() override {
    std::string why_not;
    queue_ = kernels::MakeDeviceQueue(kGpu, &why_not);
    if (queue_ == nullptr) GTEST_SKIP() << why_not;
    stream_ = queue_->MakeStream(0);
    table_ = std::make_unique<BatchTable>(queue_.get(), stream_);
  }

  // Whether all that was queued has ended well, within a minute.
  bool Finish() {
    using State = kernels::DeviceQueue::State;
    const Event event = queue_->MakeEvent();
    if (!queue_->Record(event, stream_)) return false;
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (queue_->Poll(event) == State::kRunning) {
      if (std::chrono::steady_clock::now() > end) return false;
    }
    return queue_->Poll(event) == State::kPassed;
  }

  std::unique_ptr<kernels::DeviceQueue> queue_;
  Stream stream_;
  std::unique_ptr<BatchTable> table_;
};

}  // namespace telegrad
