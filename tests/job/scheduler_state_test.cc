#include "transport/job/scheduler_state.h"

#include <gtest/gtest.h>

#include <string>

#include "base/exit_code.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;

constexpr ConnectionId kWorkersConnection = 1;
constexpr ConnectionId kServersConnection = 2;

// Of one worker and one server, which shares `shared`.
SchedulerState RunningJob(const std::string& shared, TimePoint now) {
  SchedulerState job(SchedulerOptions(), "here", now);
  const auto join = [&](ConnectionId from, Role role) {
    JoinRecord record;
    record.wanted = {role, 0};
    record.host = "there";
    if (role == Role::kServer) record.shared = shared;
    EXPECT_THAT(job.OnRecord(from, {.node = record.wanted}, record, now),
                IsOk());
  };
  join(kWorkersConnection, Role::kWorker);
  join(kServersConnection, Role::kServer);
  EXPECT_EQ(job.phase(), SchedulerState::Phase::kRunning);
  job.TakeSends();
  return job;
}

absl::Status Ask(SchedulerState& job, TimePoint now) {
  return job.OnRecord(kWorkersConnection, {.node = {Role::kWorker, 0}},
                      AskRecord{.rank = 0}, now);
}

TEST(SchedulerState, SendsAllWhoAskTheSameFrame) {
  const TimePoint now = Clock::now();
  const std::string shared(100000, 's');
  SchedulerState job = RunningJob(shared, now);
  for (int i = 0; i < kMaxAsksPerServer; ++i) {
    EXPECT_THAT(Ask(job, now), IsOk());
  }
  const std::vector<SchedulerState::Delivery> sends = job.TakeSends();
  ASSERT_EQ(sends.size(), static_cast<size_t>(kMaxAsksPerServer));
  for (const SchedulerState::Delivery& each : sends) {
    EXPECT_EQ(each.to, kWorkersConnection);
    EXPECT_EQ(each.frame, sends[0].frame);
  }
  const auto record = DecodeRecord(sends[0].frame->substr(4));
  ASSERT_THAT(record, IsOk());
  EXPECT_EQ(std::get<GatheredRecord>(*record).payload, shared);
}

TEST(SchedulerState, NamesTheDeathThatMadeALauncherCancel) {
  const TimePoint now = Clock::now();
  SchedulerState job = RunningJob("s", now);
  job.OnClosed(1, "closed", now);
  job.Fail({.code = ExitCode::kCancelled}, now);
  EXPECT_TRUE(job.has_failed());
  EXPECT_NE(job.event().code, ExitCode::kCancelled);
  EXPECT_EQ(job.event().dead.size(), 1u);
}

TEST(SchedulerState, RefusesAWorkerThatAsksTooOften) {
  const TimePoint now = Clock::now();
  SchedulerState job = RunningJob("s", now);
  for (int i = 0; i < kMaxAsksPerServer; ++i) {
    EXPECT_THAT(Ask(job, now), IsOk());
  }
  EXPECT_EQ(ExitCodeOf(Ask(job, now)), ExitCode::kMismatch);
}

}  // namespace
}  // namespace telegrad
