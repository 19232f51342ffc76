#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <memory>

#include "absl/strings/match.h"
#include "base/random.h"
#include "tests/kvstore/job/cluster.h"
#include "tests/testing/as_nobody.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder's tests

std::string RandomBytes(Random& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random.NextU32());
  return bytes;
}

TEST(Hostile, GarbageAndSlowLorisDoNotDisturbARunningJob) {
  auto scheduler = *Scheduler::Start(LocalJob(1, 0));
  FatalLog fatal;
  JoinRequest request = MemberOf(*scheduler, Role::kWorker);
  fatal.Attach(&request);
  Joined worker = Job::Join(request);
  ASSERT_THAT(worker, IsOk());
  Random random(1);
  const std::string openings[] = {
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
      std::string("\0\0\0\0", 4), std::string("\xff\xff\xff\x7f", 4), ""};
  std::vector<std::unique_ptr<RawMember>> idle;
  for (int i = 0; i < 300; ++i) {
    auto raw = RawMember::Connect(scheduler->address());
    ASSERT_NE(raw, nullptr);
    raw->SendRaw(i % 2 == 0 ? openings[i / 2 % 5]
                            : RandomBytes(random, random.NextBelow(65536)));
    if (i % 3 == 0) idle.push_back(std::move(raw));
  }
  const auto gathered =
      (*worker)->Gather("g", "still here", Clock::now() + kPatience);
  ASSERT_THAT(gathered, IsOk());
  EXPECT_EQ(fatal.size(), 0u);
  (*worker)->Leave();
  EXPECT_THAT(scheduler->Wait(nullptr), IsOk());
}

TEST(Hostile, SilentStrangersDoNotKeepMembersOut) {
  auto scheduler = *Scheduler::Start(LocalJob(1, 0));
  std::vector<std::unique_ptr<RawMember>> idle;
  for (int i = 0; i < 100; ++i) {
    idle.push_back(RawMember::Connect(scheduler->address()));
  }
  EXPECT_THAT(Job::Join(MemberOf(*scheduler, Role::kWorker)), IsOk());
}

TEST(Hostile, BadRecordsEndTheirSenderOnly) {
  const std::string records[] = {
      "",
      "null",
      "[]",
      "{}",
      "{\"t\":1}",
      "{\"t\":\"nonsense\"}",
      "{\"t\":\"beat\",\"step\":\"1\"}",
      "{\"t\":\"beat\",\"step\":18446744073709551615}",
      "{\"t\":\"join\"}",
      "{\"t\":\"start\"}",
      "{\"t\":\"fail\",\"code\":0,\"message\":\"\",\"dead\":[],"
      "\"detect_ms\":0,\"details\":\"\"}",
      EncodeRecord(BeatRecord{}),
      EncodeRecord(LeaveRecord{}),
      EncodeRecord(GatherRecord{.name = "g", .payload = ""}),
      std::string(1000, '['),
      std::string("\xc3\x28\0", 3),
  };
  auto scheduler = *Scheduler::Start(LocalJob(1, 0));
  for (const std::string& record : records) {
    auto raw = RawMember::Connect(scheduler->address());
    ASSERT_TRUE(raw->Authenticate({Role::kWorker, -1}));
    raw->Send(record);
    const auto refusal = raw->NextOf<RefuseRecord>();
    ASSERT_TRUE(refusal.has_value()) << record;
    EXPECT_EQ(refusal->code, 31) << record;
    EXPECT_FALSE(raw->NextFrame().has_value());
  }
  Joined worker = Job::Join(MemberOf(*scheduler, Role::kWorker));
  ASSERT_THAT(worker, IsOk());
  (*worker)->Leave();
  EXPECT_THAT(scheduler->Wait(nullptr), IsOk());
}

std::unique_ptr<RawMember> ConnectAsNobody(const Scheduler& scheduler) {
  const AsNobody nobody;
  return RawMember::Connect(scheduler.address());
}

TEST(Hostile, WithoutASecretAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  auto scheduler = *Scheduler::Start(LocalJob(1, 0));
  EXPECT_FALSE(ConnectAsNobody(*scheduler)->Authenticate({Role::kWorker, -1}));
  const auto refusal = ConnectAsNobody(*scheduler)->NextOf<RefuseRecord>();
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->code, 30);
  EXPECT_TRUE(absl::StrContains(refusal->message, "--secret-file"));
  SchedulerOptions keyed = LocalJob(1, 0);
  keyed.secret = *Secret::Derive(std::string(32, 's'), keyed.job_id);
  auto shared = *Scheduler::Start(keyed);
  EXPECT_TRUE(ConnectAsNobody(*shared)->Authenticate({Role::kWorker, -1},
                                                     keyed.secret));
  EXPECT_THAT(Job::Join(MemberOf(*scheduler, Role::kWorker)), IsOk());
}

// Who listens first at a port hears nothing of a job that has no secret.
TEST(Hostile, WithoutASecretAnotherUsersSchedulerIsNotJoined) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  const UniqueFd listener = *ListenOn(*ParseIp("127.0.0.1", 0));
  JoinRequest request;
  request.scheduler_address = ToString(*LocalAddress(listener.get()));
  request.timing = FastTiming();
  auto impostor = std::async(std::launch::async, [&] {
    const AsNobody nobody;
    pollfd polled{.fd = listener.get(), .events = POLLIN, .revents = 0};
    poll(&polled, 1, 20000);
    RawMember member(
        UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK)));
    const auto hello = member.NextFrame();
    const auto challenge =
        HandshakeServer(Secret(), request.job_id).OnHello(hello.value_or(""));
    EXPECT_THAT(challenge, IsOk());
    if (challenge.ok()) member.Send(*challenge);
    return member.NextFrame();
  });
  const Joined joined = Job::Join(request);
  EXPECT_THAT(joined, StatusIs(absl::StatusCode::kUnauthenticated,
                               "user 65534 of this machine"));
  EXPECT_EQ(ExitCodeOf(joined.status()), ExitCode::kAuthentication);
  EXPECT_FALSE(impostor.get().has_value());  // no proof, but the end
}

// What else a record of another version has, only that version knows.
TEST(Hostile, AnotherVersionIsToldByItsNumber) {
  auto scheduler = *Scheduler::Start(LocalJob(1, 0));
  auto raw = RawMember::Connect(scheduler->address());
  ASSERT_TRUE(raw->Authenticate({Role::kWorker, -1}));
  raw->Send(
      "{\"t\":\"join\",\"version\":1,\"role\":\"worker\",\"rank\":-1,"
      "\"host\":\"old\",\"pid\":7,\"address\":\"\"}");
  const auto refusal = raw->NextOf<RefuseRecord>();
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->code, 31);
  EXPECT_NE(refusal->message.find("1 at old"), std::string::npos)
      << refusal->message;
}

TEST(Record, TruncatedAndFlippedBytesNeverCrash) {
  JoinRecord join;
  join.wanted = {Role::kWorker, 1};
  join.host = "h";
  join.pid = 3;
  join.facts = {{"a", "b"}};
  FatalEvent event;
  event.code = ExitCode::kTimeout;
  for (const Record& record :
       {Record(join), Record(FailRecord{event}),
        Record(PostRecord{.name = "n", .payload = "p"}),
        Record(ReadRecord{.name = "n"}),
        Record(GatheredRecord{.name = "g", .rank = 2, .payload = "p"})}) {
    const std::string body = EncodeRecord(record);
    const auto decoded = DecodeRecord(body);
    ASSERT_THAT(decoded, IsOk());
    EXPECT_EQ(EncodeRecord(*decoded), body);
    for (size_t i = 0; i < body.size(); ++i) {
      (void)DecodeRecord(body.substr(0, i));
      for (int bit = 0; bit < 8; ++bit) {
        std::string flipped = body;
        flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
        const auto other = DecodeRecord(flipped);
        if (other.ok()) {
          EXPECT_FALSE(EncodeRecord(*other).empty());
        }
      }
    }
  }
}

}  // namespace
}  // namespace telegrad
