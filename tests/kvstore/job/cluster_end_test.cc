#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/kvstore/job/cluster.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder's tests

// A job of two workers and one server in this process.
class Ends : public ::testing::Test {
 protected:
  void SetUp() override {
    scheduler_ = *Scheduler::Start(LocalJob(2, 1));
    auto w0 = JoinAsync(With(Role::kWorker, 0));
    auto w1 = JoinAsync(With(Role::kWorker, 1));
    auto s0 = JoinAsync(With(Role::kServer, 0));
    Joined joined[] = {w0.get(), w1.get(), s0.get()};
    for (Joined& one : joined) ASSERT_THAT(one, IsOk());
    worker0_ = *std::move(joined[0]);
    worker1_ = *std::move(joined[1]);
    server_ = *std::move(joined[2]);
  }
  JoinRequest With(Role role, int rank) {
    JoinRequest request = MemberOf(*scheduler_, role, rank);
    if (role == Role::kWorker && rank == 0) {
      request.cancellation = cancellation_;
    }
    fatal_.Attach(&request);
    return request;
  }
  FatalLog fatal_;  // of all three
  const std::shared_ptr<Cancellation> cancellation_ =
      std::make_shared<Cancellation>();  // of worker 0
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Job> worker0_, worker1_, server_;
};

TEST_F(Ends, InOrderWhenAllWorkersHaveLeft) {
  EXPECT_THAT(server_->WaitForEnd(Clock::now()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, ""));
  worker0_->Leave();
  worker1_->Leave();
  EXPECT_THAT(server_->WaitForEnd(Clock::now() + kPatience), IsOk());
  EXPECT_THAT(scheduler_->Wait(nullptr), IsOk());
  EXPECT_EQ(fatal_.size(), 0u);
}

TEST_F(Ends, WithTheReasonThatASchedulersProcessHasToEnd) {
  FatalEvent event{.code = ExitCode::kMismatch, .message = "its own server"};
  scheduler_->FailAndTell(event);
  scheduler_.reset();
  const auto events = fatal_.Await(3);
  ASSERT_TRUE(events.has_value());
  for (const FatalEvent& told : *events) {
    EXPECT_EQ(told.code, ExitCode::kMismatch);
    EXPECT_EQ(told.message, event.message);
  }
}

TEST_F(Ends, With20WhenAWorkerClosesWithoutLeaving) {
  worker1_.reset();
  const auto events = fatal_.Await(2);
  ASSERT_TRUE(events.has_value());
  for (const FatalEvent& event : *events) {
    EXPECT_EQ(event.code, ExitCode::kPeerDied);
    ASSERT_EQ(event.dead.size(), 1u);
    EXPECT_EQ(event.dead[0].rfind("worker/1@", 0), 0u);
    EXPECT_GE(event.detect_ms, 0);
  }
  FatalEvent event;
  EXPECT_EQ(ExitCodeOf(scheduler_->Wait(&event)), ExitCode::kPeerDied);
  EXPECT_EQ(fatal_.size(), 2u);
}

TEST_F(Ends, With23WhenAServerDies) {
  server_.reset();
  const auto events = fatal_.Await(2);
  ASSERT_TRUE(events.has_value());
  EXPECT_EQ((*events)[0].code, ExitCode::kServerLost);
}

TEST_F(Ends, With20WhenWorkerAndServerDieTogether) {
  server_.reset();
  worker1_.reset();
  const auto events = fatal_.Await(1);
  ASSERT_TRUE(events.has_value());
  EXPECT_EQ((*events)[0].code, ExitCode::kPeerDied);
  EXPECT_EQ((*events)[0].dead.size(), 2u);
}

TEST_F(Ends, With33WhenAMemberIsCancelled) {
  FatalEvent mine{.code = ExitCode::kCancelled};
  mine.message = "worker 0 was ended by SIGTERM";
  cancellation_->Cancel(mine);
  const auto events = fatal_.Await(3);
  ASSERT_TRUE(events.has_value());
  for (const FatalEvent& event : *events) {
    EXPECT_EQ(event.code, ExitCode::kCancelled);
    EXPECT_EQ(event.message, mine.message);
  }
}

TEST_F(Ends, With24WhenTheSchedulerDies) {
  scheduler_.reset();
  const auto events = fatal_.Await(3);
  ASSERT_TRUE(events.has_value());
  for (const FatalEvent& event : *events) {
    EXPECT_EQ(event.code, ExitCode::kSchedulerLost);
  }
  EXPECT_EQ(ExitCodeOf(server_->WaitForEnd(Clock::now() + kPatience)),
            ExitCode::kSchedulerLost);
}

TEST_F(Ends, ForEveryoneByFail) {
  FatalEvent mine;
  mine.code = ExitCode::kNumericFault;
  mine.message = "NaN in key 3 of worker/0";
  mine.details_json = "{\"key\":3}";
  worker0_->Fail(mine);
  const auto events = fatal_.Await(3);
  ASSERT_TRUE(events.has_value());
  for (const FatalEvent& event : *events) {
    EXPECT_EQ(event.code, mine.code);
    EXPECT_EQ(event.message, mine.message);
    EXPECT_EQ(event.details_json, mine.details_json);
  }
  EXPECT_EQ(ExitCodeOf(worker1_->Gather("g", "", Clock::now()).status()),
            ExitCode::kNumericFault);
}

TEST_F(Ends, WithASuspectedPeerThatStaysAlive) {
  worker0_->SuspectPeer({Role::kServer, 0}, "timed out");
  worker1_->SuspectPeer({Role::kServer, 0}, "timed out");
  const auto events = fatal_.Await(3);
  ASSERT_TRUE(events.has_value());
  int num_fenced = 0;
  for (const FatalEvent& event : *events) {
    num_fenced += event.code == ExitCode::kFenced;
    EXPECT_NE(event.message.find("unreachable from worker/"), std::string::npos)
        << event.message;
  }
  EXPECT_EQ(num_fenced, 1);  // the server itself
}

TEST_F(Ends, GatherGivesAllPayloadsByRank) {
  for (int round = 0; round < 3; ++round) {
    auto other = std::async(std::launch::async, [&] {
      return worker1_->Gather("g", std::string("\0b\n", 3),
                              Clock::now() + kPatience);
    });
    const auto mine = worker0_->Gather("g", "a", Clock::now() + kPatience);
    const std::vector<std::string> expected = {"a", std::string("\0b\n", 3)};
    ASSERT_THAT(mine, IsOk());
    EXPECT_EQ(*mine, expected);
    const auto theirs = other.get();
    ASSERT_THAT(theirs, IsOk());
    EXPECT_EQ(*theirs, expected);
  }
}

TEST_F(Ends, MembersReadWhatOthersPostBeforeAndAfter) {
  const std::string about("\0s\n", 3);
  EXPECT_THAT(server_->Post("about", about), IsOk());
  auto early = std::async(std::launch::async, [&] {
    return server_->Read("plan", Clock::now() + kPatience);
  });
  for (Job* worker : {worker1_.get(), worker0_.get()}) {
    const auto read = worker->Read("about", Clock::now() + kPatience);
    ASSERT_THAT(read, IsOk());
    EXPECT_EQ(*read, about);
  }
  EXPECT_THAT(worker0_->Post("plan", "p"), IsOk());
  const auto plan = early.get();
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(*plan, "p");
}

TEST_F(Ends, ReadSaysWhatNobodyHasPosted) {
  EXPECT_THAT(worker0_->Read("x", Clock::now() + milliseconds(50)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "\"x\": waiting for somebody to post it"));
  EXPECT_THAT(server_->Post("x", "1"), IsOk());
  EXPECT_THAT(worker0_->Read("x", Clock::now() + kPatience), IsOk());
  EXPECT_THAT(worker0_->Post("y", std::string(kMaxGatherBytes + 1, 'y')),
              StatusIs(absl::StatusCode::kInvalidArgument, "1048577 bytes"));
}

TEST_F(Ends, With31WhenANameIsPostedTwice) {
  EXPECT_THAT(worker0_->Post("x", "1"), IsOk());
  EXPECT_THAT(worker1_->Read("x", Clock::now() + kPatience), IsOk());
  EXPECT_THAT(worker1_->Post("x", "2"), IsOk());
  const auto events = fatal_.Await(1);
  ASSERT_TRUE(events.has_value());
  EXPECT_EQ((*events)[0].code, ExitCode::kMismatch);
  EXPECT_NE((*events)[0].message.find("worker/1 posts \"x\", which is there"),
            std::string::npos)
      << (*events)[0].message;
}

TEST_F(Ends, GatherNamesWhoHasNotCome) {
  EXPECT_THAT(worker0_->Gather("g", "", Clock::now() + milliseconds(50)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "worker/1"));
  auto other = std::async(std::launch::async, [&] {
    return worker1_->Gather("h", "", Clock::now() + kPatience);
  });
  EXPECT_THAT(worker0_->Gather("h", "", Clock::now() + kPatience), IsOk());
  EXPECT_THAT(other.get(), IsOk());
}

TEST_F(Ends, With31WhenGathersDiffer) {
  auto other = std::async(std::launch::async, [&] {
    return worker1_->Gather("b", "", Clock::now() + kPatience);
  });
  const auto mine = worker0_->Gather("a", "", Clock::now() + kPatience);
  EXPECT_EQ(ExitCodeOf(mine.status()), ExitCode::kMismatch);
  EXPECT_EQ(ExitCodeOf(other.get().status()), ExitCode::kMismatch);
  const std::string message(mine.status().message());
  for (const char* part : {"worker/0", "worker/1", "\"a\"", "\"b\""}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST(SilentMember, IsDeclaredDeadAndFencedWhenItWakes) {
  auto scheduler = *Scheduler::Start(LocalJob(2, 0));
  FatalLog fatal;
  JoinRequest request = MemberOf(*scheduler, Role::kWorker, 0);
  fatal.Attach(&request);
  auto live = JoinAsync(request);
  auto raw = RawMember::Connect(scheduler->address());
  ASSERT_TRUE(raw->Join({Role::kWorker, 1}));
  const Joined joined = live.get();
  ASSERT_THAT(joined, IsOk());
  const auto events = fatal.Await(1);
  ASSERT_TRUE(events.has_value());
  EXPECT_EQ((*events)[0].code, ExitCode::kPeerDied);
  EXPECT_EQ((*events)[0].dead,
            std::vector<std::string>{"worker/1@rawhost:4242"});
  EXPECT_GE(milliseconds((*events)[0].detect_ms), FastTiming().dead);
  raw->Send(EncodeRecord(BeatRecord{.step = 1}));
  const auto told = raw->NextOf<AbortRecord>();
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->event.code, ExitCode::kFenced);
}

TEST(FatalLine, HasTheContractsFields) {
  FatalEvent event;
  event.code = ExitCode::kPeerDied;
  event.message = "two\nlines \xff";
  event.dead = {"worker/2@h1:77"};
  event.detect_ms = 412;
  event.details_json = "{\"waiting_for\":[2],\"code\":0}";
  event.self = "worker/0";
  event.epoch = 3;
  event.step = 117;
  const std::string line = FatalLine(event);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(line.rfind("{\"event\":\"fatal\",\"code\":20,\"reason\":"
                       "\"peer_died\",\"dead\":[\"worker/2@h1:77\"],"
                       "\"detect_ms\":412,\"epoch\":3,\"step\":117,"
                       "\"self\":\"worker/0\",\"message\":",
                       0),
            0u)
      << line;
  const auto parsed = nlohmann::json::parse(line, nullptr, false);
  ASSERT_TRUE(parsed.is_object());
  EXPECT_EQ(parsed["waiting_for"][0], 2);
  EXPECT_EQ(parsed["code"], 20);
}

}  // namespace
}  // namespace telegrad
