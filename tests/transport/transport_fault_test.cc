#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/transport_node.h"
#include "transport/decorators/fault/fault_spec.h"
#include "transport/transport.h"

namespace telegrad::testing {
namespace {

using absl::StatusCode;
using fault::Fault;
using ::testing::HasSubstr;

TransportOptions OptionsOf(const std::string& spec) {
  TransportOptions options;
  options.name = "inproc";
  options.fault = spec;
  return options;
}

// What one run of numbered messages from a client to a server led to.
struct StoreStats {
  static constexpr size_t kMessages = 400;

  explicit StoreStats(const std::string& spec, size_t payload_bytes = 16)
      : server(OptionsOf("seed=0")), client(OptionsOf(spec)) {
    const auto address = server.context->Listen();
    const auto endpoint = client.context->Connect(*address);
    to_server = *endpoint;
    for (size_t i = 0; i < kMessages; ++i) {
      if (!client
               .Send(to_server, absl::StrCat("h", i),
                     std::string(payload_bytes, 'p'))
               .ok()) {
        break;
      }
    }
    client.context->Close(to_server);
    is_over = Drive({&server, &client}, [&] {
      return client.closed.count(to_server) > 0 && !server.closed.empty();
    });
  }

  // "h0 h1 ...", as the server has heard them.
  std::string Headers() const {
    std::string text;
    for (const Heard& heard : server.heard) {
      absl::StrAppend(&text, heard.header, " ");
    }
    return text;
  }

  std::string Payloads() const {
    std::string text;
    for (const Heard& heard : server.heard) text += heard.payload;
    return text;
  }

  // What the client's context says it has done of `name`.
  size_t Count(const std::string& name) const {
    const std::string details = client.context->info().details;
    const std::vector<std::string> words = absl::StrSplit(details, ' ');
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i] == name) return std::stoul(words[i + 1]);
    }
    ADD_FAILURE() << "no " << name << " in: " << details;
    return 0;
  }

  Node server, client;
  EndpointId to_server = 0;
  bool is_over = false;
};

TEST(TransportFault, DroppedMessagesAreNotHeardAndComplete) {
  const StoreStats run("drop=0.1,seed=3");
  ASSERT_TRUE(run.is_over);
  const size_t dropped = run.Count("drop");
  EXPECT_GT(dropped, 10u);
  EXPECT_LT(dropped, 100u);
  EXPECT_EQ(run.server.heard.size(), StoreStats::kMessages - dropped);
  EXPECT_TRUE(run.client.EachCompletedOnce());
  EXPECT_FALSE(run.client.is_completed_inline);
  for (const auto& result : run.client.results) EXPECT_THAT(result[0], IsOk());
}

TEST(TransportFault, DuplicatesAreHeardTwiceAndCompleteOnce) {
  const StoreStats run("duplicate=0.1,seed=3");
  ASSERT_TRUE(run.is_over);
  EXPECT_GT(run.Count("duplicate"), 10u);
  EXPECT_EQ(run.server.heard.size(),
            StoreStats::kMessages + run.Count("duplicate"));
  EXPECT_TRUE(run.client.EachCompletedOnce());
}

TEST(TransportFault, ReorderedMessagesAreAllHeard) {
  const StoreStats run("reorder=0.1,seed=3"), orderly("seed=3");
  ASSERT_TRUE(run.is_over && orderly.is_over);
  EXPECT_GT(run.Count("reorder"), 10u);
  EXPECT_EQ(run.server.heard.size(), StoreStats::kMessages);
  EXPECT_NE(run.Headers(), orderly.Headers());
  std::multiset<std::string> heard, sent;
  for (size_t i = 0; i < StoreStats::kMessages; ++i) {
    heard.insert(run.server.heard[i].header);
    sent.insert(orderly.server.heard[i].header);
  }
  EXPECT_EQ(heard, sent);
}

TEST(TransportFault, ReorderedMessageWithoutASuccessorStillLeaves) {
  Node server(OptionsOf("seed=0")), client(OptionsOf("reorder=1,seed=3"));
  const auto endpoint = client.context->Connect(*server.context->Listen());
  ASSERT_THAT(client.Send(*endpoint, "last"), IsOk());
  EXPECT_TRUE(
      Drive({&server, &client}, [&] { return server.heard.size() == 1; }));
}

TEST(TransportFault, FlippedMessagesDifferByOneBitAndLeaveTheSenderAlone) {
  const StoreStats run("flip=0.1,seed=3"), clean("seed=3");
  ASSERT_TRUE(run.is_over && clean.is_over);
  ASSERT_EQ(run.server.heard.size(), StoreStats::kMessages);
  size_t flipped = 0, in_headers = 0;
  for (size_t i = 0; i < StoreStats::kMessages; ++i) {
    const Heard& got = run.server.heard[i];
    const Heard& sent = clean.server.heard[i];
    const std::string a = got.header + got.payload;
    const std::string b = sent.header + sent.payload;
    ASSERT_EQ(a.size(), b.size());
    int bits = 0;
    for (size_t k = 0; k < a.size(); ++k) {
      bits += std::popcount(static_cast<unsigned char>(a[k] ^ b[k]));
    }
    ASSERT_LE(bits, 1);
    flipped += bits == 1;
    in_headers += got.header != sent.header;
  }
  EXPECT_EQ(flipped, run.Count("flip"));
  EXPECT_GT(in_headers, 0u);
  EXPECT_GT(flipped, in_headers);
}

TEST(TransportFault, FlipDoesNotTouchBorrowedMemory) {
  Node server(OptionsOf("seed=0")), client(OptionsOf("flip=1,seed=3"));
  const auto endpoint = client.context->Connect(*server.context->Listen());
  const auto payload = std::make_shared<const std::string>(64, 'p');
  ASSERT_THAT(client.Send(*endpoint, "", payload), IsOk());
  ASSERT_TRUE(
      Drive({&server, &client}, [&] { return server.heard.size() == 1; }));
  EXPECT_EQ(*payload, std::string(64, 'p'));
  EXPECT_NE(server.heard[0].payload, *payload);
}

TEST(TransportFault, DelayedMessagesComeLaterInOrder) {
  const TimePoint start = Clock::now();
  const StoreStats run("delay=0.05,delay_ms=3,seed=3"), orderly("seed=3");
  ASSERT_TRUE(run.is_over && orderly.is_over);
  EXPECT_GT(run.Count("delay"), 5u);
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(3));
  EXPECT_EQ(run.Headers(), orderly.Headers());
}

TEST(TransportFault, KilledEndpointEndsForBothSides) {
  const StoreStats run("kill=0.02,seed=3");
  ASSERT_TRUE(run.is_over);
  EXPECT_EQ(run.Count("kill"), 1u);
  EXPECT_LT(run.server.heard.size(), StoreStats::kMessages);
  EXPECT_THAT(run.client.closed.at(run.to_server),
              StatusIs(StatusCode::kUnavailable, "killed"));
  EXPECT_THAT(run.server.closed.begin()->second,
              StatusIs(StatusCode::kUnavailable, ""));
  EXPECT_EQ(run.client.num_closed.at(run.to_server), 1);
}

TEST(TransportFault, SeedAndNothingElseDecides) {
  const std::string faults =
      "drop=0.05,duplicate=0.05,reorder=0.05,flip=0.05,delay=0.01,delay_ms=1";
  const StoreStats first(faults + ",seed=11"), again(faults + ",seed=11");
  const StoreStats other(faults + ",seed=12");
  ASSERT_TRUE(first.is_over && again.is_over && other.is_over);
  EXPECT_EQ(first.Headers(), again.Headers());
  EXPECT_EQ(first.Payloads(), again.Payloads());
  EXPECT_EQ(first.client.context->info().details,
            again.client.context->info().details);
  EXPECT_NE(first.Headers(), other.Headers());
}

TEST(FaultSpec, FateDependsOnSeedLinkAndIndex) {
  const auto spec = fault::ParseSpec("drop=0.5,flip=0.5,seed=5");
  ASSERT_THAT(spec, IsOk());
  const auto pattern = [&](uint64_t link) {
    std::string text;
    for (uint64_t i = 0; i < 200; ++i) {
      text += fault::DrawFate(*spec, link, i).has(Fault::kDrop) ? 'x' : '.';
    }
    return text;
  };
  EXPECT_EQ(pattern(0), pattern(0));
  EXPECT_NE(pattern(0), pattern(1));
  // The rate of one fault does not move another.
  const auto without = fault::ParseSpec("flip=0.5,seed=5");
  for (uint64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(fault::DrawFate(*spec, 3, i).has(Fault::kFlip),
              fault::DrawFate(*without, 3, i).has(Fault::kFlip));
  }
}

TEST(FaultSpec, MalformedOnesAreRefusedByName) {
  for (const char* text :
       {"drop", "drop=", "drop=2", "drop=-0.1", "drop=nan", "drop=x",
        "explode=0.5", "drop=0.1,drop=0.2", "seed=-1", "seed=x", "delay_ms=-1",
        "delay_ms=1e9", "drop=0.1,", ",", "=", "drop=0.1 flip=0.1"}) {
    EXPECT_THAT(Node(OptionsOf(text)).status,
                StatusIs(StatusCode::kInvalidArgument, "fault: "))
        << text;
  }
}

TEST(FaultSpec, TextSurvivesARoundTrip) {
  const auto spec = fault::ParseSpec("flip=0.25,seed=9,delay_ms=2.5");
  ASSERT_THAT(spec, IsOk());
  EXPECT_EQ(fault::FormatSpec(*spec), "flip=0.25,seed=9,delay_ms=2.5");
}

}  // namespace
}  // namespace telegrad::testing
