#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "tests/kvstore/job/cluster.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder's tests

std::string Message(const Joined& joined) {
  return std::string(joined.status().message());
}

TEST(Join, HonoursWantedRanksAndFillsTheOthers) {
  auto scheduler = *Scheduler::Start(LocalJob(3, 1));
  JoinRequest zero = MemberOf(*scheduler, Role::kWorker, 0);
  JoinRequest server = MemberOf(*scheduler, Role::kServer);
  auto any = JoinAsync(MemberOf(*scheduler, Role::kWorker));
  auto two = JoinAsync(MemberOf(*scheduler, Role::kWorker, 2));
  auto first = JoinAsync(zero);
  auto aside = JoinAsync(server);
  const Joined members[] = {any.get(), two.get(), first.get(), aside.get()};
  const int ranks[] = {1, 2, 0, 0};
  for (int i = 0; i < 4; ++i) {
    ASSERT_THAT(members[i], IsOk());
    const Membership& seen = (*members[i])->membership();
    EXPECT_EQ(seen.self.rank, ranks[i]);
    EXPECT_EQ(seen.epoch, 1u);
    EXPECT_EQ(seen.workers.size(), 3u);
    ASSERT_EQ(seen.servers.size(), 1u);
    EXPECT_EQ(seen.workers[2].pid, getpid());
  }
}

TEST(Join, DifferentFactsEndEveryoneWithBothValues) {
  auto scheduler = *Scheduler::Start(LocalJob(2, 1));
  JoinRequest a = MemberOf(*scheduler, Role::kWorker, 0);
  JoinRequest b = MemberOf(*scheduler, Role::kWorker, 1);
  a.facts = {{"codec", "2bit"}, {"threshold", "0.5"}};
  b.facts = {{"codec", "2bit"}, {"threshold", "0.25"}};
  auto one = JoinAsync(a), two = JoinAsync(b),
       three = JoinAsync(MemberOf(*scheduler, Role::kServer));
  for (const Joined& joined : {one.get(), two.get(), three.get()}) {
    EXPECT_EQ(ExitCodeOf(joined.status()), ExitCode::kMismatch);
    EXPECT_EQ(
        Message(joined),
        "threshold: worker/0 has 0.5, worker/1 has 0.25; give all the same");
  }
  FatalEvent event;
  EXPECT_EQ(ExitCodeOf(scheduler->Wait(&event)), ExitCode::kMismatch);
}

TEST(Join, TriesEachAddressOfAName) {
  const auto addresses = Resolve("localhost", 1);
  ASSERT_THAT(addresses, IsOk());
  if (addresses->size() < 2 || ToString(addresses->front()) != "[::1]:1") {
    GTEST_SKIP() << "localhost is not ::1 and 127.0.0.1 here";
  }
  auto scheduler = *Scheduler::Start(LocalJob(1, 0));
  JoinRequest request = MemberOf(*scheduler, Role::kWorker);
  const int port = ParseHostPort(scheduler->address())->port;
  const auto silent = ListenOn(*ParseIp("::1", port));  // that never answers
  ASSERT_THAT(silent, IsOk());
  request.scheduler_address = FormatHostPort("localhost", port);
  request.timing.join = seconds(2);
  EXPECT_THAT(JoinAsync(request).get(), IsOk());
}

TEST(Join, AServerMayGiveFewerFacts) {
  auto scheduler = *Scheduler::Start(LocalJob(1, 1));
  JoinRequest a = MemberOf(*scheduler, Role::kWorker);
  JoinRequest b = MemberOf(*scheduler, Role::kServer);
  a.facts = {{"codec", "2bit"}, {"threshold", "0.5"}};
  b.facts = {{"codec", "2bit"}};
  auto one = JoinAsync(a), two = JoinAsync(b);
  EXPECT_THAT(one.get(), IsOk());
  EXPECT_THAT(two.get(), IsOk());
}

TEST(Join, TheDeadlineNamesWhoIsMissingAndWhoIsThere) {
  SchedulerOptions options = LocalJob(3, 1);
  options.timing.join = seconds(3);  // in which two have joined
  auto scheduler = *Scheduler::Start(options);
  auto zero = JoinAsync(MemberOf(*scheduler, Role::kWorker, 0));
  auto one = JoinAsync(MemberOf(*scheduler, Role::kWorker, 1));
  for (const Joined& joined : {zero.get(), one.get()}) {
    EXPECT_EQ(ExitCodeOf(joined.status()), ExitCode::kJoinTimeout);
    EXPECT_NE(Message(joined).find("missing: worker/2, server/0"),
              std::string::npos)
        << Message(joined);
    EXPECT_NE(Message(joined).find("worker/1@"), std::string::npos);
  }
}

TEST(Join, DuplicateAndSurplusAreRefusedWithoutHarm) {
  auto scheduler = *Scheduler::Start(LocalJob(2, 0));
  FatalLog fatal;
  JoinRequest zero = MemberOf(*scheduler, Role::kWorker, 0);
  fatal.Attach(&zero);
  auto first = JoinAsync(zero);
  // Whichever of the two comes second is refused; then only one is there.
  auto second = JoinAsync(zero);
  while (first.wait_for(milliseconds(1)) != std::future_status::ready &&
         second.wait_for(milliseconds(1)) != std::future_status::ready) {
  }
  const bool is_first_refused =
      first.wait_for(seconds(0)) == std::future_status::ready;
  const Joined refused = (is_first_refused ? first : second).get();
  EXPECT_EQ(ExitCodeOf(refused.status()), ExitCode::kMismatch);
  EXPECT_NE(Message(refused).find("duplicate rank"), std::string::npos);
  const Joined outside = Job::Join(MemberOf(*scheduler, Role::kWorker, 2));
  EXPECT_EQ(ExitCodeOf(outside.status()), ExitCode::kMismatch);
  Joined one = Job::Join(MemberOf(*scheduler, Role::kWorker, 1));
  ASSERT_THAT(one, IsOk());
  Joined kept = (is_first_refused ? second : first).get();
  ASSERT_THAT(kept, IsOk());
  const Joined late = Job::Join(MemberOf(*scheduler, Role::kWorker));
  EXPECT_EQ(ExitCodeOf(late.status()), ExitCode::kMismatch);
  (*one)->Leave();
  (*kept)->Leave();
  EXPECT_THAT(scheduler->Wait(nullptr), IsOk());
  EXPECT_EQ(fatal.size(), 0u);
}

TEST(Join, FreesThePortForTheNextJobWhenAllAreThere) {
  SchedulerOptions options = LocalJob(1, 0);
  options.frees_port = true;
  auto scheduler = *Scheduler::Start(options);
  options.port = ParseHostPort(scheduler->address())->port;
  EXPECT_THAT(Scheduler::Start(options),
              StatusIs(absl::StatusCode::kAlreadyExists, "another process"));
  const Joined one = Job::Join(MemberOf(*scheduler, Role::kWorker));
  ASSERT_THAT(one, IsOk());
  const auto next = Scheduler::Start(options);
  ASSERT_THAT(next, IsOk());
  const Joined other = Job::Join(MemberOf(**next, Role::kWorker));
  EXPECT_THAT(other, IsOk());
  EXPECT_THAT((*one)->Gather("still", "", Clock::now() + kPatience), IsOk());
  (*one)->Leave();
  EXPECT_THAT(scheduler->Wait(nullptr), IsOk());
}

TEST(Join, WithoutASchedulerEndsWith24) {
  auto scheduler = *Scheduler::Start(LocalJob(1, 0));
  JoinRequest request = MemberOf(*scheduler, Role::kWorker);
  scheduler.reset();
  request.timing.join = milliseconds(400);
  request.timing.unreached_word = milliseconds(0);
  ::testing::internal::CaptureStderr();
  const Joined joined = Job::Join(request);
  EXPECT_EQ(ExitCodeOf(joined.status()), ExitCode::kSchedulerLost);
  EXPECT_NE(Message(joined).find("refused"), std::string::npos);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("waiting for the scheduler"), std::string::npos) << said;
}

TEST(Join, SaysOnceForWhichSchedulerItWaitsAndJoinsWhenThatComes) {
  SchedulerOptions options = LocalJob(1, 0);
  auto scheduler = *Scheduler::Start(options);
  JoinRequest request = MemberOf(*scheduler, Role::kWorker);
  options.port = ParseHostPort(scheduler->address())->port;
  scheduler.reset();
  request.timing.unreached_word = milliseconds(0);
  std::promise<std::string> said;  // may be set once
  request.on_wait = [&](const std::string& text) { said.set_value(text); };
  auto joined = JoinAsync(request);
  auto text = said.get_future();
  ASSERT_EQ(text.wait_for(kPatience), std::future_status::ready);
  const std::string line = text.get();
  for (const std::string& part :
       {request.scheduler_address, std::string("s at most (connect"),
        std::string("check that it has started")}) {
    EXPECT_NE(line.find(part), std::string::npos) << line;
  }
  scheduler = *Scheduler::Start(options);
  EXPECT_THAT(joined.get(), IsOk());
}

TEST(Join, AnotherProgramAtTheSchedulersPortIsNamed) {
  const auto listener = ListenOn(*ParseIp("127.0.0.1", 0));
  ASSERT_THAT(listener, IsOk());
  std::thread server([fd = listener->get()] {
    pollfd polled{.fd = fd, .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&polled, 1, 20'000), 1);
    const UniqueFd peer(accept(fd, nullptr, nullptr));
    constexpr char kAnswer[] = "HTTP/1.1 400 Bad Request\r\n";
    EXPECT_GT(send(peer.get(), kAnswer, sizeof(kAnswer), MSG_NOSIGNAL), 0);
    char byte = 0;
    while (recv(peer.get(), &byte, 1, 0) > 0) continue;  // until it has read
  });
  JoinRequest request;
  request.scheduler_address = ToString(*LocalAddress(listener->get()));
  const Joined joined = Job::Join(request);
  server.join();
  EXPECT_EQ(ExitCodeOf(joined.status()), ExitCode::kUsage);
  EXPECT_NE(
      Message(joined).find(request.scheduler_address + " another program"),
      std::string::npos)
      << Message(joined);
}

TEST(Join, OtherSecretOrNoneOrOtherJobEndsWith30) {
  SchedulerOptions options = LocalJob(1, 0);
  options.secret = *Secret::Derive(std::string(32, 'a'), "local");
  auto scheduler = *Scheduler::Start(options);
  JoinRequest request = MemberOf(*scheduler, Role::kWorker);
  EXPECT_EQ(ExitCodeOf(Job::Join(request).status()), ExitCode::kAuthentication);
  request.secret = *Secret::Derive(std::string(32, 'b'), "local");
  EXPECT_EQ(ExitCodeOf(Job::Join(request).status()), ExitCode::kAuthentication);
  request.secret = options.secret;
  request.job_id = "older";
  EXPECT_EQ(ExitCodeOf(Job::Join(request).status()), ExitCode::kAuthentication);
  request.job_id = "local";
  EXPECT_THAT(Job::Join(request), IsOk());
}

TEST(Join, TheOthersLearnWhoHadAnotherSecret) {
  SchedulerOptions options = LocalJob(2, 0);
  options.secret = *Secret::Derive(std::string(32, 'a'), "local");
  options.timing.join = seconds(3);  // in which one has joined
  ::testing::internal::CaptureStderr();
  auto scheduler = *Scheduler::Start(options);
  JoinRequest right = MemberOf(*scheduler, Role::kWorker, 0);
  right.secret = options.secret;
  auto joined = JoinAsync(right);
  JoinRequest wrong = MemberOf(*scheduler, Role::kWorker, 1);
  wrong.secret = *Secret::Derive(std::string(32, 'b'), "local");
  for (int i = 0; i < 2; ++i) {  // said once
    EXPECT_EQ(ExitCodeOf(Job::Join(wrong).status()), ExitCode::kAuthentication);
  }
  const Joined late = joined.get();
  EXPECT_EQ(ExitCodeOf(late.status()), ExitCode::kJoinTimeout);
  const std::string line =
      "refused 127.0.0.1: handshake: worker/1 does not hold this job's secret";
  EXPECT_NE(Message(late).find(line), std::string::npos) << Message(late);
  const std::string said = ::testing::internal::GetCapturedStderr();
  const size_t first = said.find(line);
  ASSERT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("refused", first + 1), std::string::npos) << said;
}

TEST(Bind, OutsideOfLoopbackNeedsASecret) {
  SchedulerOptions options = LocalJob(1, 0);
  options.bind_address = "any";
  const auto refused = Scheduler::Start(options);
  EXPECT_EQ(ExitCodeOf(refused.status()), ExitCode::kAuthentication);
  for (const char* wildcard : {"", "0.0.0.0", "::", "*"}) {
    options.bind_address = wildcard;
    EXPECT_THAT(Scheduler::Start(options),
                StatusIs(absl::StatusCode::kInvalidArgument, "any"));
  }
}

}  // namespace
}  // namespace telegrad
