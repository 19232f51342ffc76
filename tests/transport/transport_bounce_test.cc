#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/device_copy.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/bounce_pair.h"
#include "transport/transport.h"

namespace telegrad::testing {
namespace {

using absl::StatusCode;

class BounceOver : public ::testing::TestWithParam<const char*> {};

TEST_P(BounceOver, PayloadsGoFromDeviceToDevice) {
  Pair pair(GetParam());
  const std::vector<size_t> sizes = {0, 1, 4096, 100'001, size_t{2} << 20};
  for (size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_THAT(pair.Send(Pattern(sizes[i], static_cast<uint32_t>(i))), IsOk());
  }
  ASSERT_TRUE(pair.Hears(sizes.size()));
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::string text = Pattern(sizes[i], static_cast<uint32_t>(i));
    EXPECT_EQ(pair.server.heard[i].header, text.substr(0, 8));
    EXPECT_TRUE(pair.Received(i) == text) << sizes[i];
  }
  EXPECT_TRUE(Drive({&pair.server, &pair.client},
                    [&] { return pair.EachEndedOnce(); }));
  EXPECT_GT(pair.ours.most_running, 1u);  // one is copied beside another
  EXPECT_EQ(pair.ours.num_copies, sizes.size() - 1);
}

TEST_P(BounceOver, TheOtherSideNeedsNoneOfIt) {
  Pair to_host(GetParam(), true, false);
  const std::string text = Pattern(200'000, 7);
  ASSERT_THAT(to_host.Send(text), IsOk());
  ASSERT_TRUE(to_host.Hears(1));
  EXPECT_TRUE(to_host.server.heard[0].payload == text);

  Pair from_host(GetParam(), false, true);
  ASSERT_THAT(from_host.client.Send(from_host.to_server, "h", text), IsOk());
  ASSERT_TRUE(from_host.Hears(1));
  EXPECT_TRUE(from_host.Received(0) == text);
}

TEST_P(BounceOver, HostPayloadsKeepTheirPlaceBetweenOthers) {
  Pair pair(GetParam(), true, false);
  pair.ours.polls_per_copy = 50;
  for (int i = 0; i < 20; ++i) {
    if (i % 3 == 0) {
      ASSERT_THAT(pair.Send(absl::StrCat("message ", i)), IsOk());
    } else {
      ASSERT_THAT(
          pair.client.Send(pair.to_server, "", absl::StrCat("message ", i)),
          IsOk());
    }
  }
  ASSERT_TRUE(pair.Hears(20));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(pair.server.heard[static_cast<size_t>(i)].payload,
              absl::StrCat("message ", i));
  }
  EXPECT_FALSE(pair.client.is_completed_inline);
}

TEST_P(BounceOver, PinnedMemoryIsBoundedAndUsedAgain) {
  constexpr size_t kLimit = size_t{256} << 10;
  Pair pair(GetParam(), true, true, {.staging_bytes = kLimit});
  constexpr size_t kMessages = 60;
  for (size_t i = 0; i < kMessages; ++i) {
    ASSERT_THAT(pair.Send(Pattern(size_t{64} << 10, static_cast<int>(i))),
                IsOk());
  }
  ASSERT_TRUE(pair.Hears(kMessages));
  for (size_t i = 0; i < kMessages; ++i) {
    EXPECT_TRUE(pair.Received(i) ==
                Pattern(size_t{64} << 10, static_cast<int>(i)));
  }
  EXPECT_LE(pair.ours.most_pinned_bytes, kLimit);
}

TEST_P(BounceOver, OneMessageMayBeLargerThanTheLimit) {
  Pair pair(GetParam(), true, true, {.staging_bytes = 4096});
  const std::string text = Pattern(1'000'000, 3);
  ASSERT_THAT(pair.Send(text), IsOk());
  ASSERT_THAT(pair.Send(text), IsOk());
  ASSERT_TRUE(pair.Hears(2));
  EXPECT_TRUE(pair.Received(1) == text);
}

// Its ring is full, and no copy out of it ends.
TEST_P(BounceOver, ASlowDeviceKeepsNoOtherEndpointWaiting) {
  constexpr size_t kMessages = 20;
  constexpr size_t kBytes = 4096;
  Pair pair(GetParam(), false, true, {.fragment_bytes = kBytes});
  char small[8] = {};
  pair.server.place = [&, on_device = pair.server.place](size_t size) {
    return size == kBytes ? on_device(size) : Bytes(small, size);
  };
  pair.theirs.is_stuck = true;
  for (uint32_t i = 0; i < kMessages; ++i) {
    ASSERT_THAT(pair.client.Send(pair.to_server, "slow", Pattern(kBytes, i)),
                IsOk());
  }
  Node other(OptionsNamed(GetParam()));
  const auto to_server = other.context->Connect(pair.address);
  ASSERT_THAT(to_server, IsOk());
  ASSERT_THAT(other.Send(*to_server, "fast", "payload"), IsOk());
  EXPECT_TRUE(Drive(
      {&pair.server, &pair.client, &other},
      [&] {
        return !pair.server.heard.empty() && pair.places.size() == kMessages;
      },
      std::chrono::milliseconds(1500)));
  ASSERT_EQ(pair.server.heard.size(), 1u);
  EXPECT_EQ(pair.server.heard[0].header, "fast");
  EXPECT_TRUE(pair.server.closed.empty());
  // Waiting for the device within Progress asks it 30 million times a second.
  EXPECT_LT(pair.theirs.num_vain_polls, 5'000'000u);

  pair.theirs.is_stuck = false;
  ASSERT_TRUE(pair.Hears(kMessages + 1));
  for (uint32_t i = 0; i < kMessages; ++i) {
    EXPECT_TRUE(pair.Received(i) == Pattern(kBytes, i)) << i;
  }
}

TEST_P(BounceOver, CloseSendsFirst) {
  Pair pair(GetParam());
  for (int i = 0; i < 10; ++i) {
    ASSERT_THAT(pair.Send(Pattern(50'000, i)), IsOk());
  }
  pair.client.context->Close(pair.to_server);
  EXPECT_THAT(pair.Send("too late"),
              StatusIs(StatusCode::kFailedPrecondition, "not open"));
  pair.results.pop_back();
  ASSERT_TRUE(pair.Closes());
  EXPECT_EQ(pair.server.heard.size(), 10u);
  EXPECT_TRUE(pair.EachEndedOnce());
  for (const auto& result : pair.results) EXPECT_THAT(result[0], IsOk());
  EXPECT_THAT(pair.client.closed[pair.to_server],
              StatusIs(StatusCode::kCancelled, ""));
}

TEST_P(BounceOver, ACopyThatFailsEndsTheSendersEndpoint) {
  Pair pair(GetParam());
  pair.ours.fail_after = 2;
  for (int i = 0; i < 5; ++i) {
    ASSERT_THAT(pair.Send(Pattern(5000, i)), IsOk());
  }
  ASSERT_TRUE(pair.Closes());
  EXPECT_THAT(pair.client.closed[pair.to_server],
              StatusIs(StatusCode::kInternal, "the fake device is broken"));
  ASSERT_TRUE(pair.EachEndedOnce());
  for (size_t i = 2; i < 5; ++i) {
    EXPECT_THAT(pair.results[i][0],
                StatusIs(StatusCode::kInternal, "fake device"));
  }
  EXPECT_LE(pair.server.heard.size(), 2u);
  EXPECT_EQ(pair.ours.num_running, 0u);
}

TEST_P(BounceOver, ACopyThatFailsEndsTheReceiversEndpoint) {
  Pair pair(GetParam());
  pair.theirs.fail_after = 1;
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(pair.Send(Pattern(5000, i)), IsOk());
  }
  ASSERT_TRUE(pair.Closes());
  EXPECT_EQ(pair.server.heard.size(), 1u);
  EXPECT_THAT(pair.server.closed.begin()->second,
              StatusIs(StatusCode::kInternal, "the fake device is broken"));
  EXPECT_TRUE(pair.EachEndedOnce());
}

TEST_P(BounceOver, WithoutPinnedMemoryMessagesAreRefused) {
  Pair sender(GetParam());
  sender.ours.has_host_memory = false;
  ASSERT_THAT(sender.Send("text"), IsOk());
  ASSERT_TRUE(sender.Closes());
  EXPECT_TRUE(sender.EachEndedOnce());

  Pair receiver(GetParam());
  receiver.theirs.has_host_memory = false;
  ASSERT_THAT(receiver.Send("text"), IsOk());
  ASSERT_TRUE(receiver.Closes());
  EXPECT_THAT(receiver.server.closed.begin()->second,
              StatusIs(StatusCode::kCancelled, "pinned memory"));
  EXPECT_TRUE(receiver.server.heard.empty());
}

TEST_P(BounceOver, WhatHasArrivedIsHeardBeforeThePeersEnd) {
  Pair pair(GetParam());
  pair.theirs.polls_per_copy = 200;
  ASSERT_THAT(pair.Send(Pattern(5000, 1)), IsOk());
  ASSERT_TRUE(Drive({&pair.client, &pair.server},
                    [&] { return pair.theirs.num_running > 0; }));
  pair.client.context.reset();
  ASSERT_TRUE(
      Drive({&pair.server}, [&] { return !pair.server.closed.empty(); }));
  ASSERT_EQ(pair.server.heard.size(), 1u);
  EXPECT_TRUE(pair.Received(0) == Pattern(5000, 1));
}

TEST_P(BounceOver, WhoHasClosedHearsNothingMore) {
  Pair pair(GetParam());
  ASSERT_THAT(pair.Send("first"), IsOk());
  ASSERT_TRUE(pair.Hears(1));
  ASSERT_THAT(pair.Send("second"), IsOk());
  pair.server.context->Close(pair.server.accepted[0]);
  ASSERT_TRUE(pair.Closes());
  EXPECT_EQ(pair.server.heard.size(), 1u);
  EXPECT_TRUE(pair.EachEndedOnce());
}

TEST_P(BounceOver, EndsInTheMiddleAndGivesAllMemoryBack) {
  Pair pair(GetParam());
  pair.ours.polls_per_copy = pair.theirs.polls_per_copy = 1000;
  for (int i = 0; i < 8; ++i) {
    ASSERT_THAT(pair.Send(Pattern(100'000, i)), IsOk());
  }
  for (int i = 0; i < 20; ++i) {
    pair.client.context->Progress(Clock::now());
    pair.server.context->Progress(Clock::now());
  }
  EXPECT_GT(pair.ours.num_pinned, 0u);
  pair.client.context.reset();
  pair.server.context.reset();
  EXPECT_EQ(pair.ours.num_pinned + pair.theirs.num_pinned, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, BounceOver, ::testing::Values("inproc", "tcp"),
                         [](const auto& tested) { return tested.param; });

TEST(TransportMemory, OfDevicesIsRefusedUnlessAskedFor) {
  FakeDevice device;
  const auto memory = device.Allocate(100);
  for (const char* name : {"tcp", "inproc"}) {
    Node server(OptionsNamed(name));
    Node client(OptionsNamed(name));
    const auto to = *client.context->Connect(*server.context->Listen());
    EXPECT_FALSE(client.context->Takes(DeviceKind::kCuda));
    EXPECT_THAT(client.context->Send(to, {}, memory->view(), nullptr),
                StatusIs(StatusCode::kUnimplemented, "host memory only"));
  }
}

TEST(TransportMemory, UnknownWaysAreErrors) {
  TransportOptions options = OptionsNamed("tcp");
  options.memory = "sideways";
  EXPECT_THAT(Node(options).status,
              StatusIs(StatusCode::kInvalidArgument,
                       "none of host, staged, direct, auto"));
}

TEST(TransportMemory, WithoutADeviceAutoIsTheHostsAndTheRestAreErrors) {
  std::string why_not;
  if (kernels::MakeCudaCopier(&why_not) != nullptr) {
    GTEST_SKIP() << "there is a CUDA device";
  }
  TransportOptions options = OptionsNamed("tcp");
  options.memory = "auto";
  Node node(options);
  ASSERT_THAT(node.status, IsOk());
  EXPECT_FALSE(node.context->Takes(DeviceKind::kCuda));
  for (const char* memory : {"staged", "direct"}) {
    options.memory = memory;
    EXPECT_THAT(Node(options).status,
                StatusIs(StatusCode::kUnavailable, why_not));
  }
}

}  // namespace
}  // namespace telegrad::testing
