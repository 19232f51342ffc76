#include "kvstore/job/control/scheduler_state.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/exit_code.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;

constexpr ConnectionId kWorkersConnection = 1;
constexpr ConnectionId kServersConnection = 2;

// Of one worker and one server.
SchedulerState RunningJob(TimePoint now) {
  SchedulerState job(SchedulerOptions(), "here", now);
  const auto join = [&](ConnectionId from, Role role) {
    JoinRecord record;
    record.wanted = {role, 0};
    record.host = "there";
    EXPECT_THAT(job.OnRecord(from, {.node = record.wanted}, record, now),
                IsOk());
  };
  join(kWorkersConnection, Role::kWorker);
  join(kServersConnection, Role::kServer);
  EXPECT_EQ(job.phase(), SchedulerState::Phase::kRunning);
  job.TakeSends();
  return job;
}

// Workers, then servers, that have joined; a member's connection is its number.
class JobOfMembers {
 public:
  JobOfMembers(int num_workers, int num_servers, TimePoint now)
      : job_(OptionsOf(num_workers, num_servers), "here", now) {
    for (int i = 0; i < num_workers; ++i) all_.push_back({Role::kWorker, i});
    for (int i = 0; i < num_servers; ++i) all_.push_back({Role::kServer, i});
    for (size_t i = 0; i < all_.size(); ++i) {
      Tell(i, JoinRecord{.wanted = all_[i], .host = "there", .facts = {}}, now);
    }
    job_.Tick(now);
  }

  SchedulerState& job() { return job_; }
  NodeId operator[](size_t member) const { return all_[member]; }
  void Tell(size_t member, const Record& record, TimePoint now) {
    EXPECT_THAT(job_.OnRecord(member, {.node = all_[member]}, record, now),
                IsOk());
  }

 private:
  static SchedulerOptions OptionsOf(int num_workers, int num_servers) {
    SchedulerOptions options;
    options.num_workers = num_workers;
    options.num_servers = num_servers;
    return options;
  }

  SchedulerState job_;
  std::vector<NodeId> all_;
};

absl::Status Post(SchedulerState& job, const std::string& name,
                  const std::string& payload, TimePoint now) {
  return job.OnRecord(kServersConnection, {.node = {Role::kServer, 0}},
                      PostRecord{.name = name, .payload = payload}, now);
}

absl::Status Read(SchedulerState& job, const std::string& name, TimePoint now) {
  return job.OnRecord(kWorkersConnection, {.node = {Role::kWorker, 0}},
                      ReadRecord{.name = name}, now);
}

constexpr int kReads = 2 * kMaxReadsPerMember;  // of two members

TEST(SchedulerState, SendsAllWhoReadTheSameFrame) {
  const TimePoint now = Clock::now();
  const std::string text(100000, 's');
  SchedulerState job = RunningJob(now);
  EXPECT_THAT(Post(job, "a", text, now), IsOk());
  for (int i = 0; i < kReads; ++i) {
    EXPECT_THAT(Read(job, "a", now), IsOk());
  }
  const std::vector<SchedulerState::Delivery> sends = job.TakeSends();
  ASSERT_EQ(sends.size(), static_cast<size_t>(kReads));
  for (const SchedulerState::Delivery& each : sends) {
    EXPECT_EQ(each.to, kWorkersConnection);
    EXPECT_EQ(each.frame, sends[0].frame);
  }
  const auto record = DecodeRecord(sends[0].frame->substr(4));
  ASSERT_THAT(record, IsOk());
  EXPECT_EQ(std::get<GatheredRecord>(*record).payload, text);
}

TEST(SchedulerState, AnswersAReadWhenTheEntryComes) {
  const TimePoint now = Clock::now();
  SchedulerState job = RunningJob(now);
  EXPECT_THAT(Read(job, "a", now), IsOk());
  EXPECT_EQ(job.TakeSends().size(), 0u);
  EXPECT_EQ(ExitCodeOf(Read(job, "b", now)), ExitCode::kMismatch);
  EXPECT_THAT(Post(job, "b", "", now), IsOk());
  EXPECT_EQ(job.TakeSends().size(), 0u);
  EXPECT_THAT(Post(job, "a", "", now), IsOk());
  EXPECT_EQ(job.TakeSends().size(), 1u);
}

TEST(SchedulerState, RefusesTooManyEntries) {
  const TimePoint now = Clock::now();
  SchedulerState job = RunningJob(now);
  for (int i = 0; i < kMaxPosts; ++i) {
    EXPECT_THAT(Post(job, std::to_string(i), "", now), IsOk());
  }
  EXPECT_EQ(ExitCodeOf(Post(job, "more", "", now)), ExitCode::kMismatch);
}

TEST(SchedulerState, NamesTheDeathThatMadeALauncherCancel) {
  const TimePoint now = Clock::now();
  SchedulerState job = RunningJob(now);
  job.OnClosed(1, absl::UnavailableError("closed"), now);
  job.Fail({.code = ExitCode::kCancelled}, now);
  ASSERT_TRUE(job.failure().has_value());
  EXPECT_NE(job.failure()->code, ExitCode::kCancelled);
  EXPECT_EQ(job.failure()->dead.size(), 1u);
}

// What a job of two workers and a server says in so many seconds, if worker 0
// is all that comes.
std::string SaidIn(int seconds, size_t num_workers) {
  TimePoint now = Clock::now();
  SchedulerOptions options;
  options.num_workers = static_cast<int>(num_workers);
  SchedulerState job(options, "here", now);
  JoinRecord join;
  join.wanted = {Role::kWorker, 0};
  EXPECT_THAT(job.OnRecord(1, {.node = join.wanted}, join, now), IsOk());
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 2 * seconds; ++i) {
    now += std::chrono::milliseconds(500);
    EXPECT_THAT(job.OnRecord(1, {.node = join.wanted}, BeatRecord{}, now),
                IsOk());
    job.Tick(now);
  }
  return ::testing::internal::GetCapturedStderr();
}

TEST(SchedulerState, SaysAfterTwoSecondsAndThenEveryTenForWhomItWaits) {
  EXPECT_EQ(SaidIn(1, 2), "");
  const std::string once = SaidIn(11, 2);
  EXPECT_NE(once.find("1 of 3 members are there; waiting 58.0 s at most for "
                      "worker/1, server/0\n"),
            std::string::npos)
      << once;
  EXPECT_EQ(std::count(once.begin(), once.end(), '\n'), 1) << once;
  const std::string many = SaidIn(13, 40);
  EXPECT_EQ(std::count(many.begin(), many.end(), '\n'), 2) << many;
}

// A member whose flags differ wants a place that is taken.
TEST(SchedulerState, EndsWhereARefusedMembersFlagsDifferAndNobodyElseComes) {
  for (const bool is_completed : {false, true}) {
    TimePoint now = Clock::now();
    SchedulerOptions options;
    options.num_workers = 2;
    options.num_servers = 0;
    SchedulerState job(options, "here", now);
    const auto join = [&](ConnectionId from, int rank, const char* servers) {
      JoinRecord record;
      record.wanted = {Role::kWorker, rank};
      record.host = "there";
      record.facts = {{"--servers", servers}};
      return job.OnRecord(from, {.node = record.wanted}, record, now);
    };
    EXPECT_THAT(join(1, 0, "0"), IsOk());
    const absl::Status refused = join(2, 0, "1");
    EXPECT_EQ(ExitCodeOf(refused), ExitCode::kMismatch);
    EXPECT_EQ(refused.message(),
              "--servers: worker/0 has 0, worker/0 has 1; give all the same");
    now += std::chrono::seconds(1);
    if (is_completed) {
      EXPECT_THAT(join(3, 1, "0"), IsOk());
    }
    job.Tick(now);
    EXPECT_FALSE(job.failure().has_value());
    job.Tick(now += std::chrono::seconds(2));
    ASSERT_EQ(job.failure().has_value(), !is_completed);
    if (is_completed) continue;
    EXPECT_EQ(job.failure()->code, ExitCode::kMismatch);
    EXPECT_EQ(job.failure()->message, refused.message());
  }
}

// Its place is none, and who has other flags comes later.
TEST(SchedulerState, EndsWhereTheFirstThatCameWasRefusedAndDiffers) {
  for (const char* servers : {"1", "2"}) {
    TimePoint now = Clock::now();
    SchedulerState job(SchedulerOptions(), "here", now);
    JoinRecord join;
    join.wanted = {Role::kServer, 1};
    join.host = "there";
    join.facts = {{"--servers", "1"}};
    const absl::Status refused =
        job.OnRecord(1, {.node = join.wanted}, join, now);
    EXPECT_EQ(refused.message(), "server/1 wanted, but the job has 1 servers");
    join.wanted = {Role::kWorker, 0};
    join.facts = {{"--servers", servers}};
    EXPECT_THAT(job.OnRecord(2, {.node = join.wanted}, join, now), IsOk());
    job.Tick(now += std::chrono::seconds(3));
    ASSERT_EQ(job.failure().has_value(), servers[0] == '2');
    if (!job.failure().has_value()) continue;
    EXPECT_EQ(job.failure()->code, ExitCode::kMismatch);
    EXPECT_EQ(job.failure()->message,
              "--servers: worker/0 has 2, server/1 has 1; give all the same");
  }
}

TEST(SchedulerState, AServerNeedNotGiveTheFactsOfAWorkerThatIsRefused) {
  const TimePoint now = Clock::now();
  SchedulerOptions options;
  options.num_workers = 2;
  SchedulerState job(options, "here", now);
  JoinRecord join;
  join.wanted = {Role::kServer, 0};
  join.host = "there";
  EXPECT_THAT(job.OnRecord(1, {.node = join.wanted}, join, now), IsOk());
  join.wanted = {Role::kWorker, 2};
  join.facts = {{"--lr", "1"}};
  EXPECT_EQ(job.OnRecord(2, {.node = join.wanted}, join, now).message(),
            "worker/2 wanted, but the job has 2 workers");
}

TEST(SchedulerState, PassesNotesOfWorkersToTheFirst) {
  TimePoint now = Clock::now();
  SchedulerOptions options;
  options.num_workers = 2;
  options.num_servers = 1;
  SchedulerState job(options, "here", now);
  const std::vector<NodeId> members = {
      {Role::kWorker, 1}, {Role::kWorker, 0}, {Role::kServer, 0}};
  const auto tell = [&](size_t member, const Record& record) {
    EXPECT_THAT(job.OnRecord(member, {.node = members[member]}, record, now),
                IsOk());
  };
  for (size_t i = 0; i < members.size(); ++i) {
    JoinRecord join;
    join.wanted = members[i];
    join.host = "there";
    tell(i, join);
  }
  tell(0, BeatRecord{.note = "a"});
  tell(2, BeatRecord{.note = "no worker's"});
  job.TakeSends();
  job.Tick(now += std::chrono::seconds(1));
  const std::vector<SchedulerState::Delivery> sends = job.TakeSends();
  ASSERT_EQ(sends.size(), 3u);
  for (const SchedulerState::Delivery& each : sends) {
    const auto record = DecodeRecord(each.frame->substr(4));
    ASSERT_THAT(record, IsOk());
    EXPECT_EQ(std::get<BeatRecord>(*record).notes,
              each.to == 1 ? std::vector<std::string>({"", "a"})
                           : std::vector<std::string>());
  }
  const std::string long_note(kMaxNoteBytes + 1, 'a');
  EXPECT_FALSE(DecodeRecord(EncodeRecord(BeatRecord{.note = long_note})).ok());
}

TEST(SchedulerState, TellsInABeatAtOnceWhoHasLeftAndSuspectsThatOneNoMore) {
  TimePoint now = Clock::now();
  JobOfMembers members(2, 1, now);
  SchedulerState& job = members.job();
  members.Tell(1, LeaveRecord{}, now);
  job.OnClosed(1, absl::UnavailableError("it has left"), now);
  members.Tell(
      2, SuspectRecord{.peer = members[1], .why = "its connection closed"},
      now);
  job.TakeSends();
  job.Tick(now += std::chrono::milliseconds(10));
  const std::vector<SchedulerState::Delivery> sends = job.TakeSends();
  ASSERT_EQ(sends.size(), 2u);
  for (const SchedulerState::Delivery& each : sends) {
    const auto record = DecodeRecord(each.frame->substr(4));
    ASSERT_THAT(record, IsOk());
    EXPECT_EQ(std::get<BeatRecord>(*record).left, std::vector<int>({1}));
  }
  job.Tick(now += std::chrono::seconds(4));
  EXPECT_EQ(job.phase(), SchedulerState::Phase::kRunning);
  EXPECT_FALSE(DecodeRecord(R"({"t":"beat","step":0,"note":"","notes":[],)"
                            R"("left":[-1]})")
                   .ok());
}

// Who is named where data connections end and all beats come: of 2 workers and
// 2 servers (members 2 and 3), after each of (from, who).
std::string NamedAfter(const std::vector<std::pair<size_t, size_t>>& lost) {
  TimePoint now = Clock::now();
  JobOfMembers members(2, 2, now);
  SchedulerState& job = members.job();
  for (const auto& [from, who] : lost) {
    members.Tell(from, SuspectRecord{.peer = members[who], .why = "no answer"},
                 now);
  }
  for (int i = 0; i < 30 && !job.failure().has_value(); ++i) {
    job.Tick(now += std::chrono::milliseconds(100));
  }
  if (!job.failure().has_value()) return "nobody";
  EXPECT_EQ(job.failure()->dead.size(), 1u) << job.failure()->message;
  return job.failure()->dead[0].substr(0, job.failure()->dead[0].find('@'));
}

TEST(SchedulerState, NamesWhoIsCutOffAndNotWhomItNoMoreReaches) {
  EXPECT_EQ(NamedAfter({{1, 2}}), "worker/1");
  EXPECT_EQ(NamedAfter({{2, 1}}), "worker/1");
  EXPECT_EQ(NamedAfter({{1, 2}, {2, 1}}), "worker/1");
  EXPECT_EQ(NamedAfter({{1, 2}, {1, 3}, {2, 1}, {3, 1}}), "worker/1");
  EXPECT_EQ(NamedAfter({{0, 2}, {1, 2}}), "server/0");
  EXPECT_EQ(NamedAfter({{2, 0}, {2, 1}, {0, 2}}), "server/0");
}

// So that who comes through a gather in the scheduler's process, and ends it,
// knows that the others come through, too.
TEST(SchedulerState, AnswersThoseOfItsOwnProcessLast) {
  const TimePoint now = Clock::now();
  SchedulerOptions options;
  options.num_workers = 3;
  options.num_servers = 0;
  SchedulerState job(options, "here", now);
  const auto tell = [&](int rank, const Record& record) {
    EXPECT_THAT(job.OnRecord(static_cast<ConnectionId>(rank),
                             {.node = {Role::kWorker, rank}}, record, now),
                IsOk());
  };
  for (const int rank : {0, 1, 2}) {
    tell(rank, JoinRecord{.wanted = {Role::kWorker, rank},
                          .host = "here",
                          .pid = rank == 0 ? getpid() : 1,
                          .facts = {}});
  }
  EXPECT_EQ(job.TakeSends().back().to, 0u);
  for (const int rank : {0, 1, 2})
    tell(rank, GatherRecord{.name = "step", .payload = ""});
  std::vector<ConnectionId> order;
  for (const SchedulerState::Delivery& each : job.TakeSends()) {
    order.push_back(each.to);
  }
  EXPECT_EQ(order, std::vector<ConnectionId>({1, 2, 1, 2, 1, 2, 0, 0, 0}));
}

TEST(SchedulerState, RefusesAMemberThatReadsTooOften) {
  const TimePoint now = Clock::now();
  SchedulerState job = RunningJob(now);
  EXPECT_THAT(Post(job, "a", "", now), IsOk());
  for (int i = 0; i < kReads; ++i) EXPECT_THAT(Read(job, "a", now), IsOk());
  EXPECT_EQ(ExitCodeOf(Read(job, "a", now)), ExitCode::kMismatch);
}

}  // namespace
}  // namespace telegrad
