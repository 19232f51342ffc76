#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/resend_frames.h"
#include "transport/decorators/resend/resend_transport.h"

namespace telegrad::testing {
namespace {

using absl::StatusCode;
using resend::Kind;
using resend::Prefix;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Never by itself, unless a test wants it.
constexpr Duration kNever = std::chrono::hours(1);

// A context that sends again, and a peer that does as each test says.
class TransportResend : public ::testing::Test {
 protected:
  void Start(ResendLimits limits = {.min_timeout = kNever,
                                    .max_timeout = kNever}) {
    TransportOptions options;
    options.name = "inproc";
    node_ = std::make_unique<Node>(
        options, [limits](const TransportOptions& node_options,
                          TransportHandler* handler) {
          return MakeResendTransport(&MakeTransport, node_options, handler,
                                     limits);
        });
    peer_ = std::make_unique<Node>(BareResendOptions());
    ASSERT_THAT(node_->status, IsOk());
    ASSERT_THAT(peer_->status, IsOk());
    const auto endpoint = Connect(*peer_, *node_);
    ASSERT_THAT(endpoint, IsOk());
    to_node_ = *endpoint;
    ASSERT_TRUE(Run([&] { return node_->accepted.size() == 1; }));
    to_peer_ = node_->accepted[0];
  }

  bool Run(const std::function<bool()>& condition) {
    return Drive({node_.get(), peer_.get()}, condition);
  }
  // Until neither has anything left to do.
  void Settle() {
    int num_idle = 0;
    ASSERT_TRUE(Run([&] {
      const bool is_busy = node_->context->Progress(Clock::now()) ||
                           peer_->context->Progress(Clock::now());
      num_idle = is_busy ? 0 : num_idle + 1;
      return num_idle > 3;
    }));
  }

  void Give(const std::string& header, const std::string& payload = "") {
    ASSERT_THAT(peer_->Send(to_node_, header, payload), IsOk());
  }
  // Message `sequence`, "h<sequence>" with payload "p<sequence>", as it is or
  // with one byte of the payload harmed.
  void GiveMessage(uint32_t sequence, bool is_harmed = false) {
    std::string payload = absl::StrCat("p", sequence);
    const std::string header =
        FramedMessage(sequence, absl::StrCat("h", sequence), payload);
    if (is_harmed) payload[0] ^= 4;
    Give(header, payload);
  }
  void GiveAnswer(const Prefix& prefix) { Give(Framed(prefix)); }

  std::vector<std::string> HeardByNode() const {
    std::vector<std::string> heard;
    for (const Heard& message : node_->heard) {
      heard.push_back(message.header + message.payload);
    }
    return heard;
  }
  // What of `kind` the peer has heard.
  std::vector<uint32_t> HeardByPeer(Kind kind) const {
    std::vector<uint32_t> sequences;
    for (const Heard& message : peer_->heard) {
      const Prefix prefix = PrefixOf(message);
      if (prefix.kind == kind) sequences.push_back(prefix.sequence);
    }
    return sequences;
  }
  std::string Details() const { return node_->context->info().details; }
  void ExpectRefused(const std::string& why) {
    ASSERT_TRUE(Run([&] {
      return node_->closed.count(to_peer_) && peer_->closed.count(to_node_);
    }));
    EXPECT_THAT(node_->closed[to_peer_], StatusIs(StatusCode::kCancelled, why));
    EXPECT_EQ(node_->num_closed[to_peer_], 1);
  }

  std::unique_ptr<Node> node_, peer_;
  EndpointId to_node_ = 0, to_peer_ = 0;
};

TEST_F(TransportResend, DuplicatesAreHeardOnceAndAnswered) {
  Start();
  for (const uint32_t sequence : {0, 0, 1, 0, 1, 2}) GiveMessage(sequence);
  Settle();
  EXPECT_THAT(HeardByNode(), ElementsAre("h0p0", "h1p1", "h2p2"));
  EXPECT_THAT(Details(), HasSubstr("0 sent again, 3 duplicates, 0 reordered"));
  peer_->heard.clear();
  GiveMessage(1);
  Settle();
  EXPECT_THAT(HeardByPeer(Kind::kTaken), ElementsAre(3));
}

TEST_F(TransportResend, ReorderedMessagesAreHeardInOrder) {
  Start();
  for (const uint32_t sequence : {3, 1, 2, 0, 5, 4}) GiveMessage(sequence);
  Settle();
  EXPECT_THAT(HeardByNode(),
              ElementsAre("h0p0", "h1p1", "h2p2", "h3p3", "h4p4", "h5p5"));
  EXPECT_TRUE(node_->is_in_order);
}

TEST_F(TransportResend, LackingMessagesAreAskedForWithWhatIsHere) {
  Start();
  for (const uint32_t sequence : {1, 2, 4}) GiveMessage(sequence);
  Settle();
  ASSERT_THAT(HeardByPeer(Kind::kAgain), ElementsAre(0));
  GiveMessage(0);
  Settle();
  EXPECT_THAT(HeardByPeer(Kind::kAgain), ElementsAre(0, 3));
  EXPECT_TRUE(resend::IsHere(PrefixOf(peer_->heard.back()).body, 0));
  EXPECT_FALSE(resend::IsHere(PrefixOf(peer_->heard.back()).body, 1));
}

TEST_F(TransportResend, BeyondTheWindowNothingIsKept) {
  Start({.window_messages = 4, .min_timeout = kNever, .max_timeout = kNever});
  for (uint32_t sequence = 1; sequence < 7; ++sequence) GiveMessage(sequence);
  GiveMessage(0x7fffffff);
  GiveMessage(0);
  Settle();
  EXPECT_EQ(node_->heard.size(), 4u);
  EXPECT_THAT(Details(), HasSubstr("3 reordered"));
  for (uint32_t sequence = 4; sequence < 7; ++sequence) GiveMessage(sequence);
  Settle();
  EXPECT_EQ(node_->heard.size(), 7u);
  EXPECT_EQ(HeardByNode().back(), "h6p6");
}

TEST_F(TransportResend, BeyondTheWindowsBytesNothingIsKept) {
  Start({.window_bytes = 4, .min_timeout = kNever, .max_timeout = kNever});
  for (const uint32_t sequence : {1, 2, 3, 0}) GiveMessage(sequence);
  Settle();
  EXPECT_EQ(node_->heard.size(), 3u);
  EXPECT_EQ(HeardByPeer(Kind::kAgain).back(), 3u);
  GiveMessage(3);
  Settle();
  EXPECT_EQ(HeardByNode().back(), "h3p3");
}

TEST_F(TransportResend, ThreeTimesHarmedIsHeardOnceInTheSameMemory) {
  Start();
  int num_headers = 0;
  node_->on_header = [&](EndpointId, ConstBytes, size_t) {
    ++num_headers;
    return absl::OkStatus();
  };
  for (int i = 0; i < 3; ++i) {
    GiveMessage(0, /*is_harmed=*/true);
    Settle();
  }
  EXPECT_EQ(num_headers, 1);
  EXPECT_TRUE(node_->heard.empty());
  EXPECT_THAT(HeardByPeer(Kind::kAgain), ElementsAre(0, 0, 0));
  GiveMessage(1);  // waits in our memory: the handler is owed the first
  Settle();
  EXPECT_EQ(num_headers, 1);
  GiveMessage(0);
  Settle();
  EXPECT_THAT(HeardByNode(), ElementsAre("h0p0", "h1p1"));
  EXPECT_EQ(num_headers, 2);
  EXPECT_TRUE(node_->is_in_order);
  EXPECT_THAT(Details(), HasSubstr("3 damaged"));
}

TEST_F(TransportResend, HarmedWhileItWaitsIsAskedForAgain) {
  Start();
  GiveMessage(1, /*is_harmed=*/true);
  GiveMessage(0);
  Settle();
  EXPECT_THAT(HeardByNode(), ElementsAre("h0p0"));
  GiveMessage(2);
  Settle();
  EXPECT_EQ(HeardByPeer(Kind::kAgain).back(), 1u);
  GiveMessage(1);
  Settle();
  EXPECT_THAT(HeardByNode(), ElementsAre("h0p0", "h1p1", "h2p2"));
}

TEST_F(TransportResend, HarmedHeaderIsAskedForUntilThereAreTooManyInARow) {
  Start();
  std::string harmed = FramedMessage(0, "h0", "p0");
  harmed[4] ^= 1;  // its number
  for (int i = 0; i < 15; ++i) Give(harmed, "p0");
  Settle();
  EXPECT_FALSE(HeardByPeer(Kind::kAgain).empty());
  GiveMessage(0);
  Settle();
  EXPECT_THAT(HeardByNode(), ElementsAre("h0p0"));
  // A peer that does not have this decorator.
  for (int i = 0; i < 16; ++i) Give("no prefix", "p");
  ExpectRefused("16 damaged headers, the last: a header of 9 bytes");
}

TEST_F(TransportResend, CompletesWhenThePeerHasTakenIt) {
  Start();
  ASSERT_THAT(node_->Send(to_peer_, "h", "payload"), IsOk());
  Settle();
  ASSERT_EQ(peer_->heard.size(), 1u);
  EXPECT_EQ(peer_->heard[0].header, FramedMessage(0, "h", "payload"));
  EXPECT_EQ(node_->num_completed, 0u);
  std::string harmed = Framed({.kind = Kind::kTaken, .sequence = 1});
  harmed[8] ^= 1;
  Give(harmed);
  Settle();
  EXPECT_EQ(node_->num_completed, 0u);
  GiveAnswer({.kind = Kind::kTaken, .sequence = 1});
  Settle();
  EXPECT_EQ(node_->num_completed, 1u);
  EXPECT_THAT(node_->results[0][0], IsOk());
}

TEST_F(TransportResend, LostAnswersAreCoveredByATimer) {
  Start({.min_timeout = std::chrono::milliseconds(1),
         .max_timeout = std::chrono::milliseconds(1),
         .max_resends = 1000});
  ASSERT_THAT(node_->Send(to_peer_, "h", "payload"), IsOk());
  ASSERT_TRUE(Run([&] { return peer_->heard.size() >= 4; }));
  for (const Heard& copy : peer_->heard) {
    EXPECT_EQ(copy.header, peer_->heard[0].header);
    EXPECT_EQ(copy.payload, "payload");
  }
  GiveAnswer({.kind = Kind::kTaken, .sequence = 1});
  Settle();
  EXPECT_EQ(node_->num_completed, 1u);
}

TEST_F(TransportResend, WhatIsAskedForIsSentAtOnce) {
  Start();
  for (int i = 0; i < 5; ++i) {
    ASSERT_THAT(node_->Send(to_peer_, absl::StrCat("h", i), "p"), IsOk());
  }
  Settle();
  peer_->heard.clear();
  // 1 is lacking, 2 is here, 3 is not, 4 is.
  GiveAnswer({.kind = Kind::kAgain, .sequence = 1, .body = 0b101});
  Settle();
  EXPECT_THAT(HeardByPeer(Kind::kMessage), ElementsAre(1, 3));
  EXPECT_EQ(node_->num_completed, 1u);
  GiveAnswer({.kind = Kind::kTaken, .sequence = 5});
  GiveAnswer({.kind = Kind::kAgain, .sequence = 2});  // an old one
  Settle();
  EXPECT_EQ(node_->num_completed, 5u);
  EXPECT_THAT(HeardByPeer(Kind::kMessage), ElementsAre(1, 3));
}

TEST_F(TransportResend, NoMoreIsSentThanThePeerKeeps) {
  Start({.window_messages = 2, .min_timeout = kNever, .max_timeout = kNever});
  for (int i = 0; i < 5; ++i) {
    ASSERT_THAT(node_->Send(to_peer_, "h", "p"), IsOk());
  }
  Settle();
  EXPECT_THAT(HeardByPeer(Kind::kMessage), ElementsAre(0, 1));
  GiveAnswer({.kind = Kind::kTaken, .sequence = 1});
  Settle();
  EXPECT_THAT(HeardByPeer(Kind::kMessage), ElementsAre(0, 1, 2));
}

TEST_F(TransportResend, ManyTimesInVainEndsTheEndpoint) {
  Start({.min_timeout = std::chrono::milliseconds(1),
         .max_timeout = std::chrono::milliseconds(1)});
  ASSERT_THAT(node_->Send(to_peer_, "h", "payload"), IsOk());
  ASSERT_TRUE(Run([&] { return node_->closed.count(to_peer_) > 0; }));
  EXPECT_THAT(
      node_->closed[to_peer_],
      StatusIs(StatusCode::kUnavailable, "message 0 was sent again 16 times"));
  EXPECT_EQ(HeardByPeer(Kind::kMessage).size(), 17u);
  EXPECT_TRUE(node_->EachCompletedOnce());
  EXPECT_EQ(node_->sends_due_at_close[to_peer_], 0);
}

TEST_F(TransportResend, CloseWaitsForAnswers) {
  Start();
  ASSERT_THAT(node_->Send(to_peer_, "h", "payload"), IsOk());
  node_->context->Close(to_peer_);
  EXPECT_THAT(node_->context->Send(to_peer_, {}, {}, nullptr),
              StatusIs(StatusCode::kFailedPrecondition, "not open"));
  Settle();
  EXPECT_TRUE(node_->closed.empty());
  EXPECT_THAT(HeardByPeer(Kind::kEnd), ElementsAre(1));
  GiveAnswer({.kind = Kind::kTaken, .sequence = 2});
  ASSERT_TRUE(Run([&] { return node_->closed.count(to_peer_) > 0; }));
  EXPECT_THAT(node_->closed[to_peer_], StatusIs(StatusCode::kCancelled, ""));
  EXPECT_THAT(node_->results[0][0], IsOk());
}

TEST_F(TransportResend, CloseDoesNotWaitForEver) {
  Start();
  ASSERT_THAT(node_->Send(to_peer_, "h", "payload"), IsOk());
  node_->context->Close(to_peer_);
  ASSERT_TRUE(Run([&] { return node_->closed.count(to_peer_) > 0; }));
  EXPECT_THAT(node_->closed[to_peer_], StatusIs(StatusCode::kCancelled, ""));
  ASSERT_TRUE(node_->EachCompletedOnce());
  EXPECT_THAT(node_->results[0][0], StatusIs(StatusCode::kCancelled, ""));
}

// The last answer may be lost: the end says again what was taken.
TEST_F(TransportResend, EndOfThePeerCompletesWhatItHasTaken) {
  Start();
  ASSERT_THAT(node_->Send(to_peer_, "h", "payload"), IsOk());
  GiveMessage(0);
  Give(Framed({.kind = Kind::kEnd, .sequence = 1, .body = 1}));
  Settle();
  EXPECT_EQ(node_->num_completed, 1u);
  EXPECT_THAT(HeardByNode(), ElementsAre("h0p0"));
  EXPECT_EQ(HeardByPeer(Kind::kTaken).back(), 2u);
}

TEST_F(TransportResend, WhoHasClosedHearsNothingAndAnswersStill) {
  Start();
  node_->on_message = [&](const Heard&) { node_->context->Close(to_peer_); };
  for (const uint32_t sequence : {1, 2, 0, 3}) GiveMessage(sequence);
  Settle();
  EXPECT_THAT(HeardByNode(), ElementsAre("h0p0"));
  EXPECT_EQ(HeardByPeer(Kind::kTaken).back(), 4u);
}

TEST_F(TransportResend, LostPeerEndsTheEndpointOnce) {
  Start();
  ASSERT_THAT(node_->Send(to_peer_, "h", "payload"), IsOk());
  GiveMessage(1);
  Settle();
  peer_->context.reset();
  ASSERT_TRUE(
      Drive({node_.get()}, [&] { return node_->closed.count(to_peer_) > 0; }));
  EXPECT_THAT(node_->closed[to_peer_], StatusIs(StatusCode::kUnavailable, ""));
  EXPECT_TRUE(node_->EachCompletedOnce());
  EXPECT_EQ(node_->sends_due_at_close[to_peer_], 0);
  EXPECT_TRUE(node_->heard.empty());
}

TEST_F(TransportResend, MessageRefusedAfterItHasWaitedEndsTheEndpoint) {
  Start();
  node_->on_header = [](EndpointId, ConstBytes header, size_t) {
    return header.data[1] == std::byte{'1'}
               ? absl::UnauthenticatedError("no such worker")
               : absl::OkStatus();
  };
  GiveMessage(1);
  GiveMessage(0);
  ExpectRefused("no such worker");
}

TEST_F(TransportResend, AnswerToWhatWasNeverSentIsRefused) {
  Start();
  ASSERT_THAT(node_->Send(to_peer_, "h", "payload"), IsOk());
  GiveAnswer({.kind = Kind::kTaken, .sequence = 2});
  ExpectRefused("message 1 was acknowledged and never sent");
  EXPECT_TRUE(node_->EachCompletedOnce());
}

TEST_F(TransportResend, AnotherMessageOfTheSameNumberIsRefused) {
  Start();
  GiveMessage(0, /*is_harmed=*/true);
  Give(FramedMessage(0, "other", "p0"), "p0");
  ExpectRefused("two messages 0");
}

TEST_F(TransportResend, AnotherVersionIsRefusedByNumber) {
  Start();
  std::string header = Framed({});
  header[1] = 9;
  StoreLittleEndian(reinterpret_cast<std::byte*>(header.data()) + 12,
                    Crc32c(header.data(), 12));
  Give(header);
  ExpectRefused("version 9 (ours: 1)");
}

}  // namespace
}  // namespace telegrad::testing
