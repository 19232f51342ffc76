#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "kvstore/collective/collective.h"
#include "tests/testing/status_matchers.h"

namespace telegrad::testing {

// Gathers the addresses of a group whose ranks are threads.
class Meeting {
 public:
  explicit Meeting(int num_ranks) : texts_(static_cast<size_t>(num_ranks)) {}

  AddressExchange ExchangeOf(int rank) {
    return [this, rank](
               const std::string& mine,
               TimePoint deadline) -> absl::StatusOr<std::vector<std::string>> {
      MutexLock lock(&mutex_);
      texts_[static_cast<size_t>(rank)] = mine;
      ++num_come_;
      changed_.NotifyAll();
      while (num_come_ < texts_.size()) {
        if (Clock::now() >= deadline) {
          return absl::DeadlineExceededError("not all ranks came");
        }
        changed_.WaitUntil(&mutex_, deadline);
      }
      return texts_;
    };
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> texts_ ABSL_GUARDED_BY(mutex_);
  size_t num_come_ ABSL_GUARDED_BY(mutex_) = 0;
};

inline GroupOptions InprocOptions(int ranks) {
  GroupOptions options;
  options.transport.name = "inproc";
  options.world_size = ranks;
  options.chunk_bytes = 4096;
  options.timeout = std::chrono::seconds(20);
  return options;
}

using MakeGroup = std::function<absl::StatusOr<std::unique_ptr<Group>>(
    const GroupOptions&, const AddressExchange&)>;

// Runs `body` on each rank's thread, with its group.
inline void RunRanks(const GroupOptions& options,
                     const std::function<void(Group&)>& body,
                     const MakeGroup& make = &Group::Make) {
  Meeting meeting(options.world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.world_size; ++rank) {
    threads.emplace_back([&, rank] {
      GroupOptions mine = options;
      mine.rank = rank;
      auto group = make(mine, meeting.ExchangeOf(rank));
      ASSERT_THAT(group, IsOk());
      body(**group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace telegrad::testing
