#include "tests/kvstore/simulation/watched_files.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>

namespace telegrad::testing {
namespace {

// The bits of poll, which are those of epoll.
uint32_t Wanted(const Watcher& watcher, int fd) {
  uint32_t wanted = 0;
  for (nfds_t i = 0; i < watcher.num_files; ++i) {
    const pollfd& file = watcher.files[i];
    if (file.fd == fd) wanted |= static_cast<uint16_t>(file.events);
  }
  return wanted;
}

}  // namespace

WatchedFiles::WatchedFiles() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

void WatchedFiles::Register(int fd) {
  epoll_event wanted{.events = 0, .data = {.fd = fd}};
  const auto [begin, end] = watchers_.equal_range(fd);
  for (auto each = begin; each != end; ++each) {
    wanted.events |= Wanted(*each->second, fd);
  }
  if (begin == end) {
    epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
  } else if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &wanted) != 0) {
    epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &wanted);
  }
}

void WatchedFiles::Add(Watcher& watcher) {
  for (nfds_t i = 0; i < watcher.num_files; ++i) {
    watchers_.emplace(watcher.files[i].fd, &watcher);
    Register(watcher.files[i].fd);
  }
}

void WatchedFiles::Remove(Watcher& watcher) {
  for (nfds_t i = 0; i < watcher.num_files; ++i) {
    const int fd = watcher.files[i].fd;
    const auto [begin, end] = watchers_.equal_range(fd);
    const auto own = std::find_if(
        begin, end, [&](const auto& each) { return each.second == &watcher; });
    if (own != end) watchers_.erase(own);
    Register(fd);
  }
}

void WatchedFiles::FindReady(const std::function<void(Watcher&)>& found) const {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_, events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    const auto [begin, end] = watchers_.equal_range(event.data.fd);
    for (auto each = begin; each != end; ++each) {
      const uint32_t wanted =
          Wanted(*each->second, event.data.fd) | EPOLLERR | EPOLLHUP;
      if ((event.events & wanted) != 0) found(*each->second);
    }
  }
}

}  // namespace telegrad::testing
