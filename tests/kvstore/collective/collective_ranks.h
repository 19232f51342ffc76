#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvstore/collective/collective.h"
#include "kvstore/collective/meeting.h"
#include "tests/testing/status_matchers.h"

namespace telegrad::testing {

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
