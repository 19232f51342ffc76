// What several connections to one peer carry, seen by a peer that takes every
// part by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/multirail_parts.h"
#include "tests/transport/transport_node.h"
#include "transport/decorators/emulation/emulation_transport.h"
#include "transport/decorators/multirail/multirail_transport.h"
#include "transport/decorators/multirail/wire.h"
#include "transport/inproc/inproc_transport.h"

namespace telegrad::testing {
namespace {

using absl::StatusCode;
using multirail::kPartBytes;
using multirail::kPrefixBytes;

// Connections of their own rate, none of them in memory.
TransportOptions LinkedOptions(size_t connections, double bytes_per_s) {
  TransportOptions options = MultiRailOptions(connections);
  options.link_bytes_per_s = bytes_per_s;
  return options;
}

absl::StatusOr<std::unique_ptr<TransportContext>> MakeMultiRailOverLink(
    const TransportOptions& options, TransportHandler* handler) {
  return MakeMultiRailTransport(
      [](const TransportOptions& link_options, TransportHandler* inner) {
        return MakeEmulatedLink(MakeInprocTransport, link_options, inner);
      },
      options, handler);
}

// Without hellos, and questions for what was heard.
size_t NumParts(const Node& taker) {
  return static_cast<size_t>(std::count_if(
      taker.heard.begin(), taker.heard.end(),
      [](const Heard& heard) { return absl::StartsWith(heard.header, "P"); }));
}

class MultiRailSender : public ::testing::Test {
 protected:
  MultiRailSender()
      : sender_(LinkedOptions(3, 4e9), MakeMultiRailOverLink),
        taker_(BareOptions()) {}
  void SetUp() override {
    const auto endpoint = Connect(sender_, taker_);
    ASSERT_THAT(endpoint, IsOk());
    to_taker_ = *endpoint;
    ASSERT_TRUE(DriveBoth([&] { return taker_.heard.size() == 3; }));
  }
  bool DriveBoth(const std::function<bool()>& condition) {
    return Drive({&sender_, &taker_}, condition);
  }

  // Until then all goes over one connection.
  void HearFirst() {
    ASSERT_THAT(sender_.Send(to_taker_, "the first"), IsOk());
    ASSERT_TRUE(DriveBoth([&] { return taker_.heard.size() == 4; }));
    Tell({1, 512});
  }
  void Tell(const multirail::ReceivedSoFar& heard) {
    ASSERT_THAT(taker_.Send(taker_.accepted[0], AckText(heard)), IsOk());
    ASSERT_TRUE(DriveBoth(
        [&] { return taker_.num_completed == taker_.results.size(); }));
  }

  Node sender_, taker_;
  EndpointId to_taker_ = 0;
};

TEST_F(MultiRailSender, SaysHelloOnEachConnection) {
  std::set<uint64_t> groups;
  std::set<size_t> indices;
  std::set<EndpointId> connections;
  for (const Heard& heard : taker_.heard) {
    const auto hello = multirail::ParseHello(BytesOf(heard.header), 0);
    ASSERT_THAT(hello, IsOk());
    EXPECT_EQ(hello->connections, 3u);
    groups.insert(hello->group);
    indices.insert(hello->connection);
    connections.insert(heard.from);
  }
  EXPECT_EQ(groups.size(), 1u);
  EXPECT_THAT(indices, ::testing::ElementsAre(0, 1, 2));
  EXPECT_EQ(connections.size(), 3u);
}

TEST_F(MultiRailSender, KeepsToOneConnectionUntilItIsHeard) {
  const std::string payload = Pattern(8 * kPartBytes);
  ASSERT_THAT(sender_.Send(to_taker_, "large", payload), IsOk());
  ASSERT_TRUE(DriveBoth([&] { return taker_.heard.size() == 3 + 8; }));
  for (size_t i = 3; i < taker_.heard.size(); ++i) {
    EXPECT_EQ(taker_.heard[i].from, taker_.heard[3].from);
  }
}

TEST_F(MultiRailSender, StopsWhereThePeerWouldHoldTooMuch) {
  HearFirst();
  const std::string payload = Pattern(4 * kPartBytes);
  const uint64_t weight = 512 + payload.size();
  for (int i = 0; i < 6; ++i) {
    ASSERT_THAT(sender_.Send(to_taker_, "h", payload), IsOk());
  }
  const auto expect_messages = [&](size_t num) {
    ASSERT_TRUE(DriveBoth([&] { return sender_.num_completed == 1 + num; }));
    EXPECT_EQ(NumParts(taker_), 1 + 4 * num);
  };
  expect_messages(1);  // one may always be on its way
  Tell({2, 512 + weight});
  expect_messages(3);
  Tell({4, 512 + 3 * weight});
  expect_messages(6);
}

TEST_F(MultiRailSender, GivesWhatIsQueuedAfterClose) {
  HearFirst();
  const std::string payload = Pattern(4 * kPartBytes);
  const uint64_t weight = 512 + payload.size();
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(sender_.Send(to_taker_, "h", payload), IsOk());
  }
  sender_.context->Close(to_taker_);
  EXPECT_THAT(sender_.Send(to_taker_, "late"),
              StatusIs(StatusCode::kFailedPrecondition, "not open"));
  sender_.results.pop_back();  // of what was refused
  ASSERT_TRUE(DriveBoth([&] { return sender_.num_completed == 2; }));
  EXPECT_TRUE(sender_.closed.empty());
  Tell({2, 512 + weight});
  ASSERT_TRUE(DriveBoth([&] { return taker_.closed.size() == 3; }));
  EXPECT_EQ(NumParts(taker_), 1 + 3 * 4u);
  ASSERT_TRUE(DriveBoth([&] { return sender_.closed.count(to_taker_) > 0; }));
  EXPECT_THAT(sender_.closed[to_taker_], StatusIs(StatusCode::kCancelled, ""));
  ASSERT_TRUE(sender_.EachCompletedOnce());
  for (const auto& result : sender_.results) EXPECT_THAT(result[0], IsOk());
}

TEST_F(MultiRailSender, SpreadsThePartsOfALargePayload) {
  HearFirst();
  const std::string payload = Pattern(9 * kPartBytes + 5);
  ASSERT_THAT(sender_.Send(to_taker_, "large", payload), IsOk());
  ASSERT_TRUE(DriveBoth([&] { return NumParts(taker_) == 1 + 10; }));
  std::string put_together(payload.size(), '?');
  std::map<EndpointId, int> parts;
  for (size_t i = 4; i < taker_.heard.size(); ++i) {
    const Heard& heard = taker_.heard[i];
    if (multirail::IsAsk(BytesOf(heard.header))) continue;
    const auto part =
        multirail::ParsePart(BytesOf(heard.header), heard.payload.size());
    ASSERT_THAT(part, IsOk());
    EXPECT_EQ(part->sequence, 1u);
    EXPECT_EQ(part->payload_bytes, payload.size());
    EXPECT_EQ(heard.header.substr(kPrefixBytes), "large");
    put_together.replace(part->index * kPartBytes, heard.payload.size(),
                         heard.payload);
    ++parts[heard.from];
  }
  EXPECT_TRUE(put_together == payload);
  EXPECT_EQ(parts.size(), 3u);
  for (const auto& [connection, num_parts] : parts) EXPECT_GE(num_parts, 3);
  ASSERT_TRUE(DriveBoth([&] { return sender_.num_completed == 2; }));
}

TEST_F(MultiRailSender, KeepsSmallMessagesTogether) {
  HearFirst();
  for (int i = 0; i < 20; ++i) {
    ASSERT_THAT(sender_.Send(to_taker_, absl::StrCat(i), "small"), IsOk());
  }
  ASSERT_TRUE(DriveBoth([&] { return taker_.heard.size() == 4 + 20; }));
  std::set<EndpointId> used;
  for (size_t i = 4; i < taker_.heard.size(); ++i) {
    used.insert(taker_.heard[i].from);
    EXPECT_EQ(taker_.heard[i].header.substr(kPrefixBytes), absl::StrCat(i - 4));
  }
  EXPECT_EQ(used.size(), 1u);
}

TEST_F(MultiRailSender, LosesAllWithOneConnection) {
  const std::string payload = Pattern(20 * kPartBytes);
  for (int i = 0; i < 5; ++i) {
    ASSERT_THAT(sender_.Send(to_taker_, "h", payload), IsOk());
  }
  taker_.context->Close(taker_.accepted[1]);
  ASSERT_TRUE(DriveBoth([&] { return sender_.closed.count(to_taker_) > 0; }));
  EXPECT_THAT(sender_.closed[to_taker_],
              StatusIs(StatusCode::kUnavailable, ""));
  ASSERT_TRUE(sender_.EachCompletedOnce());
  EXPECT_THAT(sender_.results.back()[0],
              StatusIs(StatusCode::kUnavailable, ""));
  ASSERT_TRUE(DriveBoth([&] { return taker_.closed.size() == 3; }));
}

// Each connection is as slow as the other: what one carries in a time is half.
TEST(MultiRail, SlowConnectionsShareTheBytesAlike) {
  Node taker(BareOptions());
  Node sender(LinkedOptions(2, 500e6), MakeMultiRailOverLink);
  const auto endpoint = Connect(sender, taker);
  ASSERT_THAT(endpoint, IsOk());
  ASSERT_THAT(sender.Send(*endpoint, "the first"), IsOk());
  ASSERT_TRUE(
      Drive({&sender, &taker}, [&] { return taker.heard.size() == 3; }));
  ASSERT_THAT(taker.Send(taker.accepted[0], AckText({1, 512})), IsOk());
  ASSERT_THAT(sender.Send(*endpoint, "h", Pattern(100 * kPartBytes)), IsOk());
  ASSERT_TRUE(
      Drive({&sender, &taker}, [&] { return NumParts(taker) == 1 + 100; }));
  std::map<EndpointId, int> num_parts;
  for (const Heard& heard : taker.heard) {
    if (!heard.payload.empty()) ++num_parts[heard.from];
  }
  ASSERT_EQ(num_parts.size(), 2u);
  for (const auto& [connection, num] : num_parts) {
    EXPECT_GE(num, 20);
    EXPECT_LE(num, 80);
  }
}

// Both ends, over sockets.
class MultiRailTcp : public ::testing::Test {
 protected:
  MultiRailTcp() : server_(Options()), client_(Options()) {}
  static TransportOptions Options() {
    TransportOptions options = MultiRailOptions(3);
    options.name = options.tls = "tcp";
    return options;
  }
  void SetUp() override {
    const auto endpoint = Connect(client_, server_);
    ASSERT_THAT(endpoint, IsOk());
    to_server_ = *endpoint;
  }

  Node server_, client_;
  EndpointId to_server_ = 0;
};

// The small one is heard, but weighs too little to be told; the large one may
// not be ahead of that.
TEST_F(MultiRailTcp, LargeMessagesBehindSmallOnesGoOn) {
  for (const size_t size : {0, 10, 2 << 20, 20, 5 << 20, 30, 40 << 20, 1}) {
    ASSERT_THAT(client_.Send(to_server_, "h", std::string(size, 'p')), IsOk());
    ASSERT_TRUE(Drive(
        {&server_, &client_},
        [&] { return server_.heard.size() == client_.results.size(); },
        std::chrono::seconds(20)));
  }
}

// More than may be ahead, to a receiver that comes late.
TEST_F(MultiRailTcp, ManySmallMessagesKeepTheirOrder) {
  constexpr size_t kMessages = 200'000;
  static_assert(kMessages > multirail::kMaxLeadMessages);
  for (size_t i = 0; i < kMessages; ++i) {
    ASSERT_THAT(
        client_.Send(to_server_, absl::StrCat(i), std::string(i % 300, 'p')),
        IsOk());
    if (i % 100 == 0) client_.context->Progress(Clock::now());
  }
  ASSERT_TRUE(Drive({&server_, &client_},
                    [&] { return server_.heard.size() == kMessages; }));
  for (size_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(server_.heard[i].header, absl::StrCat(i));
  }
}

TEST(MultiRail, PeersInMemoryHaveOneConnection) {
  Node taker(BareOptions()), sender(MultiRailOptions(3));
  ASSERT_THAT(Connect(sender, taker), IsOk());
  ASSERT_TRUE(
      Drive({&sender, &taker}, [&] { return taker.heard.size() == 1; }));
  const auto hello = multirail::ParseHello(BytesOf(taker.heard[0].header), 0);
  ASSERT_THAT(hello, IsOk());
  EXPECT_EQ(hello->connections, 1u);
  EXPECT_EQ(taker.accepted.size(), 1u);
}

TEST(MultiRail, NumbersOfConnectionsAreBounded) {
  for (const size_t connections : {0, 65}) {
    Node node(MultiRailOptions(connections));
    EXPECT_THAT(node.status,
                StatusIs(StatusCode::kInvalidArgument,
                         absl::StrCat("connections ", connections)));
  }
  Node node(MultiRailOptions(64));
  ASSERT_THAT(node.status, IsOk());
  EXPECT_THAT(node.context->info().details,
              ::testing::HasSubstr("64 connections to each peer"));
}

TEST(MultiRail, ContextsMayConnectToThemselves) {
  Node node(LinkedOptions(3, 4e9), MakeMultiRailOverLink);
  const auto endpoint = Connect(node, node);
  ASSERT_THAT(endpoint, IsOk());
  const std::string payload = Pattern(5 * kPartBytes);
  ASSERT_THAT(node.Send(*endpoint, "h", payload), IsOk());
  ASSERT_TRUE(Drive({&node}, [&] { return node.heard.size() == 1; }));
  EXPECT_TRUE(node.heard[0].payload == payload);
  node.context->Close(*endpoint);
  ASSERT_TRUE(Drive({&node}, [&] { return node.closed.size() == 2; }));
}

}  // namespace
}  // namespace telegrad::testing
