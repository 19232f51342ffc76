#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "kvstore/job/control/scheduler.h"
#include "kvstore/job/path/data_path.h"
#include "kvstore/job/path/job_options.h"
#include "kvstore/job/path/worker_group.h"
#include "tests/kvstore/job/relay.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;
using testing::StatusIs;

struct Place {
  int rank = -1;
  int num_workers = 0;
  int elder = -1;
  uint64_t epoch = 0;
  bool operator==(const Place&) const = default;
};

JobOptions OptionsOfElastic(const std::string& scheduler) {
  JobOptions options{.scheduler_address = scheduler};
  options.path.transport.name = "tcp";
  options.path.transport.bind_address = "127.0.0.1";
  options.elastic = {1, 3};
  return options;
}

// A worker of an elastic job, until three are there.
Place GoOn(const std::string& scheduler) {
  const JobOptions options = OptionsOfElastic(scheduler);
  auto group = JoinWorkers(options);
  const TimePoint deadline = Clock::now() + std::chrono::seconds(60);
  while (group.ok() && (*group)->num_workers() < 3 && Clock::now() < deadline) {
    if (LetIn(**group).ok()) continue;
    EXPECT_TRUE((*group)->seat().has_value());
    group = JoinNextEpoch(*std::move(group));
  }
  EXPECT_THAT(group.status(), IsOk());
  if (!group.ok()) return {};
  const Place place{(*group)->rank(), (*group)->num_workers(),
                    (*group)->elder(), (*group)->membership().epoch};
  EXPECT_THAT((*group)->Gather("the end", "").status(), IsOk());
  (*group)->Leave();
  return place;
}

TEST(WorkerGroupEpochs, OneMoreComesInAndTheFirstOfTheOthersIsTheElder) {
  const auto scheduler = Scheduler::Start({.num_workers = 2, .num_servers = 0});
  ASSERT_THAT(scheduler.status(), IsOk());
  std::vector<std::future<Place>> members;
  for (int i = 0; i < 3; ++i) {
    members.push_back(
        std::async(std::launch::async, GoOn, (*scheduler)->address()));
  }
  // Two of them begin, whichever.
  std::vector<Place> places;
  for (auto& each : members) places.push_back(each.get());
  for (const Place& each : places) {
    EXPECT_EQ(each.num_workers, 3);
    EXPECT_EQ(each.elder, 0);
    EXPECT_EQ(each.epoch, 2u);
  }
  EXPECT_EQ(places[0].rank + places[1].rank + places[2].rank, 3);
}

// As on a machine where its threads get no processor: connections of data have
// ended before it hears that the epoch has.
TEST(WorkerGroupEpochs, WhoHearsOfAnEndBehindItsOwnErrorGoesOn) {
  constexpr ControlTiming kQuiet = {.heartbeat = std::chrono::seconds(60),
                                    .dead = std::chrono::seconds(120)};
  const auto scheduler =
      Scheduler::Start({.num_workers = 2, .num_servers = 0, .timing = kQuiet});
  ASSERT_THAT(scheduler.status(), IsOk());
  Relay relay((*scheduler)->address());
  std::atomic<bool> waits{false};
  const auto join = [&](const std::string& address, bool is_newcomer) {
    JobOptions options = OptionsOfElastic(address);
    options.timing = kQuiet;
    if (is_newcomer) {
      options.on_wait = [&waits](const std::string&) {
        waits = true;
        waits.notify_all();
      };
    }
    return JoinWorkers(options);
  };
  const auto join_later = [&](const std::string& address, bool is_newcomer) {
    return std::async(std::launch::async, join, address, is_newcomer);
  };
  auto first = join_later((*scheduler)->address(), false);
  auto late = join(relay.address(), false);
  auto other = first.get();
  ASSERT_THAT(late.status(), IsOk());
  ASSERT_THAT(other.status(), IsOk());
  auto newcomer = join_later((*scheduler)->address(), true);
  waits.wait(false);
  relay.Hold();
  auto letting = std::async(std::launch::async, [&] { return LetIn(**late); });
  EXPECT_FALSE(LetIn(**other).ok());  // the epoch has ended
  EXPECT_EQ((*late)->seat(), std::nullopt);
  relay.HoldUntilAWord();
  const int seat = (*late)->rank();
  EXPECT_EQ((*late)->FailOrGoOn(absl::UnavailableError("server/0: closed")),
            seat);
  EXPECT_FALSE(letting.get().ok());
  auto next = std::async(std::launch::async,
                         [&] { return JoinNextEpoch(*std::move(other)); });
  late = JoinNextEpoch(*std::move(late));
  ASSERT_THAT(late.status(), IsOk());
  EXPECT_EQ((*late)->num_workers(), 3);
  EXPECT_THAT(next.get().status(), IsOk());
  EXPECT_THAT(newcomer.get().status(), IsOk());
}

TEST(WorkerGroupEpochs, AnEpochThatHasNotEndedHasNoNextOne) {
  EXPECT_THAT(JoinNextEpoch(MakeSoloGroup()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "the epoch has not ended: nobody has died, and nobody "
                       "was let in"));
}

}  // namespace
}  // namespace telegrad
