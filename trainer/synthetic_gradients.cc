#include "trainer/synthetic_gradients.h"

#include <utility>

#include "base/clock.h"
#include "base/random.h"

namespace telegrad {

SyntheticGradients::SyntheticGradients(std::span<const TensorSpec> specs,
                                       uint64_t seed, int rank) {
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
    num_bytes_ += static_cast<int64_t>(4 * n);
    grads_.push_back(std::move(grad));
    sums_.emplace_back(4 * n);
  }
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
