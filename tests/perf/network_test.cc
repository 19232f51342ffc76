#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <future>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/network_device.h"
#include "base/socket.h"
#include "kvstore/job/control/job.h"
#include "perf/network/launch.h"
#include "perf/network/measurement.h"
#include "perf/network/sizes.h"
#include "tests/testing/status_matchers.h"

namespace telegrad::perf {
namespace {

using absl::StatusCode;
using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

// An address of this host that nobody listens at.
std::string FreeAddress() {
  const auto scheduler = Scheduler::Start({});
  return scheduler.ok() ? (*scheduler)->address() : "";
}

NetworkOptions RankOf(int rank, int ranks, const std::string& rendezvous) {
  NetworkOptions options;
  options.path.transport.name = "tcp";
  options.rank = rank;
  options.ranks = ranks;
  options.rendezvous = rendezvous;
  options.timeout_s = 30;
  return options;
}

absl::Status Nothing(const NetworkOptions&, WorkerGroup&) {
  return absl::OkStatus();
}

// Three rounds, in which each rank checks what it gets.
absl::Status GatherThrice(const NetworkOptions&, WorkerGroup& group) {
  const Rank rank(group);
  for (int round = 0; round < 3; ++round) {
    const auto all = rank.gather(absl::StrCat(round, ":", rank.rank));
    if (!all.ok()) return all.status();
    std::vector<std::string> expected;
    for (int each = 0; each < group.num_workers(); ++each) {
      expected.push_back(absl::StrCat(round, ":", each));
    }
    EXPECT_EQ(*all, expected);
  }
  return absl::OkStatus();
}

std::future<absl::Status> RunAsync(const NetworkOptions& options,
                                   Benchmark benchmark) {
  return std::async(std::launch::async, [options, benchmark] {
    return RunRanks(options, {}, benchmark);
  });
}

TEST(Ranks, ThatAreThreadsGetTheTextsOfAll) {
  NetworkOptions options;
  options.path.transport.name = "inproc";
  options.ranks = 3;
  EXPECT_THAT(RunRanks(options, {}, {.work = GatherThrice}), IsOk());
}

TEST(Ranks, OfHostsGetTheTextsOfAll) {
  const std::string address = FreeAddress();
  auto two = RunAsync(RankOf(2, 3, address), {.work = GatherThrice});
  auto one = RunAsync(RankOf(1, 3, address), {.work = GatherThrice});
  EXPECT_THAT(RunRanks(RankOf(0, 3, address), {}, {.work = GatherThrice}),
              IsOk());
  EXPECT_THAT(one.get(), IsOk());
  EXPECT_THAT(two.get(), IsOk());
}

TEST(Ranks, OfTwoWithTheSameAddressTheFirstIsRankZero) {
  const std::string address = FreeAddress();
  auto one = RunAsync(RankOf(-1, 2, address), {.work = GatherThrice});
  auto other = RunAsync(RankOf(-1, 2, address), {.work = GatherThrice});
  EXPECT_THAT(one.get(), IsOk());
  EXPECT_THAT(other.get(), IsOk());
}

TEST(Ranks, WhoDoesNotComeIsNamed) {
  NetworkOptions options = RankOf(0, 3, FreeAddress());
  options.timeout_s = 0.5;
  const absl::Status status = RunRanks(options, {}, {.work = Nothing});
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kJoinTimeout);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(options.rendezvous), HasSubstr("only this host"),
                    HasSubstr("missing: worker/1, worker/2")));
}

TEST(Ranks, NobodyThereIsSaidAtTheDeadline) {
  NetworkOptions options = RankOf(1, 2, FreeAddress());
  options.timeout_s = 0.2;
  const absl::Status status = RunRanks(options, {}, {.work = Nothing});
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kSchedulerLost);
  EXPECT_THAT(std::string(status.message()), HasSubstr(options.rendezvous));
}

TEST(Ranks, WhoIsLostIsNamed) {
  const std::string address = FreeAddress();
  auto one = RunAsync(RankOf(1, 2, address),
                      {.work = [](const NetworkOptions&, WorkerGroup&) {
                        return absl::DataLossError("mine");
                      }});
  const absl::Status zero =
      RunRanks(RankOf(0, 2, address), {}, {.work = GatherThrice});
  EXPECT_EQ(ExitCodeOf(zero), ExitCode::kPeerDied);
  EXPECT_THAT(std::string(zero.message()), HasSubstr("worker/1@"));
  EXPECT_THAT(one.get(), StatusIs(StatusCode::kDataLoss, "mine"));
}

TEST(Ranks, WhatRankZeroFailsWithEndsTheOthers) {
  const std::string address = FreeAddress();
  auto one = RunAsync(RankOf(1, 2, address), {.work = GatherThrice});
  const absl::Status zero =
      RunRanks(RankOf(0, 2, address), {},
               {.work = [](const NetworkOptions&, WorkerGroup&) {
                 return absl::DataLossError("mine");
               }});
  EXPECT_THAT(zero, StatusIs(StatusCode::kDataLoss, "mine"));
  const absl::Status ended = one.get();
  EXPECT_THAT(ExitCodeOf(ended),
              AnyOf(ExitCode::kPeerDied, ExitCode::kIntegrity));
}

TEST(Ranks, FlagsThatDifferAreNamed) {
  const std::string address = FreeAddress();
  NetworkOptions other = RankOf(1, 2, address);
  other.warmup = 7;
  auto one = RunAsync(other, {.facts = {{"--window", "2"}}, .work = Nothing});
  const absl::Status zero =
      RunRanks(RankOf(0, 2, address), {},
               {.facts = {{"--window", "1"}}, .work = Nothing});
  for (const absl::Status& status : {zero, one.get()}) {
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kMismatch);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("--window: worker/0 has 1, worker/1 has 2"),
                      HasSubstr("--warmup: worker/0 has 5, worker/1 has 7")));
  }
}

// `byte` 32 times, as --secret-file wants it.
std::string SecretFile(char byte) {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "ranks_secret_", std::string(1, byte));
  std::ofstream(path) << std::string(32, byte);
  chmod(path.c_str(), 0600);
  return path;
}

TEST(Ranks, ThatLackTheSecretAreRefused) {
  const std::string address = FreeAddress();
  NetworkOptions zero = RankOf(0, 2, address);
  zero.secret_file = SecretFile('s');
  auto root = RunAsync(zero, {.work = GatherThrice});
  NetworkOptions one = RankOf(1, 2, address);
  for (const std::string& wrong : {SecretFile('x'), std::string()}) {
    one.secret_file = wrong;
    EXPECT_EQ(ExitCodeOf(RunRanks(one, {}, {.work = GatherThrice})),
              ExitCode::kAuthentication);
  }
  one.secret_file = zero.secret_file;
  EXPECT_THAT(RunRanks(one, {}, {.work = GatherThrice}), IsOk());
  EXPECT_THAT(root.get(), IsOk());
}

TEST(Scheduling, BeyondLoopbackNeedsASecretOrTheWish) {
  const auto outside = OwnAddress("auto", "203.0.113.77");
  if (!outside.ok()) GTEST_SKIP() << outside.status();
  const std::string place =
      FormatHostPort(*outside, ParseHostPort(FreeAddress()).value().port);
  const auto refused = StartIfFirst(place, {});
  EXPECT_EQ(ExitCodeOf(refused.status()), ExitCode::kAuthentication);
  EXPECT_THAT(refused,
              StatusIs(StatusCode::kFailedPrecondition, "--secret-file"));
  EXPECT_THAT(StartIfFirst(place, {.insecure = true}), IsOk());
  const Secret secret = *Secret::Derive(std::string(32, 's'), "j");
  EXPECT_THAT(StartIfFirst(place, {.secret = secret}), IsOk());
}

TEST(Scheduling, OfTheSameAddressOneHasTheScheduler) {
  const std::string address = FreeAddress();
  const auto first = StartIfFirst(address, {});
  ASSERT_THAT(first, IsOk());
  ASSERT_NE(*first, nullptr);
  EXPECT_EQ((*first)->address(), address);
  const auto second = StartIfFirst(address, {});
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(*second, nullptr);
}

TEST(Scheduling, AddressOfAnotherHostIsNotListenedAt) {
  // Of a network that is only for documentation (RFC 5737).
  const auto scheduler = StartIfFirst("192.0.2.1:7777", {});
  ASSERT_THAT(scheduler, IsOk());
  EXPECT_EQ(*scheduler, nullptr);
}

TEST(Scheduling, WhatNamesNoHostIsRefused) {
  EXPECT_THAT(StartIfFirst("0.0.0.0:7777", {}),
              StatusIs(StatusCode::kInvalidArgument, "no host"));
  EXPECT_THAT(StartIfFirst("node1", {}),
              StatusIs(StatusCode::kInvalidArgument, ""));
}

}  // namespace
}  // namespace telegrad::perf
