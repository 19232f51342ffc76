#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/network_device.h"
#include "base/socket.h"
#include "perf/network/rendezvous.h"
#include "perf/network/sizes.h"
#include "tests/testing/status_matchers.h"

namespace telegrad::perf {
namespace {

using absl::StatusCode;
using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;
using ::testing::ElementsAre;

TEST(Sizes, ListsAndSweepsAreRead) {
  EXPECT_THAT(*ParseSizes("4K,64K,1M"), ElementsAre(4096, 65536, 1 << 20));
  EXPECT_THAT(*ParseSizes("0"), ElementsAre(0));
  EXPECT_THAT(*ParseSizes("8:64:x2"), ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(*ParseSizes("8:100"), ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(*ParseSizes("0:9:+4"), ElementsAre(0, 4, 8));
}

TEST(Sizes, WhatIsNoneIsRefused) {
  for (const char* text : {"", "4Q", "-1", "4,,5", "8:4", "0:8:x2", "1:8:x1",
                           "1:8:+0", "1:8:2", "1:2:x2:3", "2G:1048577M:+1",
                           "18446744073709551615", "17592186044416M"}) {
    EXPECT_THAT(ParseSizes(text), StatusIs(StatusCode::kInvalidArgument, ""))
        << text;
  }
}

TEST(Sizes, AreShownAsTheyAreGiven) {
  EXPECT_EQ(FormatSize(0), "0");
  EXPECT_EQ(FormatSize(1000), "1000");
  EXPECT_EQ(FormatSize(65536), "64K");
  EXPECT_EQ(FormatSize(size_t{3} << 30), "3G");
}

TimePoint InTime() { return Clock::now() + std::chrono::seconds(30); }

// Three rounds; each rank checks what it gets.
void GatherThrice(Rendezvous& rendezvous, int rank) {
  for (int round = 0; round < 3; ++round) {
    const auto all =
        rendezvous.Gather(absl::StrCat(round, ":", rank), InTime());
    ASSERT_THAT(all, IsOk());
    EXPECT_THAT(
        *all, ElementsAre(absl::StrCat(round, ":0"), absl::StrCat(round, ":1"),
                          absl::StrCat(round, ":2")));
  }
}

TEST(Rendezvous, GivesAllTextsToAllOverTcp) {
  const auto root = RendezvousRoot::Listen("127.0.0.1:0");
  ASSERT_THAT(root, IsOk());
  std::vector<std::thread> threads;
  for (const int rank : {2, 1}) {
    threads.emplace_back([&, rank] {
      const auto member = JoinRendezvous((*root)->address(), rank, 3, InTime());
      ASSERT_THAT(member, IsOk());
      EXPECT_EQ((*member)->own_ip(), "127.0.0.1");
      GatherThrice(**member, rank);
    });
  }
  const auto self = (*root)->Accept(3, InTime());
  ASSERT_THAT(self, IsOk());
  EXPECT_EQ((*self)->own_ip(), "127.0.0.1");
  GatherThrice(**self, 0);
  for (std::thread& thread : threads) thread.join();
}

TEST(Rendezvous, GivesAllTextsToAllThreads) {
  const auto all = LocalRendezvous(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back(
        [&, rank] { GatherThrice(*all[static_cast<size_t>(rank)], rank); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Rendezvous, NamesWhoDoesNotCome) {
  const auto root = RendezvousRoot::Listen("127.0.0.1:0");
  ASSERT_THAT(root, IsOk());
  std::thread joiner([&] {
    // Of another size: it is none of these ranks.
    (void)JoinRendezvous((*root)->address(), 1, 9, InTime());
    (void)JoinRendezvous((*root)->address(), 2, 4, InTime());
  });
  const auto self =
      (*root)->Accept(4, Clock::now() + std::chrono::milliseconds(500));
  joiner.join();
  EXPECT_THAT(self, StatusIs(StatusCode::kDeadlineExceeded, "of 4"));
  EXPECT_THAT(self, StatusIs(StatusCode::kDeadlineExceeded, "1,"));
}

TEST(Rendezvous, LostRankIsNamed) {
  const auto root = RendezvousRoot::Listen("127.0.0.1:0");
  ASSERT_THAT(root, IsOk());
  std::thread joiner([&] {
    ASSERT_THAT(JoinRendezvous((*root)->address(), 1, 2, InTime()), IsOk());
  });
  const auto self = (*root)->Accept(2, InTime());
  joiner.join();
  ASSERT_THAT(self, IsOk());
  EXPECT_THAT((*self)->Gather("mine", InTime()),
              StatusIs(StatusCode::kUnavailable, "rank 1"));
}

TEST(Rendezvous, NobodyThereIsReportedAtTheDeadline) {
  std::string address;
  {
    const auto root = RendezvousRoot::Listen("127.0.0.1:0");
    ASSERT_THAT(root, IsOk());
    address = (*root)->address();
  }
  EXPECT_THAT(JoinRendezvous(address, 1, 2,
                             Clock::now() + std::chrono::milliseconds(100)),
              StatusIs(StatusCode::kDeadlineExceeded, address));
}

// That nobody listens at.
std::string FreeAddress() {
  const auto root = RendezvousRoot::Listen("127.0.0.1:0");
  return root.ok() ? (*root)->address() : "";
}

TEST(Rendezvous, AdmitsOnlyThoseWithTheSecret) {
  const std::string material(32, 's');
  const Secret secret = *Secret::Derive(material, "telegrad-perf");
  const Secret other = *Secret::Derive(material, "another job");
  const auto root = RendezvousRoot::Listen("127.0.0.1:0", {.secret = secret});
  ASSERT_THAT(root, IsOk());
  std::thread members([&] {
    for (const Secret& wrong : {other, Secret()}) {
      EXPECT_EQ(ExitCodeOf(JoinRendezvous((*root)->address(), 1, 2, InTime(),
                                          {.secret = wrong})
                               .status()),
                ExitCode::kAuthentication);
    }
    EXPECT_THAT(
        JoinRendezvous((*root)->address(), 1, 2, InTime(), {.secret = secret}),
        IsOk());
  });
  EXPECT_THAT((*root)->Accept(2, InTime()), IsOk());
  members.join();
}

TEST(Rendezvous, BeyondLoopbackNeedsASecretOrTheWish) {
  const auto outside = OwnAddress("auto", "203.0.113.77");
  if (!outside.ok()) GTEST_SKIP() << outside.status();
  const std::string place = FormatHostPort(*outside, 0);
  const auto refused = RendezvousRoot::Listen(place);
  EXPECT_EQ(ExitCodeOf(refused.status()), ExitCode::kAuthentication);
  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kFailedPrecondition, "--secret-file"));
  EXPECT_THAT(RendezvousRoot::Listen(place, {.insecure = true}), IsOk());
  const Secret secret = *Secret::Derive(std::string(32, 's'), "j");
  EXPECT_THAT(RendezvousRoot::Listen(place, {.secret = secret}), IsOk());
}

TEST(Rendezvous, OfTheSameAddressOneListens) {
  const std::string address = FreeAddress();
  const auto first = RendezvousRoot::ListenIfFirst(address);
  ASSERT_THAT(first, IsOk());
  ASSERT_NE(*first, nullptr);
  const auto second = RendezvousRoot::ListenIfFirst(address);
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(*second, nullptr);
}

TEST(Rendezvous, AddressIsFreeForTheNextJobWhenAllAreThere) {
  const std::string address = FreeAddress();
  const auto root = RendezvousRoot::ListenIfFirst(address);
  ASSERT_THAT(root, IsOk());
  std::thread joiner([&] {
    const auto member = JoinRendezvous(address, 1, 2, InTime());
    ASSERT_THAT(member, IsOk());
    EXPECT_THAT((*member)->Gather("1", InTime()), IsOk());
  });
  const auto self = (*root)->Accept(2, InTime());
  ASSERT_THAT(self, IsOk());
  const auto next = RendezvousRoot::ListenIfFirst(address);
  ASSERT_THAT(next, IsOk());
  EXPECT_NE(*next, nullptr);
  EXPECT_THAT((*self)->Gather("0", InTime()), IsOk());
  joiner.join();
}

TEST(Rendezvous, AddressOfAnotherHostIsNotListenedAt) {
  // Of a network that is only for documentation (RFC 5737).
  const auto root = RendezvousRoot::ListenIfFirst("192.0.2.1:7777");
  ASSERT_THAT(root, IsOk());
  EXPECT_EQ(*root, nullptr);
}

TEST(Rendezvous, WhatNamesNoHostIsRefused) {
  EXPECT_THAT(RendezvousRoot::ListenIfFirst("0.0.0.0:7777"),
              StatusIs(StatusCode::kInvalidArgument, "no host"));
  EXPECT_THAT(RendezvousRoot::ListenIfFirst("node1"),
              StatusIs(StatusCode::kInvalidArgument, ""));
}

}  // namespace
}  // namespace telegrad::perf
