// What several connections to one peer carry, seen by a peer that takes every
// part by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/striped_parts.h"
#include "tests/transport/transport_node.h"
#include "transport/inproc/inproc_transport.h"
#include "transport/link/link_transport.h"
#include "transport/striped/striped_transport.h"
#include "transport/striped/wire.h"

namespace telegrad::testing {
namespace {

using absl::StatusCode;
using striped::kPartBytes;
using striped::kPrefixBytes;

// Connections of their own rate, none of them in memory.
TransportOptions LinkedOptions(size_t connections, double bytes_per_s) {
  TransportOptions options = StripedOptions(connections);
  options.link_bytes_per_s = bytes_per_s;
  return options;
}

absl::StatusOr<std::unique_ptr<TransportContext>> MakeStripedOverLink(
    const TransportOptions& options, TransportHandler* handler) {
  return MakeStripedTransport(
      [](const TransportOptions& link_options, TransportHandler* inner) {
        return MakeLinkTransport(MakeInprocTransport, link_options, inner);
      },
      options, handler);
}

class StripedSender : public ::testing::Test {
 protected:
  StripedSender()
      : sender_(LinkedOptions(3, 4e9), MakeStripedOverLink),
        taker_(BareOptions()) {}
  void SetUp() override {
    const auto address = taker_.context->Listen();
    ASSERT_THAT(address, IsOk());
    const auto endpoint = sender_.context->Connect(*address);
    ASSERT_THAT(endpoint, IsOk());
    to_taker_ = *endpoint;
    ASSERT_TRUE(DriveBoth([&] { return taker_.heard.size() == 3; }));
  }
  bool DriveBoth(const std::function<bool()>& condition) {
    return Drive({&sender_, &taker_}, condition);
  }

  Node sender_, taker_;
  EndpointId to_taker_ = 0;
};

TEST_F(StripedSender, SaysHelloOnEachConnection) {
  std::set<uint64_t> groups;
  std::set<size_t> indices;
  std::set<EndpointId> connections;
  for (const Heard& heard : taker_.heard) {
    const auto hello = striped::ParseHello(BytesOf(heard.header), 0);
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

TEST_F(StripedSender, SpreadsThePartsOfALargePayload) {
  const std::string payload = Pattern(9 * kPartBytes + 5);
  ASSERT_THAT(sender_.Send(to_taker_, "large", payload), IsOk());
  ASSERT_TRUE(DriveBoth([&] { return taker_.heard.size() == 3 + 10; }));
  std::string put_together(payload.size(), '?');
  std::map<EndpointId, int> parts;
  for (size_t i = 3; i < taker_.heard.size(); ++i) {
    const Heard& heard = taker_.heard[i];
    const auto part =
        striped::ParsePart(BytesOf(heard.header), heard.payload.size());
    ASSERT_THAT(part, IsOk());
    EXPECT_EQ(part->sequence, 0u);
    EXPECT_EQ(part->payload_bytes, payload.size());
    EXPECT_EQ(heard.header.substr(kPrefixBytes), "large");
    put_together.replace(part->index * kPartBytes, heard.payload.size(),
                         heard.payload);
    ++parts[heard.from];
  }
  EXPECT_TRUE(put_together == payload);
  EXPECT_EQ(parts.size(), 3u);
  for (const auto& [connection, num_parts] : parts) EXPECT_GE(num_parts, 3);
  ASSERT_TRUE(DriveBoth([&] { return sender_.num_completed == 1; }));
}

TEST_F(StripedSender, KeepsSmallMessagesTogether) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_THAT(sender_.Send(to_taker_, absl::StrCat(i), "small"), IsOk());
  }
  ASSERT_TRUE(DriveBoth([&] { return taker_.heard.size() == 3 + 20; }));
  std::set<EndpointId> used;
  for (size_t i = 3; i < taker_.heard.size(); ++i) {
    used.insert(taker_.heard[i].from);
    EXPECT_EQ(taker_.heard[i].header.substr(kPrefixBytes), absl::StrCat(i - 3));
  }
  EXPECT_EQ(used.size(), 1u);
}

TEST_F(StripedSender, LosesAllWithOneConnection) {
  const std::string payload = Pattern(20 * kPartBytes);
  for (int i = 0; i < 5; ++i) {
    ASSERT_THAT(sender_.Send(to_taker_, "h", payload), IsOk());
  }
  taker_.context->Close(taker_.accepted[1]);
  ASSERT_TRUE(DriveBoth([&] { return sender_.closed.count(to_taker_) > 0; }));
  EXPECT_THAT(sender_.closed[to_taker_],
              StatusIs(StatusCode::kUnavailable, ""));
  EXPECT_TRUE(sender_.EachCompletedOnce());
  EXPECT_THAT(sender_.results.back()[0],
              StatusIs(StatusCode::kUnavailable, ""));
  ASSERT_TRUE(DriveBoth([&] { return taker_.closed.size() == 3; }));
}

// Each connection is as slow as the other: what one carries in a time is half.
TEST(Striped, SlowConnectionsShareTheBytesAlike) {
  Node taker(BareOptions());
  const auto address = taker.context->Listen();
  ASSERT_THAT(address, IsOk());
  Node sender(LinkedOptions(2, 500e6), MakeStripedOverLink);
  const auto endpoint = sender.context->Connect(*address);
  ASSERT_THAT(endpoint, IsOk());
  const auto payload =
      std::make_shared<const std::string>(Pattern(10 * kPartBytes));
  for (int i = 0; i < 10; ++i) {
    ASSERT_THAT(sender.Send(*endpoint, "h", payload), IsOk());
  }
  ASSERT_TRUE(
      Drive({&sender, &taker}, [&] { return taker.heard.size() == 2 + 100; }));
  std::map<EndpointId, int> num_parts;
  for (const Heard& heard : taker.heard) {
    if (!heard.payload.empty()) ++num_parts[heard.from];
  }
  ASSERT_EQ(num_parts.size(), 2u);
  for (const auto& [connection, num] : num_parts) {
    EXPECT_GE(num, 40);
    EXPECT_LE(num, 60);
  }
}

TEST(Striped, PeersInMemoryHaveOneConnection) {
  Node taker(BareOptions()), sender(StripedOptions(3));
  const auto address = taker.context->Listen();
  ASSERT_THAT(address, IsOk());
  ASSERT_THAT(sender.context->Connect(*address), IsOk());
  ASSERT_TRUE(
      Drive({&sender, &taker}, [&] { return taker.heard.size() == 1; }));
  const auto hello = striped::ParseHello(BytesOf(taker.heard[0].header), 0);
  ASSERT_THAT(hello, IsOk());
  EXPECT_EQ(hello->connections, 1u);
  EXPECT_EQ(taker.accepted.size(), 1u);
}

TEST(Striped, NumbersOfConnectionsAreBounded) {
  for (const size_t connections : {0, 65}) {
    Node node(StripedOptions(connections));
    EXPECT_THAT(node.status, StatusIs(StatusCode::kInvalidArgument,
                                      absl::StrCat(connections)));
  }
  Node node(StripedOptions(64));
  ASSERT_THAT(node.status, IsOk());
  EXPECT_THAT(node.context->info().details,
              ::testing::HasSubstr("64 connections to each peer"));
}

TEST(Striped, ContextsMayConnectToThemselves) {
  Node node(LinkedOptions(3, 4e9), MakeStripedOverLink);
  const auto address = node.context->Listen();
  ASSERT_THAT(address, IsOk());
  const auto endpoint = node.context->Connect(*address);
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
