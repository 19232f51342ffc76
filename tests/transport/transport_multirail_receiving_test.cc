// What is made of the parts of several connections, in whatever order they
// come, and of those that cannot be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/multirail_parts.h"
#include "tests/transport/transport_node.h"
#include "transport/decorators/multirail/wire.h"

namespace telegrad::testing {
namespace {

using absl::StatusCode;
using multirail::kPartBytes;
using multirail::kPrefixBytes;

// A striped context, and a peer that connects to it twice.
struct Pair {
  Pair() : receiver_(MultiRailOptions(2)), giver_(BareOptions()) {
    const auto address = receiver_.context->Listen();
    EXPECT_THAT(address, IsOk());
    if (address.ok()) address_ = *address;
    for (EndpointId& connection : connections_) connection = Connect();
  }
  EndpointId Connect() {
    const auto endpoint = giver_.context->Connect(address_);
    EXPECT_THAT(endpoint, IsOk());
    return endpoint.ok() ? *endpoint : 0;
  }
  void Greet() {
    for (size_t i = 0; i < connections_.size(); ++i) {
      Say(connections_[i], HelloText({i, connections_.size(), kGroup}));
    }
    ASSERT_EQ(receiver_.accepted.size(), 1u);
  }
  void Give(size_t connection, const multirail::Part& part,
            const std::string& header, const std::string& payload) {
    Say(connections_[connection], PartText(part, header),
        payload.substr(part.index * kPartBytes,
                       multirail::PartBytes(payload.size(), part.index)));
  }
  void HearFirst() {
    Give(0, {0, 0, 0}, "the first", "");
    ASSERT_EQ(receiver_.heard.size(), 1u);
  }
  // Each is heard before the next: the order is that of the calls.
  void Say(EndpointId connection, const std::string& header,
           const std::string& payload = "") {
    ASSERT_THAT(giver_.Send(connection, header, payload), IsOk());
    const size_t due = giver_.results.size();
    ASSERT_TRUE(DriveBoth([&] { return giver_.num_completed == due; }));
    Settle();
  }
  void Settle() {
    while (receiver_.context->Progress(Clock::now()) ||
           giver_.context->Progress(Clock::now())) {
    }
  }
  bool DriveBoth(const std::function<bool()>& condition) {
    return Drive({&receiver_, &giver_}, condition);
  }
  // What the receiver says of an endpoint that it has ended.
  void ExpectRefused(const std::string& words) {
    ASSERT_TRUE(DriveBoth([&] { return !receiver_.closed.empty(); }));
    EXPECT_THAT(receiver_.closed.begin()->second,
                StatusIs(StatusCode::kCancelled, words));
    EXPECT_TRUE(DriveBoth([&] { return giver_.closed.size() == 2; }));
  }

  static constexpr uint64_t kGroup = 0x123456789;
  Node receiver_, giver_;
  std::string address_;
  std::array<EndpointId, 2> connections_ = {};
};

class MultiRailReceiver : public ::testing::Test, protected Pair {};

TEST_F(MultiRailReceiver, PutsPartsTogetherInAnyOrder) {
  Greet();
  const std::string payload = Pattern(3 * kPartBytes + 17);
  for (const size_t index : {2, 0, 3, 1}) {
    EXPECT_TRUE(receiver_.heard.empty());
    Give(index % 2, {0, payload.size(), index}, "h", payload);
  }
  ASSERT_EQ(receiver_.heard.size(), 1u);
  EXPECT_EQ(receiver_.heard[0].header, "h");
  EXPECT_TRUE(receiver_.heard[0].payload == payload);
}

TEST_F(MultiRailReceiver, HoldsWhatComesBeforeItsTurn) {
  Greet();
  HearFirst();
  const std::string late = Pattern(100), large = Pattern(2 * kPartBytes);
  Give(1, {3, 0, 0}, "third", "");
  Give(1, {2, large.size(), 1}, "second", large);
  EXPECT_EQ(receiver_.heard.size(), 1u);
  Give(0, {1, late.size(), 0}, "first", late);
  ASSERT_EQ(receiver_.heard.size(), 2u);
  Give(0, {2, large.size(), 0}, "second", large);
  ASSERT_EQ(receiver_.heard.size(), 4u);
  EXPECT_EQ(receiver_.heard[1].payload, late);
  EXPECT_EQ(receiver_.heard[2].header, "second");
  EXPECT_TRUE(receiver_.heard[2].payload == large);
  EXPECT_EQ(receiver_.heard[3].header, "third");
  EXPECT_TRUE(receiver_.is_in_order);
}

TEST_F(MultiRailReceiver, TakesConnectionsInAnyOrder) {
  Say(connections_[1], HelloText({1, 2, kGroup}));
  ASSERT_EQ(receiver_.accepted.size(), 1u);
  Give(1, {0, 5, 0}, "h", "early");
  ASSERT_EQ(receiver_.heard.size(), 1u);
  Say(connections_[0], HelloText({0, 2, kGroup}));
  EXPECT_EQ(receiver_.accepted.size(), 1u);
  Give(0, {1, 4, 0}, "h", "late");
  EXPECT_EQ(receiver_.heard.size(), 2u);
}

TEST_F(MultiRailReceiver, HearsAllBeforeTheEndOfTheLastConnection) {
  Greet();
  const std::string payload = Pattern(2 * kPartBytes);
  Give(0, {0, payload.size(), 0}, "h", payload);
  giver_.context->Close(connections_[0]);
  Settle();
  EXPECT_TRUE(receiver_.closed.empty());
  Give(1, {0, payload.size(), 1}, "h", payload);
  EXPECT_EQ(receiver_.heard.size(), 1u);
  giver_.context->Close(connections_[1]);
  ASSERT_TRUE(DriveBoth([&] { return !receiver_.closed.empty(); }));
  EXPECT_THAT(receiver_.closed.begin()->second,
              StatusIs(StatusCode::kUnavailable, ""));
}

// The other connection says nothing more, and does not end.
TEST_F(MultiRailReceiver, EndsSoonAfterOneConnection) {
  Greet();
  giver_.context->Close(connections_[0]);
  ASSERT_TRUE(DriveBoth([&] { return !receiver_.closed.empty(); }));
  EXPECT_TRUE(DriveBoth([&] { return giver_.closed.size() == 2; }));
}

TEST_F(MultiRailReceiver, DoesNotWaitForAConnectionThatNeverCame) {
  Say(connections_[0], HelloText({0, 2, kGroup}));
  giver_.context->Close(connections_[0]);
  ASSERT_TRUE(DriveBoth([&] { return !receiver_.closed.empty(); }));
  // It comes after all: to no endpoint.
  Say(connections_[1], HelloText({1, 2, kGroup}));
  EXPECT_TRUE(DriveBoth([&] { return giver_.closed.size() == 2; }));
  EXPECT_EQ(receiver_.accepted.size(), 1u);
}

TEST_F(MultiRailReceiver, HearsNothingAfterItHasClosed) {
  Greet();
  const std::string payload = Pattern(2 * kPartBytes);
  Give(0, {0, payload.size(), 0}, "h", payload);
  receiver_.context->Close(receiver_.accepted[0]);
  ASSERT_TRUE(DriveBoth(
      [&] { return giver_.closed.size() == 2 && !receiver_.closed.empty(); }));
  EXPECT_TRUE(receiver_.heard.empty());
  EXPECT_EQ(receiver_.num_closed[receiver_.accepted[0]], 1);
}

TEST_F(MultiRailReceiver, RefusesAPartThatComesTwice) {
  Greet();
  const std::string payload = Pattern(2 * kPartBytes);
  Give(0, {0, payload.size(), 0}, "h", payload);
  Say(connections_[1], PartText({0, payload.size(), 0}, "h"),
      payload.substr(0, kPartBytes));
  ExpectRefused("twice");
}

TEST_F(MultiRailReceiver, RefusesPartsOfTwoMessages) {
  Greet();
  const std::string payload = Pattern(2 * kPartBytes);
  Give(0, {0, payload.size(), 0}, "h", payload);
  Give(1, {0, payload.size(), 1}, "other", payload);
  ExpectRefused("two messages");
}

TEST_F(MultiRailReceiver, RefusesMessagesThatWereHeard) {
  Greet();
  Give(0, {0, 1, 0}, "h", "1");
  Give(1, {0, 1, 0}, "h", "1");
  ExpectRefused("message 0 comes when 1 is due");
}

TEST_F(MultiRailReceiver, RefusesMessagesFarAhead) {
  Greet();
  HearFirst();
  Give(0, {1 << 17, 1, 0}, "h", "1");  // as far as may be
  EXPECT_TRUE(receiver_.closed.empty());
  Give(1, {1 + (1 << 17), 1, 0}, "h", "1");
  ExpectRefused("message 131073 comes when 1 is due");
}

// It cannot make the receiver hold memory without end.
TEST_F(MultiRailReceiver, RefusesToHoldTooMuch) {
  Greet();
  HearFirst();
  const std::string payload = Pattern(kPartBytes);
  // Four times what a sender may be ahead after so little.
  const size_t most =
      4 * ((1 << 20) + 512) / (multirail::kMessageWeight + kPartBytes);
  for (uint32_t i = 0; i < most; ++i) {
    Give(0, {2 + i, payload.size(), 0}, "h", payload);
  }
  EXPECT_TRUE(receiver_.closed.empty());
  const auto next = static_cast<uint32_t>(2 + most);
  Give(0, {next, payload.size(), 0}, "h", payload);
  ExpectRefused("wait for a message on another connection");
}

// Before its owner has seen anything of the peer.
TEST_F(MultiRailReceiver, HoldsNothingBeforeTheFirstMessage) {
  Greet();
  Give(0, {1, 1, 0}, "h", "1");
  ExpectRefused("before the first was received");
}

// Parts of it come by both connections at once.
TEST_F(MultiRailReceiver, AsksOnceAboutARefusedMessage) {
  Greet();
  int num_asked = 0;
  receiver_.on_header = [&](EndpointId, ConstBytes, size_t) {
    ++num_asked;
    return absl::UnauthenticatedError("no such worker");
  };
  const std::string payload = Pattern(2 * kPartBytes);
  for (const size_t index : {0, 1}) {
    ASSERT_THAT(giver_.Send(connections_[index],
                            PartText({0, payload.size(), index}, "h"),
                            payload.substr(index * kPartBytes, kPartBytes)),
                IsOk());
  }
  ExpectRefused("no such worker");
  EXPECT_EQ(num_asked, 1);
}

TEST_F(MultiRailReceiver, TellsWhatItHasHeard) {
  Greet();
  HearFirst();
  ASSERT_TRUE(DriveBoth([&] { return giver_.heard.size() == 1; }));
  auto heard = multirail::ParseAck(BytesOf(giver_.heard[0].header), 0);
  ASSERT_THAT(heard, IsOk());
  EXPECT_EQ(heard->messages, 1u);
  EXPECT_EQ(heard->weight, 512u);
  const std::string payload = Pattern(4 << 20);
  for (uint32_t sequence = 1; sequence < 3; ++sequence) {
    for (size_t index = 0; index < 16; ++index) {
      Give(index % 2, {sequence, payload.size(), index}, "h", payload);
    }
  }
  ASSERT_TRUE(DriveBoth([&] { return giver_.heard.size() == 3; }));
  heard = multirail::ParseAck(BytesOf(giver_.heard[2].header), 0);
  ASSERT_THAT(heard, IsOk());
  EXPECT_EQ(heard->messages, 3u);
  EXPECT_EQ(heard->weight, 3 * 512 + 2 * payload.size());
}

TEST_F(MultiRailReceiver, RefusesToBeHeardOfWhatItDidNotSend) {
  for (const multirail::ReceivedSoFar& wrong :
       {multirail::ReceivedSoFar{1, 0}, multirail::ReceivedSoFar{0, 1}}) {
    Pair pair;
    pair.Greet();
    ASSERT_THAT(pair.giver_.Send(pair.connections_[1], AckText(wrong)), IsOk());
    pair.ExpectRefused("more was received than was sent");
  }
}

TEST_F(MultiRailReceiver, RefusesMalformedParts) {
  const std::string good = PartText({0, kPartBytes + 5, 1}, "h");
  const auto with = [&](size_t place, char value) {
    std::string bad = good;
    bad[place] = value;
    return bad;
  };
  struct {
    std::string header;
    size_t payload_bytes;
  } const kBad[] = {{good, 4},
                    {good, 6},
                    {with(0, 'H'), 5},
                    {with(1, 1), 5},
                    {with(11, 127), 5},  // the payload's bytes
                    {with(12, 1), 5},    // the offset
                    {with(15, 127), 5},
                    {good.substr(0, kPrefixBytes - 1), 5},
                    {"", 0}};
  for (const auto& bad : kBad) {
    EXPECT_THAT(multirail::ParsePart(BytesOf(bad.header), bad.payload_bytes),
                StatusIs(StatusCode::kInvalidArgument, ""));
    Pair pair;
    pair.Greet();
    ASSERT_THAT(pair.giver_.Send(pair.connections_[0], bad.header,
                                 std::string(bad.payload_bytes, 'x')),
                IsOk());
    pair.ExpectRefused("");
    EXPECT_TRUE(pair.receiver_.heard.empty());
  }
  EXPECT_THAT(multirail::ParsePart(BytesOf(good), 5), IsOk());
}

TEST_F(MultiRailReceiver, LetsSilentStrangersGo) {
  ASSERT_TRUE(DriveBoth([&] { return giver_.closed.size() == 2; }));
  EXPECT_TRUE(receiver_.accepted.empty());
}

TEST_F(MultiRailReceiver, RefusesStrangers) {
  std::string old = HelloText({0, 2, kGroup});
  old[3] = 9;
  for (const std::string& bad :
       {std::string("no hello"), HelloText({2, 2, kGroup}),
        HelloText({0, 65, kGroup}), HelloText({0, 0, kGroup}), old,
        PartText({0, 1, 0}, "")}) {
    const EndpointId stranger = Connect();
    ASSERT_THAT(giver_.Send(stranger, bad, bad[0] == 'P' ? "1" : ""), IsOk());
    // Long before those who say nothing are let go.
    EXPECT_TRUE(Drive(
        {&receiver_, &giver_},
        [&] { return giver_.closed.count(stranger) > 0; },
        std::chrono::seconds(5)));
  }
  EXPECT_TRUE(receiver_.accepted.empty());
  Greet();
  // Nobody joins an endpoint as one of its connections, or as one too many.
  for (const multirail::Hello& wrong :
       {multirail::Hello{1, 2, kGroup}, multirail::Hello{2, 3, kGroup}}) {
    const EndpointId stranger = Connect();
    Say(stranger, HelloText(wrong));
    EXPECT_TRUE(DriveBoth([&] { return giver_.closed.count(stranger) > 0; }));
  }
  Give(1, {0, 4, 0}, "h", "good");
  EXPECT_EQ(receiver_.heard.size(), 1u);
}

}  // namespace
}  // namespace telegrad::testing
