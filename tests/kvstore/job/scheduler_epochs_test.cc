#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "kvstore/job/control/scheduler_state.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using std::chrono::milliseconds;
using testing::IsOk;
using testing::StatusIs;

// An elastic job of workers, then servers; a member's first connection is its
// number, its next one a hundred more.
class ElasticJob {
 public:
  // With `has_parts` a server is in the process of the worker of its rank.
  ElasticJob(int num_workers, int num_servers, const std::string& limits,
             bool has_parts = false)
      : has_parts_(has_parts),
        job_({.num_workers = num_workers, .num_servers = num_servers}, "here",
             now_),
        facts_({{kElasticFact, limits}}) {
    for (int i = 0; i < num_workers; ++i) all_.push_back({Role::kWorker, i});
    for (int i = 0; i < num_servers; ++i) all_.push_back({Role::kServer, i});
    for (size_t i = 0; i < all_.size(); ++i) EXPECT_THAT(Join(i, i), IsOk());
    Take();
  }

  absl::Status Join(size_t member, ConnectionId connection) {
    JoinRecord join;
    join.wanted = all_[member];
    join.host = "there";
    join.pid = 1 + (has_parts_ ? all_[member].rank : static_cast<int>(member));
    if (join.wanted.role == Role::kWorker) join.facts = facts_;
    connection_[member] = connection;
    return job_.OnRecord(connection, {.node = join.wanted}, join, now_);
  }
  absl::Status JoinAgain(size_t member) {
    return Join(member, connection_[member] + 100);
  }
  void Close(size_t member) {
    job_.OnClosed(connection_[member], absl::UnavailableError("gone"), now_);
  }

  void Pass(Duration time) {
    const TimePoint end = now_ + time;
    while (now_ < end) {
      now_ += milliseconds(50);
      for (const auto& [member, connection] : connection_) {
        if (silent.contains(member)) continue;
        job_.OnRecord(connection, {.node = all_[member]}, BeatRecord{}, now_)
            .IgnoreError();
      }
      job_.Tick(now_);
    }
  }

  // What a connection has been sent since the last call, without beats.
  std::map<ConnectionId, std::vector<Record>> Take() {
    std::map<ConnectionId, std::vector<Record>> sent;
    for (const auto& each : job_.TakeSends()) {
      const auto record = DecodeRecord(each.frame->substr(4));
      EXPECT_THAT(record, IsOk());
      if (std::holds_alternative<BeatRecord>(*record)) continue;
      sent[each.to].push_back(*record);
    }
    return sent;
  }

  // These are at the gather in which newcomers come in.
  void LetIn(const std::vector<size_t>& workers) {
    for (const size_t member : workers) {
      EXPECT_THAT(job_.OnRecord(connection_[member], {.node = all_[member]},
                                GatherRecord{kLettingIn, ""}, now_),
                  IsOk());
    }
  }
  // How many newcomers worker 0 was told of last.
  int Newcomers() {
    int newcomers = 0;
    for (const auto& each : job_.TakeSends()) {
      const auto record = DecodeRecord(each.frame->substr(4));
      const auto* beat = std::get_if<BeatRecord>(&*record);
      if (each.to == connection_[0] && beat != nullptr) {
        newcomers = beat->newcomers;
      }
    }
    return newcomers;
  }

  SchedulerState& job() { return job_; }
  std::set<size_t> silent;

 private:
  const bool has_parts_;
  TimePoint now_ = Clock::now();
  SchedulerState job_;
  const Facts facts_;
  std::vector<NodeId> all_;
  std::map<size_t, ConnectionId> connection_;
};

const FatalEvent& EventIn(const std::vector<Record>& records) {
  return std::get<AbortRecord>(records.at(0)).event;
}
const StartRecord& StartIn(const std::vector<Record>& records) {
  return std::get<StartRecord>(records.at(1));
}

// Who wants to come into a job, from connections of its own.
struct Newcomer {
  explicit Newcomer(std::string limits, int rank = -1) {
    join.wanted = {Role::kWorker, rank};
    join.host = "elsewhere";
    join.pid = 77;
    join.facts = {{kElasticFact, std::move(limits)}};
  }
  absl::Status Come(ElasticJob& job, ConnectionId from) {
    return job.job().OnRecord(from, {.node = join.wanted}, join, Clock::now());
  }
  JoinRecord join;
};

TEST(SchedulerEpochs, TheLivingJoinAgainAndGetRanksWithoutGaps) {
  ElasticJob job(4, 1, "2");
  job.Close(1);
  job.silent = {1};
  job.Pass(milliseconds(300));
  auto sent = job.Take();
  ASSERT_EQ(sent.size(), 4u);  // the dead one is told nothing
  for (const size_t member : {0, 2, 3, 4}) {
    const FatalEvent& event = EventIn(sent[member]);
    EXPECT_EQ(event.code, ExitCode::kPeerDied);
    EXPECT_EQ(event.seat, member == 4 ? 0 : static_cast<int>(member));
    EXPECT_EQ(event.dead, std::vector<std::string>({"worker/1@there:2"}));
  }
  EXPECT_FALSE(job.job().failure().has_value());
  for (const size_t member : {3, 0, 4, 2}) {
    EXPECT_EQ(job.job().phase(), SchedulerState::Phase::kJoining);
    EXPECT_THAT(job.JoinAgain(member), IsOk());
  }
  sent = job.Take();
  EXPECT_EQ(job.job().phase(), SchedulerState::Phase::kRunning);
  const std::map<ConnectionId, int> ranks = {
      {100, 0}, {102, 1}, {103, 2}, {104, 0}};
  for (const auto& [connection, rank] : ranks) {
    EXPECT_EQ(std::get<RankRecord>(sent[connection].at(0)).rank, rank);
    const StartRecord& start = StartIn(sent[connection]);
    EXPECT_EQ(start.epoch, 2u);
    ASSERT_EQ(start.workers.size(), 3u);
    EXPECT_EQ(start.workers[1].pid, 3);
    EXPECT_EQ(start.servers.size(), 1u);
  }
}

TEST(SchedulerEpochs, FewerThanTheLeastEndTheJob) {
  ElasticJob job(3, 1, "2");
  for (const size_t member : {0, 2}) job.Close(member);
  job.silent = {0, 2};
  job.Pass(milliseconds(300));
  ASSERT_TRUE(job.job().failure().has_value());
  const FatalEvent& failure = *job.job().failure();
  EXPECT_EQ(failure.code, ExitCode::kPeerDied);
  EXPECT_EQ(failure.details_json,
            R"({"below_min_workers":{"left":1,"min":2}})");
  EXPECT_NE(failure.message.find("below_min_workers: 1 is left"),
            std::string::npos);
  EXPECT_EQ(EventIn(job.Take()[1]).seat, -1);
}

TEST(SchedulerEpochs, WithoutTheFactAndBeforeTheStartADeathIsTheEnd) {
  ElasticJob job(2, 1, "0");  // which is no limit
  job.Close(1);
  job.Pass(milliseconds(300));
  EXPECT_TRUE(job.job().failure().has_value());
}

TEST(SchedulerEpochs, WhoDiesBeforeItHasJoinedAgainIsNotWaitedForAsLong) {
  ElasticJob job(4, 1, "2");
  job.Close(3);
  job.silent = {3};
  job.Pass(milliseconds(300));
  for (const size_t member : {0, 1, 4}) {
    EXPECT_THAT(job.JoinAgain(member), IsOk());
  }
  // One that has joined, and then one that never does.
  job.Close(1);
  job.silent = {1, 2, 3};
  job.Pass(milliseconds(300));
  EXPECT_EQ(job.job().phase(), SchedulerState::Phase::kJoining);
  EXPECT_FALSE(job.job().failure().has_value());
  job.Take();
  job.Pass(std::chrono::seconds(61));
  ASSERT_TRUE(job.job().failure().has_value());
  EXPECT_NE(job.job().failure()->message.find(
                "worker/2@there:3: has not joined again"),
            std::string::npos)
      << job.job().failure()->message;
}

TEST(SchedulerEpochs, OneThatStoppedIsFencedAndTakesNoSeat) {
  ElasticJob job(3, 1, "1");
  job.silent = {1};
  job.Pass(std::chrono::seconds(11));
  auto sent = job.Take();
  EXPECT_EQ(EventIn(sent[1]).code, ExitCode::kFenced);
  EXPECT_EQ(EventIn(sent[0]).seat, 0);
  // What it says is no error, as is what others still say over their old ones.
  job.silent.clear();
  job.Pass(milliseconds(100));
  EXPECT_EQ(ExitCodeOf(job.JoinAgain(1)), ExitCode::kFenced);
  for (const size_t member : {0, 2, 3}) {
    EXPECT_THAT(job.JoinAgain(member), IsOk());
  }
  EXPECT_EQ(job.job().phase(), SchedulerState::Phase::kRunning);
  // Another process with its host's name and pid, as in a Pod, is another one.
  Newcomer newcomer("1", 1);
  newcomer.join.host = "there";
  newcomer.join.pid = 2;
  newcomer.join.born = 1;
  EXPECT_THAT(newcomer.Come(job, 900), IsOk());
}

TEST(SchedulerEpochs, OneInPlaceOfADeadOneComesInWhereWorkersLetItIn) {
  ElasticJob job(3, 1, "1");
  Newcomer newcomer("1");
  const absl::Status all_there = newcomer.Come(job, 900);
  EXPECT_EQ(ExitCodeOf(all_there), ExitCode::kMismatch);
  EXPECT_THAT(all_there,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "one worker too many: the job takes 3 at most"));
  job.Close(1);
  // It may be there before the verdict on the death.
  EXPECT_THAT(newcomer.Come(job, 901), IsOk());
  job.job().OnClosed(901, absl::UnavailableError("gone"), Clock::now());
  job.silent = {1};
  job.Pass(milliseconds(300));
  for (const size_t member : {0, 2, 3}) {
    EXPECT_THAT(job.JoinAgain(member), IsOk());
  }
  job.Take();
  EXPECT_EQ(ExitCodeOf(Newcomer("2").Come(job, 902)), ExitCode::kMismatch);
  EXPECT_EQ(ExitCodeOf(Newcomer("1", 0).Come(job, 903)), ExitCode::kMismatch);
  EXPECT_THAT(newcomer.Come(job, 904), IsOk());
  job.job().Tick(Clock::now());
  EXPECT_EQ(job.job().phase(), SchedulerState::Phase::kRunning);
  EXPECT_EQ(ExitCodeOf(Newcomer("1").Come(job, 905)), ExitCode::kMismatch);
  EXPECT_EQ(job.Newcomers(), 1);
  job.silent = {1};
  job.LetIn({0, 2});
  EXPECT_EQ(EventIn(job.Take()[102]).message,
            "worker@elsewhere:77 has joined the job");
  for (const size_t member : {0, 2, 3}) {
    EXPECT_THAT(job.JoinAgain(member), IsOk());
  }
  EXPECT_EQ(job.job().phase(), SchedulerState::Phase::kRunning);
  auto sent = job.Take();
  EXPECT_EQ(std::get<RankRecord>(sent[904].at(0)).rank, 1);
  EXPECT_EQ(StartIn(sent[904]).workers.size(), 3u);
  EXPECT_EQ(StartIn(sent[904]).epoch, 3u);
}

TEST(SchedulerEpochs, MoreThanThereWereMayComeUpToTheMost) {
  ElasticJob job(2, 2, "1:3", /*has_parts=*/true);
  Newcomer worker("1:3");
  Newcomer part("1:3");
  part.join.wanted.role = Role::kServer;
  EXPECT_THAT(worker.Come(job, 900), IsOk());
  job.Pass(std::chrono::seconds(1));
  EXPECT_EQ(job.Newcomers(), 0);  // its part is missing
  job.LetIn({0, 1});
  EXPECT_TRUE(std::holds_alternative<GatheredRecord>(job.Take()[0].at(0)));
  EXPECT_THAT(part.Come(job, 901), IsOk());
  EXPECT_EQ(ExitCodeOf(Newcomer("1:3").Come(job, 902)), ExitCode::kMismatch);
  job.Pass(std::chrono::seconds(1));
  EXPECT_EQ(job.Newcomers(), 2);
  job.LetIn({0, 1});
  for (const size_t member : {0, 1, 2, 3}) {
    EXPECT_THAT(job.JoinAgain(member), IsOk());
  }
  auto sent = job.Take();
  EXPECT_EQ(EventIn(sent[0]).message, "worker@elsewhere:77 has joined the job");
  EXPECT_EQ(std::get<RankRecord>(sent[900].at(0)).rank, 2);
  EXPECT_EQ(std::get<RankRecord>(sent[901].at(0)).rank, 2);
  EXPECT_EQ(StartIn(sent[100]).workers.size(), 3u);
  EXPECT_EQ(StartIn(sent[100]).servers.size(), 3u);
}

TEST(SchedulerEpochs, ANewcomerNeedsNoServerWhereNotAllWorkersHaveOne) {
  ElasticJob job(2, 1, "1:3", /*has_parts=*/true);
  EXPECT_THAT(Newcomer("1:3").Come(job, 900), IsOk());
  job.Pass(std::chrono::seconds(1));
  EXPECT_EQ(job.Newcomers(), 1);
}

TEST(SchedulerEpochs, WhoWaitsIsToldHowTheJobEnds) {
  ElasticJob job(1, 1, "1:2");
  Newcomer newcomer("1:2");
  EXPECT_THAT(newcomer.Come(job, 900), IsOk());
  EXPECT_THAT(job.job().OnRecord(0, {.node = {Role::kWorker, 0}}, LeaveRecord{},
                                 Clock::now()),
              IsOk());
  const auto sent = job.Take();
  EXPECT_EQ(std::get<RefuseRecord>(sent.at(900).at(0)).code,
            static_cast<int>(ExitCode::kJoinTimeout));
}

TEST(SchedulerEpochs, ServersMayDieButNotAllAndAPartDiesWithItsWorker) {
  {
    ElasticJob job(2, 2, "1");
    job.Close(2);
    job.silent = {2};
    job.Pass(milliseconds(300));
    EXPECT_EQ(EventIn(job.Take()[3]).seat, 1);
  }
  {
    ElasticJob job(3, 3, "1", /*has_parts=*/true);
    job.Close(1);  // and its other connection is not closed yet
    job.silent = {1};
    job.Pass(milliseconds(300));
    EXPECT_EQ(EventIn(job.Take()[5]).seat, 2);
    for (const size_t member : {0, 2, 3, 5}) {
      EXPECT_THAT(job.JoinAgain(member), IsOk());
    }
    EXPECT_EQ(job.job().phase(), SchedulerState::Phase::kRunning);
  }
  {
    ElasticJob job(2, 1, "1");
    job.Close(2);
    job.Pass(milliseconds(300));
    ASSERT_TRUE(job.job().failure().has_value());
    EXPECT_EQ(job.job().failure()->code, ExitCode::kServerLost);
  }
}

TEST(SchedulerEpochs, ANewcomerThatDiffersEndsAloneUntilItIsInStep) {
  for (const bool is_in_step : {false, true}) {
    SCOPED_TRACE(is_in_step);
    ElasticJob job(2, 1, "1:3");
    EXPECT_THAT(Newcomer("1:3").Come(job, 900), IsOk());
    job.LetIn({0, 1});
    for (const size_t member : {0, 1, 2}) {
      EXPECT_THAT(job.JoinAgain(member), IsOk());
    }
    const auto say = [&](ConnectionId from, const Record& record) {
      EXPECT_THAT(job.job().OnRecord(from, {.node = {Role::kWorker}}, record,
                                     Clock::now()),
                  IsOk());
    };
    if (is_in_step) {
      for (const ConnectionId each : {100, 101, 900}) {
        say(each, GatherRecord{kLettingIn, ""});
      }
    }
    job.Take();
    FatalEvent differs{.code = ExitCode::kMismatch};
    differs.message = "w: worker/0 has 2, worker/2 has 3";
    say(100, FailRecord{differs});
    say(900, FailRecord{differs});
    job.Pass(milliseconds(300));
    auto sent = job.Take();
    EXPECT_EQ(EventIn(sent[900]).code, ExitCode::kMismatch);
    EXPECT_EQ(job.job().failure().has_value(), is_in_step);
    const FatalEvent& others = EventIn(sent[100]);
    EXPECT_EQ(others.seat, is_in_step ? -1 : 0);
    EXPECT_NE(others.message.find(differs.message), std::string::npos);
  }
}

TEST(SchedulerEpochs, WhoHasLeftDoesNotComeBackForOthers) {
  ElasticJob job(3, 1, "1");
  EXPECT_THAT(job.job().OnRecord(0, {.node = {Role::kWorker, 0}}, LeaveRecord{},
                                 Clock::now()),
              IsOk());
  job.Close(1);
  job.silent = {0, 1};
  job.Pass(milliseconds(300));
  ASSERT_TRUE(job.job().failure().has_value());
  EXPECT_EQ(job.job().failure()->code, ExitCode::kPeerDied);
}

}  // namespace
}  // namespace telegrad
