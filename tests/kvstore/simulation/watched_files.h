#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <map>

namespace telegrad::testing {

// What one waits for, as poll has it.
struct Watcher {
  pollfd* files = nullptr;
  nfds_t num_files = 0;
};

// All files that threads of a VirtualWorld wait for: a look at them costs what
// is ready, not what there is.
class WatchedFiles {
 public:
  WatchedFiles();

  // Its files are those of the call to Add until Remove.
  void Add(Watcher& watcher);
  void Remove(Watcher& watcher);
  // Calls it for those of whose files one is ready, in any order, some twice.
  void FindReady(const std::function<void(Watcher&)>& found) const;

 private:
  void Register(int fd);

  const int epoll_;
  std::multimap<int, Watcher*> watchers_;  // by file
};

}  // namespace telegrad::testing
