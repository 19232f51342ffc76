#include "trainer/synthetic_gradients.h"

#include <string>
#include <utility>

#include "base/clock.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "trainer/device_room.h"
#include "trainer/gpu_faults.h"

namespace telegrad {
namespace {

constexpr Duration kCopyTimeout = std::chrono::seconds(60);

}  // namespace

absl::StatusOr<SyntheticGradients> SyntheticGradients::Make(
    std::span<const TensorSpec> specs, uint64_t seed, int rank, Device device) {
  SyntheticGradients made;
  made.device_ = device;
  std::string why_not;
  made.queue_ = kernels::MakeDeviceQueue(device, &why_not);
  if (made.queue_ == nullptr) return GpuFault(device, why_not);
  constexpr size_t kPattern = 4093;  // values; a prime, so that runs differ
  std::vector<float> pattern(kPattern);
  Random random(seed, static_cast<uint64_t>(rank) + 1);
  for (float& value : pattern) value = random.NextNormal();
  for (size_t key = 0; key < specs.size(); ++key) {
    const size_t n = specs[key].num_elems;
    Buffer grad(4 * n);
    const float scale = 1.0f / static_cast<float>(1 << (key % 8));
    for (size_t i = 0; i < n; ++i) {
      grad.as<float>()[i] = scale * pattern[(i * 7 + key) % kPattern];
    }
    made.num_bytes_ += static_cast<int64_t>(4 * n);
    if (device != Device{}) {
      ASSIGN_OR_RETURN(Buffer room, MakeRoom(device, {}, 4 * n));
      RETURN_IF_ERROR(made.Copy(room.view(), grad.view()));
      grad = std::move(room);
    }
    made.grads_.push_back(std::move(grad));
    ASSIGN_OR_RETURN(made.sums_.emplace_back(), MakeRoom(device, {}, 4 * n));
  }
  return made;
}

absl::Status SyntheticGradients::Copy(Bytes to, ConstBytes from) {
  using State = kernels::DeviceQueue::State;
  const Event end = queue_->MakeEvent();
  queue_->Copy(to, from, {});
  queue_->Record(end, {});
  const TimePoint deadline = Clock::now() + kCopyTimeout;
  State state = State::kRunning;
  while (state == State::kRunning && Clock::now() < deadline) {
    state = queue_->Poll(end);
  }
  return state == State::kPassed ? absl::OkStatus()
                                 : GpuFault(device_, queue_->TakeError());
}

absl::StatusOr<std::vector<Buffer>> SyntheticGradients::ReadSums() {
  std::vector<Buffer> sums;
  for (const Buffer& sum : sums_) {
    RETURN_IF_ERROR(Copy(sums.emplace_back(sum.size()).view(), sum.view()));
  }
  return sums;
}

absl::StatusOr<double> SyntheticGradients::Exchange(
    KVStore& store, const std::function<int(size_t)>& priority_of,
    TimePoint deadline) {
  const TimePoint start = Clock::now();
  std::vector<Ticket> tickets(grads_.size());
  for (size_t i = grads_.size(); i-- > 0;) {
    tickets[i] = store.PushPull(static_cast<Key>(i), grads_[i].view(),
                                sums_[i].view(), priority_of(i));
  }
  absl::Status status;
  for (const Ticket& ticket : tickets) {
    if (status.ok()) {
      status = ticket.Wait(deadline);
    } else {
      ticket.Cancel();
    }
  }
  if (!status.ok()) return status;
  return SecondsSince(start);
}

}  // namespace telegrad
