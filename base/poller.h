#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/socket.h"

namespace telegrad {

// Waits for any of several descriptors, until another thread wakes it. In order
// of use: Open, Watch, then Poll and Sleep in a loop. One thread, except Wake.
class Poller {
 public:
  absl::Status Open();
  // `key` names the descriptor in Poll, `events` are epoll's. It is forgotten
  // when the descriptor is closed.
  absl::Status Watch(int fd, uint64_t key, uint32_t events);

  // each(key, events) for what is ready now, some at a time.
  template <typename Each>
  void Poll(const Each& each) {
    std::array<epoll_event, 64> ready;
    const int count = epoll_wait(epoll_.get(), ready.data(),
                                 static_cast<int>(ready.size()), 0);
    for (int i = 0; i < count; ++i) {
      const epoll_event& one = ready[static_cast<size_t>(i)];
      if (one.data.u64 != kWakeKey) each(one.data.u64, one.events);
    }
  }

  // Until a descriptor is ready, Wake is called or `until`, at most a minute;
  // true in the first two cases.
  bool Sleep(TimePoint until);

  // Ends a Sleep, now or next. Thread-safe.
  void Wake();
  // Whether Wake was called since.
  bool TakeWake() { return is_woken_.load() && is_woken_.exchange(false); }

 private:
  static constexpr uint64_t kWakeKey = ~uint64_t{0};

  UniqueFd epoll_;
  WakeEvent wake_event_;
  std::atomic<bool> is_woken_{false};
};

}  // namespace telegrad
