#include "trainer/run/synthetic_gradients.h"

#include <string>
#include <utility>

#include "base/clock.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "trainer/networks/gpu_faults.h"
#include "trainer/run/device_room.h"

namespace telegrad {
namespace {

constexpr Duration kCopyTimeout = std::chrono::seconds(60);

}  // namespace

absl::StatusOr<SyntheticGradients> SyntheticGradients::Make(
    std::span<const TensorSpec> specs, uint64_t seed, int rank,
    std::span<const Device> devices) {
  SyntheticGradients made;
  made.places_.resize(specs.size());
  constexpr size_t kPattern = 4093;  // values; a prime, so that runs differ
  std::vector<float> pattern(kPattern);
  uint64_t contributor = static_cast<uint64_t>(rank) * devices.size();
  for (const Device device : devices) {
    std::string why_not;
    Queue& queue =
        made.queues_.emplace_back(kernels::MakeDeviceQueue(device, &why_not));
    if (queue == nullptr) return GpuFault(device, why_not);
    Random random(seed, ++contributor);
    for (float& value : pattern) value = random.NextNormal();
    for (size_t key = 0; key < specs.size(); ++key) {
      const size_t n = specs[key].num_elems;
      Buffer grad(4 * n);
      const float scale = 1.0f / static_cast<float>(1 << (key % 8));
      for (size_t i = 0; i < n; ++i) {
        grad.as<float>()[i] = scale * pattern[(i * 7 + key) % kPattern];
      }
      ASSIGN_OR_RETURN(made.places_[key].emplace_back(),
                       MakePlace(*queue, std::move(grad)));
    }
  }
  for (const TensorSpec& spec : specs) {
    made.num_bytes_ += static_cast<int64_t>(4 * spec.num_elems);
  }
  return made;
}

absl::StatusOr<SyntheticGradients::Place> SyntheticGradients::MakePlace(
    kernels::DeviceQueue& queue, Buffer grad) {
  Place place;
  ASSIGN_OR_RETURN(place.sum, MakeRoom(queue.device(), {}, grad.size()));
  if (queue.device() == Device{}) {
    place.grad = std::move(grad);
    return place;
  }
  ASSIGN_OR_RETURN(place.grad, MakeRoom(queue.device(), {}, grad.size()));
  RETURN_IF_ERROR(Copy(queue, place.grad.view(), grad.view()));
  return place;
}

absl::Status SyntheticGradients::Copy(kernels::DeviceQueue& queue, Bytes to,
                                      ConstBytes from) {
  using State = kernels::DeviceQueue::State;
  const Event end = queue.MakeEvent();
  queue.Copy(to, from, {});
  queue.Record(end, {});
  const TimePoint deadline = Clock::now() + kCopyTimeout;
  State state = State::kRunning;
  while (state == State::kRunning && Clock::now() < deadline) {
    state = queue.Poll(end);
  }
  return state == State::kPassed ? absl::OkStatus()
                                 : GpuFault(queue.device(), queue.TakeError());
}

absl::StatusOr<std::vector<Buffer>> SyntheticGradients::ReadSums() {
  std::vector<Buffer> sums;
  for (const std::vector<Place>& tensor : places_) {
    const Bytes sum = tensor.front().sum.view();
    RETURN_IF_ERROR(
        Copy(*queues_.front(), sums.emplace_back(sum.size).view(), sum));
  }
  return sums;
}

absl::StatusOr<double> SyntheticGradients::Exchange(
    KVStore& store, const std::function<int(size_t)>& priority_of,
    TimePoint deadline) {
  const TimePoint start = Clock::now();
  std::vector<Ticket> tickets(places_.size());
  std::vector<TensorView> grads(queues_.size());
  std::vector<TensorView> sums(queues_.size());
  for (size_t i = places_.size(); i-- > 0;) {
    for (size_t device = 0; device < queues_.size(); ++device) {
      grads[device] = FloatTensor(places_[i][device].grad.view());
      sums[device] = FloatTensor(places_[i][device].sum.view());
    }
    tickets[i] =
        store.PushPull(static_cast<Key>(i), grads, sums, priority_of(i));
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
