#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/testing/status_matchers.h"
#include "tests/transport/bounce_pair.h"

namespace telegrad::testing {
namespace {

using absl::StatusCode;

class BounceInFragments : public ::testing::TestWithParam<const char*> {};

constexpr size_t kFragment = size_t{64} << 10;
constexpr BounceLimits kInFragments = {.fragment_bytes = kFragment};

TEST_P(BounceInFragments, FragmentsAreCopiedThereWhileOthersAreCopiedHere) {
  constexpr size_t kFragments = 50;
  Pair pair(GetParam(), true, true, kInFragments);
  const std::string text = Pattern(kFragments * kFragment - 5, 1);
  ASSERT_THAT(pair.Send(text), IsOk());
  ASSERT_TRUE(Drive({&pair.server, &pair.client},
                    [&] { return pair.theirs.num_copies > 0; }));
  EXPECT_LT(pair.ours.num_copies, kFragments - 1);
  ASSERT_THAT(pair.Send("behind it"), IsOk());
  ASSERT_TRUE(pair.Hears(2));
  EXPECT_EQ(pair.server.heard[0].header, text.substr(0, 8));
  EXPECT_TRUE(pair.Received(0) == text);
  EXPECT_EQ(pair.Received(1), "behind it");
  EXPECT_EQ(pair.ours.num_copies, kFragments + 1);
  EXPECT_EQ(pair.theirs.num_copies, kFragments + 1);
  EXPECT_TRUE(Drive({&pair.server, &pair.client},
                    [&] { return pair.EachEndedOnce(); }));
  EXPECT_FALSE(pair.client.is_completed_inline);
}

TEST_P(BounceInFragments, ALargeMessageTakesOnlyTheRing) {
  constexpr size_t kRing = kRingFragments * kFragment;
  Pair pair(GetParam(), true, true, kInFragments);
  pair.theirs.polls_per_copy = 5000;  // the network is faster
  const std::string text = Pattern(4 * kRing, 1);
  ASSERT_THAT(pair.Send(text), IsOk());
  ASSERT_THAT(pair.Send(text), IsOk());
  ASSERT_TRUE(pair.Hears(2));
  EXPECT_TRUE(pair.Received(1) == text);
  EXPECT_LE(pair.ours.most_pinned_bytes, kRing);
  // What the ring has no room for is copied on through one fragment.
  EXPECT_LE(pair.theirs.most_pinned_bytes, kRing + kFragment);
  EXPECT_GT(pair.theirs.most_running, 1u);
}

// It sends them whole.
TEST_P(BounceInFragments, PayloadsOfAPeerWithoutADeviceTakeOnlyTheRing) {
  constexpr size_t kRing = kRingFragments * kFragment;
  Pair pair(GetParam(), false, true, kInFragments);
  pair.theirs.polls_per_copy = 100;
  std::vector<std::string> sent;
  for (const size_t fragments : std::vector<size_t>{40, 1, 9, 1, 1, 20}) {
    sent.push_back(
        Pattern(fragments * kFragment, static_cast<uint32_t>(sent.size())));
    ASSERT_THAT(pair.client.Send(pair.to_server, "h", sent.back()), IsOk());
  }
  ASSERT_TRUE(pair.Hears(sent.size()));
  for (size_t i = 0; i < sent.size(); ++i) {
    EXPECT_TRUE(pair.Received(i) == sent[i]) << i;
  }
  EXPECT_LE(pair.theirs.most_pinned_bytes, kRing + kFragment);

  Pair within(GetParam(), false, true, kInFragments);
  ASSERT_THAT(within.client.Send(within.to_server, "h", Pattern(kRing)),
              IsOk());
  ASSERT_TRUE(within.Hears(1));
  EXPECT_EQ(within.theirs.num_copies, 1u);  // straight from pinned memory
}

TEST_P(BounceInFragments, ACopyThatFailsWithinAWholePayloadEndsItsEndpoint) {
  Pair pair(GetParam(), false, true, kInFragments);
  pair.theirs.fail_after = 5;
  const std::string text = Pattern(20 * kFragment, 1);
  ASSERT_THAT(pair.client.Send(pair.to_server, "h", text), IsOk());
  ASSERT_THAT(pair.client.Send(pair.to_server, "h", text), IsOk());
  ASSERT_TRUE(pair.Closes());
  EXPECT_THAT(pair.server.closed.begin()->second,
              StatusIs(StatusCode::kInternal, "the fake device is broken"));
  EXPECT_TRUE(pair.server.heard.empty());
  EXPECT_EQ(pair.theirs.num_running, 0u);
}

TEST_P(BounceInFragments, AWholePayloadThatHasArrivedIsHeardAfterThePeersEnd) {
  Pair pair(GetParam(), false, true, kInFragments);
  pair.theirs.polls_per_copy = 200;
  const std::string text = Pattern(20 * kFragment, 1);
  ASSERT_THAT(pair.client.Send(pair.to_server, "h", text), IsOk());
  ASSERT_TRUE(Drive({&pair.server, &pair.client},
                    [&] { return pair.theirs.num_running > 0; }));
  pair.client.context.reset();
  ASSERT_TRUE(
      Drive({&pair.server}, [&] { return !pair.server.closed.empty(); }));
  ASSERT_EQ(pair.server.heard.size(), 1u);
  EXPECT_TRUE(pair.Received(0) == text);
}

TEST_P(BounceInFragments, FragmentsAreJoinedWhereNothingIsStaged) {
  Pair to_host(GetParam(), true, false, kInFragments);
  const std::string text = Pattern(10 * kFragment + 1, 7);
  ASSERT_THAT(to_host.Send(text), IsOk());
  ASSERT_THAT(to_host.client.Send(to_host.to_server, "small", "one"), IsOk());
  ASSERT_THAT(to_host.Send(text), IsOk());
  ASSERT_TRUE(to_host.Hears(3));
  EXPECT_EQ(to_host.ours.num_copies, 22u);
  EXPECT_EQ(to_host.server.heard[0].header, text.substr(0, 8));
  EXPECT_TRUE(to_host.server.heard[0].payload == text);
  EXPECT_EQ(to_host.server.heard[1].payload, "one");
  EXPECT_TRUE(to_host.server.heard[2].payload == text);
  EXPECT_TRUE(to_host.server.is_in_order);

  Pair from_host(GetParam(), false, true, kInFragments);
  ASSERT_THAT(from_host.client.Send(from_host.to_server, "h", text), IsOk());
  ASSERT_TRUE(from_host.Hears(1));
  EXPECT_TRUE(from_host.Received(0) == text);
}

TEST_P(BounceInFragments, HostMemoryStaysWholeAndMayTakeWhatComesInFragments) {
  Pair pair(GetParam(), true, true, kInFragments);
  pair.server.place = nullptr;
  const std::string text = Pattern(20 * kFragment, 7);
  ASSERT_THAT(pair.Send(text), IsOk());
  ASSERT_THAT(pair.client.Send(pair.to_server, "host", text), IsOk());
  ASSERT_TRUE(pair.Hears(2));
  EXPECT_TRUE(pair.server.heard[0].payload == text);
  EXPECT_TRUE(pair.server.heard[1].payload == text);
  EXPECT_EQ(pair.ours.num_copies, 20u);
  EXPECT_EQ(pair.theirs.num_copies, 0u);
}

TEST_P(BounceInFragments, ACopyThatFailsWithinAMessageEndsItOnce) {
  Pair pair(GetParam(), true, true, kInFragments);
  pair.ours.fail_after = 5;
  ASSERT_THAT(pair.Send(Pattern(20 * kFragment, 1)), IsOk());
  ASSERT_THAT(pair.Send("behind it"), IsOk());
  ASSERT_TRUE(pair.Closes());
  EXPECT_THAT(pair.client.closed[pair.to_server],
              StatusIs(StatusCode::kInternal, "the fake device is broken"));
  ASSERT_TRUE(pair.EachEndedOnce());
  EXPECT_THAT(pair.results[0][0], StatusIs(StatusCode::kInternal, ""));
  EXPECT_TRUE(pair.server.heard.empty());
  EXPECT_EQ(pair.ours.num_running + pair.theirs.num_running, 0u);
}

TEST_P(BounceInFragments, APeerThatEndsWithinAMessageIsNotHeardOfIt) {
  Pair pair(GetParam(), true, true, kInFragments);
  ASSERT_THAT(pair.Send(Pattern(100 * kFragment, 1)), IsOk());
  ASSERT_TRUE(Drive({&pair.server, &pair.client},
                    [&] { return pair.theirs.num_copies > 0; }));
  pair.client.context.reset();
  ASSERT_TRUE(
      Drive({&pair.server}, [&] { return !pair.server.closed.empty(); }));
  EXPECT_TRUE(pair.server.heard.empty());
  EXPECT_EQ(pair.theirs.num_running, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, BounceInFragments,
                         ::testing::Values("inproc", "tcp"),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace telegrad::testing
