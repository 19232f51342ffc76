#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/status_matchers.h"
#include "tests/transport/transport_node.h"
#include "transport/transport.h"

namespace telegrad::testing {
namespace {

TEST(TransportRegistry, UnknownNameListsWhatThereIs) {
  TransportOptions options;
  options.name = "pigeon";
  EXPECT_THAT(Node(options).status,
              StatusIs(absl::StatusCode::kNotFound, "inproc"));
}

TEST(TransportRegistry, DescriptionHasOneLinePerTransport) {
  EXPECT_THAT(DescribeTransports(),
              ::testing::MatchesRegex("ucx: .+\nofi: .+\ninproc: .+\n"));
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
  const auto address = server.context->Listen();
  ASSERT_THAT(address, IsOk());
  const auto endpoint = client.context->Connect(*address);
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

TEST(TransportLink, CloseCompletesWhatCannotLeaveInTime) {
  TransportOptions options;
  options.name = "inproc";
  options.link_bytes_per_s = 1000;
  Node server(options), client(options);
  const auto address = server.context->Listen();
  ASSERT_THAT(address, IsOk());
  const auto endpoint = client.context->Connect(*address);
  ASSERT_THAT(endpoint, IsOk());
  ASSERT_THAT(client.Send(*endpoint, "", std::string(100000, 'p')), IsOk());
  client.context->Close(*endpoint);
  ASSERT_TRUE(Drive({&server, &client},
                    [&] { return client.closed.count(*endpoint) > 0; }));
  ASSERT_TRUE(client.EachCompletedOnce());
  EXPECT_THAT(client.results[0][0], StatusIs(absl::StatusCode::kCancelled, ""));
}

}  // namespace
}  // namespace telegrad::testing
