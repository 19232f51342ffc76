#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/transport_node.h"
#include "transport/check_transport.h"
#include "transport/transport.h"

namespace telegrad::testing {
namespace {

TEST(TransportRegistry, UnknownNameListsWhatThereIs) {
  TransportOptions options;
  options.name = "pigeon";
  EXPECT_THAT(Node(options).status,
              StatusIs(absl::StatusCode::kNotFound, "inproc"));
  EXPECT_EQ(CheckTransport(options), Node(options).status);
}

TEST(TransportRegistry, NamesAreKnownWithoutAContext) {
  for (const char* name : {"tcp", "inproc"}) {
    TransportOptions options;
    options.name = name;
    EXPECT_THAT(CheckTransport(options), IsOk());
  }
}

TEST(TransportRegistry, DescriptionHasOneLinePerTransport) {
  EXPECT_THAT(
      DescribeTransports(),
      ::testing::MatchesRegex("([a-z]+: .+\n)*tcp: .+\n([a-z]+: .+\n)*"));
}

TEST(TransportLink, NegativeRateIsAnError) {
  TransportOptions options;
  options.name = "inproc";
  options.link_bytes_per_s = -1;
  EXPECT_THAT(Node(options).status,
              StatusIs(absl::StatusCode::kInvalidArgument, "-1"));
}

// 20 messages of 100 KB at 10 MB/s take 0.2 s, however fast the machine is.
TEST(TransportLink, MessagesTakeTheTimeOfTheLink) {
  TransportOptions options;
  options.name = "inproc";
  options.link_bytes_per_s = 10e6;
  Node server(options), client(options);
  const auto endpoint = Connect(client, server);
  ASSERT_THAT(endpoint, IsOk());
  const TimePoint start = Clock::now();
  for (int i = 0; i < 20; ++i) {
    ASSERT_THAT(client.Send(*endpoint, "", std::string(100000, 'p')), IsOk());
  }
  ASSERT_TRUE(
      Drive({&server, &client}, [&] { return server.heard.size() == 20; }));
  EXPECT_GE(SecondsSince(start), 0.2);
  EXPECT_THAT(server.context->info().details, ::testing::HasSubstr("link of"));
}

TEST(TransportLink, LatencyOutOfRangeIsAnError) {
  TransportOptions options;
  options.name = "inproc";
  for (const double latency_s : {-1.0, 1.5, std::nan("")}) {
    options.link_latency_s = latency_s;
    EXPECT_THAT(Node(options).status,
                StatusIs(absl::StatusCode::kInvalidArgument, "latency"));
  }
}

// Two contexts behind a link, connected.
struct LinkedNodes {
  LinkedNodes(double bytes_per_s, double latency_s)
      : server(OptionsOf(bytes_per_s, latency_s)),
        client(OptionsOf(bytes_per_s, latency_s)) {
    if (!server.status.ok() || !client.status.ok()) return;
    const auto endpoint = Connect(client, server);
    if (endpoint.ok()) to_server = *endpoint;
  }

  static TransportOptions OptionsOf(double bytes_per_s, double latency_s) {
    TransportOptions options;
    options.name = "inproc";
    options.link_bytes_per_s = bytes_per_s;
    options.link_latency_s = latency_s;
    return options;
  }

  Node server, client;
  EndpointId to_server = 0;
};

TEST(TransportLink, EachDirectionHasTheLatency) {
  LinkedNodes nodes(0, 0.05);
  ASSERT_NE(nodes.to_server, 0u);
  const TimePoint start = Clock::now();
  TimePoint arrived;
  nodes.server.on_message = [&](const Heard& message) {
    arrived = Clock::now();
    EXPECT_THAT(nodes.server.Send(message.from, "back"), IsOk());
  };
  ASSERT_THAT(nodes.client.Send(nodes.to_server, "there"), IsOk());
  ASSERT_TRUE(Drive({&nodes.server, &nodes.client},
                    [&] { return nodes.client.heard.size() == 1; }));
  EXPECT_GE(arrived - start, FromSeconds(0.05));
  EXPECT_GE(SecondsSince(start), 0.1);
  EXPECT_THAT(nodes.client.context->info().details,
              ::testing::HasSubstr("link of any rate, 0.05 s latency"));
}

// 100 KB at 10 MB/s take 10 ms each; the last of 5 arrives 50 ms later.
TEST(TransportLink, LatencyComesOnTopOfTheRate) {
  LinkedNodes nodes(10e6, 0.05);
  ASSERT_NE(nodes.to_server, 0u);
  const TimePoint start = Clock::now();
  for (int i = 0; i < 5; ++i) {
    ASSERT_THAT(
        nodes.client.Send(nodes.to_server, "", std::string(100000, 'p')),
        IsOk());
  }
  ASSERT_TRUE(Drive({&nodes.server, &nodes.client},
                    [&] { return nodes.server.heard.size() == 5; }));
  EXPECT_GE(SecondsSince(start), 0.1);
}

// One after the other they would take longer than Drive waits.
TEST(TransportLink, ManyMessagesAreOnTheirWayTogether) {
  constexpr size_t kMessages = 2000;
  LinkedNodes nodes(0, 0.05);
  ASSERT_NE(nodes.to_server, 0u);
  for (size_t i = 0; i < kMessages; ++i) {
    ASSERT_THAT(nodes.client.Send(nodes.to_server, absl::StrCat(i),
                                  Pattern(1000, static_cast<uint32_t>(i))),
                IsOk());
  }
  ASSERT_TRUE(Drive({&nodes.server, &nodes.client},
                    [&] { return nodes.server.heard.size() == kMessages; }));
  for (size_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(nodes.server.heard[i].header, absl::StrCat(i));
    ASSERT_EQ(nodes.server.heard[i].payload,
              Pattern(1000, static_cast<uint32_t>(i)));
  }
  EXPECT_TRUE(nodes.client.EachCompletedOnce());
}

TEST(TransportLink, CloseWaitsForWhatIsOnItsWay) {
  LinkedNodes nodes(0, 0.05);
  ASSERT_NE(nodes.to_server, 0u);
  ASSERT_THAT(nodes.client.Send(nodes.to_server, "left"), IsOk());
  ASSERT_THAT(nodes.client.Send(nodes.to_server, "queued"), IsOk());
  nodes.client.context->Close(nodes.to_server);
  ASSERT_TRUE(Drive({&nodes.server, &nodes.client}, [&] {
    return nodes.client.closed.count(nodes.to_server) > 0;
  }));
  EXPECT_EQ(nodes.server.heard.size(), 2u);
  EXPECT_TRUE(nodes.client.EachCompletedOnce());
  for (const auto& result : nodes.client.results) {
    EXPECT_THAT(result[0], IsOk());
  }
}

TEST(TransportLink, CloseCompletesWhatCannotLeaveInTime) {
  LinkedNodes nodes(1000, 0);
  ASSERT_NE(nodes.to_server, 0u);
  ASSERT_THAT(nodes.client.Send(nodes.to_server, "", std::string(100000, 'p')),
              IsOk());
  nodes.client.context->Close(nodes.to_server);
  ASSERT_TRUE(Drive({&nodes.server, &nodes.client}, [&] {
    return nodes.client.closed.count(nodes.to_server) > 0;
  }));
  ASSERT_TRUE(nodes.client.EachCompletedOnce());
  EXPECT_THAT(nodes.client.results[0][0],
              StatusIs(absl::StatusCode::kCancelled, ""));
}

}  // namespace
}  // namespace telegrad::testing
