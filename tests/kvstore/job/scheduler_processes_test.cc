#include <gtest/gtest.h>

#include "base/exit_code.h"
#include "kvstore/job/control/elastic.h"
#include "kvstore/job/control/scheduler_state.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;

// A job of one worker, which has its server in its own process.
class JobOfOneProcess {
 public:
  // The exit code that it is refused with. Its connection is `pid`, of a
  // worker; of the server beside it, 100 more.
  ExitCode Join(Role role, int pid) {
    JoinRecord join = {
        .wanted = {role, -1}, .host = "there", .pid = pid, .facts = {}};
    if (role == Role::kServer) join.facts = {{kPartFact, "worker"}};
    const absl::Status joined = job_.OnRecord(
        ConnectionOf(role, pid), {.node = join.wanted}, join, now_);
    return joined.ok() ? ExitCode::kOk : ExitCodeOf(joined);
  }
  SchedulerState& job() { return job_; }

  static ConnectionId ConnectionOf(Role role, int pid) {
    return static_cast<ConnectionId>(role == Role::kWorker ? pid : pid + 100);
  }

 private:
  const TimePoint now_ = Clock::now();
  SchedulerState job_{SchedulerOptions(), "here", now_};
};

TEST(SchedulerProcesses, RefusesTheServerOfAWorkerThatIsTooMany) {
  JobOfOneProcess one;
  EXPECT_EQ(one.Join(Role::kServer, 7), ExitCode::kOk);
  EXPECT_EQ(one.Join(Role::kWorker, 1), ExitCode::kOk);
  EXPECT_EQ(one.Join(Role::kWorker, 7), ExitCode::kMismatch);
  const std::vector<SchedulerState::Delivery> sends = one.job().TakeSends();
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].to, JobOfOneProcess::ConnectionOf(Role::kServer, 7));
  const auto record = DecodeRecord(sends[0].frame->substr(4));
  ASSERT_THAT(record, IsOk());
  EXPECT_EQ(std::get<RefuseRecord>(*record).code,
            static_cast<int>(ExitCode::kMismatch));
  // What it still says ends nothing, and its place is free.
  EXPECT_THAT(
      one.job().OnRecord(sends[0].to, {.node = {Role::kServer, -1}},
                         FailRecord{.event = {.code = ExitCode::kCancelled}},
                         Clock::now()),
      IsOk());
  EXPECT_EQ(one.Join(Role::kServer, 1), ExitCode::kOk);
  EXPECT_EQ(one.job().phase(), SchedulerState::Phase::kRunning);
}

TEST(SchedulerProcesses, RefusesTheServerOfAWorkerThatWasRefusedBefore) {
  JobOfOneProcess one;
  EXPECT_EQ(one.Join(Role::kWorker, 1), ExitCode::kOk);
  EXPECT_EQ(one.Join(Role::kWorker, 7), ExitCode::kMismatch);
  EXPECT_EQ(one.Join(Role::kServer, 7), ExitCode::kMismatch);
  EXPECT_EQ(one.Join(Role::kServer, 1), ExitCode::kOk);
  EXPECT_EQ(one.job().phase(), SchedulerState::Phase::kRunning);
}

TEST(SchedulerProcesses, RefusesTheWorkerOfAServerThatIsTooMany) {
  JobOfOneProcess one;
  EXPECT_EQ(one.Join(Role::kServer, 7), ExitCode::kOk);
  EXPECT_EQ(one.Join(Role::kWorker, 1), ExitCode::kOk);
  EXPECT_EQ(one.Join(Role::kServer, 1), ExitCode::kMismatch);
  EXPECT_EQ(one.Join(Role::kWorker, 7), ExitCode::kOk);
  EXPECT_EQ(one.job().phase(), SchedulerState::Phase::kRunning);
}

// One that comes in as an epoch begins, and is taken out as the other member of
// its process is refused, is waited for until the deadline, and no longer.
TEST(SchedulerProcesses, WaitsWithAnEndForWhoWasTakenOut) {
  TimePoint now = Clock::now();
  SchedulerOptions options;
  options.num_workers = 1;
  options.num_servers = 0;
  SchedulerState job(options, "here", now);
  ConnectionId last = 0;
  const auto join = [&](Role role, int pid, int rank = -1) {
    JoinRecord record = {.wanted = {role, rank},
                         .host = "there",
                         .pid = pid,
                         .facts = {{kElasticFact, "1:2"}}};
    return job.OnRecord(++last, {.node = record.wanted}, record, now);
  };
  EXPECT_THAT(join(Role::kWorker, 1), IsOk());
  EXPECT_EQ(job.phase(), SchedulerState::Phase::kRunning);
  EXPECT_THAT(join(Role::kWorker, 7), IsOk());
  EXPECT_THAT(
      job.OnRecord(
          1, {.node = {Role::kWorker, 0}},
          GatherRecord{.name = std::string(kLettingIn), .payload = "p"}, now),
      IsOk());
  EXPECT_EQ(job.phase(), SchedulerState::Phase::kJoining);
  EXPECT_FALSE(join(Role::kServer, 7).ok());
  EXPECT_THAT(join(Role::kWorker, 1, 0), IsOk());
  for (int i = 0; i < 200 && !job.failure().has_value(); ++i) {
    now += std::chrono::milliseconds(900);
    EXPECT_THAT(
        job.OnRecord(last, {.node = {Role::kWorker, 0}}, BeatRecord(), now),
        IsOk());
    job.Tick(now);
  }
  ASSERT_TRUE(job.failure().has_value());
  EXPECT_EQ(job.failure()->code, ExitCode::kJoinTimeout)
      << job.failure()->message;
}

}  // namespace
}  // namespace telegrad
