#include "base/poller.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "base/resource_limit.h"

namespace telegrad {

absl::Status Poller::Open() {
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.is_open() || !wake_event_.is_open()) {
    return SystemError("eventfd or epoll", errno);
  }
  return Watch(wake_event_.fd(), kWakeKey, EPOLLIN);
}

absl::Status Poller::Watch(int fd, uint64_t key, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) {
    return absl::OkStatus();
  }
  return SystemError("epoll_ctl", errno);
}

bool Poller::Sleep(TimePoint until) {
  const Duration left = std::max(until - Clock::now(), Duration::zero());
  const int64_t ns =
      std::min<int64_t>(std::chrono::nanoseconds(left).count(), 60'000'000'000);
  const timespec timeout = {ns / 1'000'000'000, ns % 1'000'000'000};
  pollfd file = {epoll_.get(), POLLIN, 0};
  const bool is_ready = ppoll(&file, 1, &timeout, nullptr) > 0;
  wake_event_.Clear();
  return is_ready;
}

void Poller::Wake() {
  // The flag says it, the file ends ppoll.
  if (!is_woken_.exchange(true)) wake_event_.Notify();
}

}  // namespace telegrad
