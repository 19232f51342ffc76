#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/kvstore/job/cluster.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder's tests

// The scheduler of two workers, made by hand, and its end of the connection to
// worker/0.
std::unique_ptr<RawMember> TakeIn(int listener) {
  pollfd polled{.fd = listener, .events = POLLIN, .revents = 0};
  poll(&polled, 1, 20000);
  UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK));
  if (!fd.is_open()) return nullptr;
  auto peer = std::make_unique<RawMember>(std::move(fd));
  HandshakeServer handshake({}, "local");
  const auto challenge = handshake.OnHello(peer->NextFrame().value_or(""));
  if (!challenge.ok()) return nullptr;
  peer->Send(*challenge);
  const auto proof = peer->NextFrame();
  if (!handshake.OnProof(proof.value_or("")).ok()) return nullptr;
  peer->Send(EncodeRecord(WelcomeRecord{}));
  if (!peer->NextOf<JoinRecord>().has_value()) return nullptr;
  StartRecord start;
  start.epoch = 1;
  start.workers.resize(2);
  for (int rank = 0; rank < 2; ++rank) {
    start.workers[static_cast<size_t>(rank)].id = {Role::kWorker, rank};
  }
  peer->Send(EncodeRecord(RankRecord{.rank = 0}));
  peer->Send(EncodeRecord(start));
  return peer;
}

// A worker whose scheduler is the test.
class Gather : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto listener = ListenOn(Resolve("127.0.0.1", 0)->front());
    ASSERT_THAT(listener, IsOk());
    JoinRequest request;
    request.scheduler_address = ToString(*LocalAddress(listener->get()));
    auto joining = JoinAsync(request);
    peer = TakeIn(listener->get());
    ASSERT_NE(peer, nullptr);
    worker = joining.get();
    ASSERT_THAT(worker, IsOk());
  }

  std::unique_ptr<RawMember> peer;
  Joined worker;
};

// As the answers to two tries under one name do.
TEST_F(Gather, WaitsForEveryRankThoughOneComesTwice) {
  auto gathering = std::async(std::launch::async, [&] {
    return (*worker)->Gather("g", "a", Clock::now() + kPatience);
  });
  ASSERT_TRUE(peer->NextOf<GatherRecord>().has_value());
  for (const int rank : {0, 0, 1}) {
    peer->Send(EncodeRecord(GatheredRecord{
        .name = "g", .rank = rank, .payload = rank == 0 ? "a" : "b"}));
  }
  const auto gathered = gathering.get();
  ASSERT_THAT(gathered, IsOk());
  EXPECT_EQ(*gathered, (std::vector<std::string>{"a", "b"}));
}

// All came while the scheduler was asked who is missing: what it says then is
// not of the next gather of that name.
TEST_F(Gather, IsNotEndedByWhatTheOneBeforeHasAsked) {
  const auto read = [&](TimePoint deadline) {
    return std::async(std::launch::async, [this, deadline] {
      return (*worker)->Read("r", deadline);
    });
  };
  const std::string answer =
      EncodeRecord(GatheredRecord{.name = "r", .payload = "a"});
  const std::string missing =
      EncodeRecord(MissingRecord{.name = "r", .members = {}});
  auto late = read(Clock::now());
  ASSERT_TRUE(peer->NextOf<WithdrawRecord>().has_value());
  peer->Send(answer);
  EXPECT_THAT(late.get(), IsOk());
  auto next = read(Clock::now() + kPatience);
  ASSERT_TRUE(peer->NextOf<ReadRecord>().has_value());
  peer->Send(missing);
  peer->Send(answer);
  EXPECT_THAT(next.get(), IsOk());
}

}  // namespace
}  // namespace telegrad
