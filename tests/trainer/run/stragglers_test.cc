#include "trainer/run/stragglers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Workers of 10 steps of 100 ms that differ in nothing.
std::vector<StepShares> Alike(size_t num_workers) {
  return std::vector<StepShares>(num_workers, {.steps = 10,
                                               .step_s = 1,
                                               .compute_s = 0.4,
                                               .codec_s = 0.1,
                                               .network_s = 0.2});
}

std::vector<std::string> Named(const std::vector<StepShares>& workers) {
  std::vector<std::string> lines;
  for (const Straggler& each : FindStragglers(workers)) {
    lines.push_back(ToText(each));
  }
  return lines;
}

TEST(Stragglers, AreNamedWithTheirCause) {
  EXPECT_THAT(Named(Alike(4)), IsEmpty());
  auto workers = Alike(4);
  workers[3].compute_s = 2;
  EXPECT_THAT(Named(workers),
              ElementsAre("straggler worker/3: 5.0 times the median, compute: "
                          "200 ms, not 40 ms"));
  workers = Alike(3);
  workers[0].codec_s = 0.3;
  EXPECT_THAT(Named(workers),
              ElementsAre("straggler worker/0: 3.0 times the median, encode: "
                          "30 ms, not 10 ms"));
  workers = Alike(3);
  workers[1].network_s = 1;
  EXPECT_THAT(Named(workers),
              ElementsAre("straggler worker/1: 5.0 times the median, network: "
                          "100 ms, not 20 ms"));
}

TEST(Stragglers, HaveTheCauseThatCostsMost) {
  auto workers = Alike(3);
  workers[1].network_s = 1;
  workers[1].compute_s = 1.5;
  ASSERT_EQ(FindStragglers(workers).size(), 1u);
  EXPECT_EQ(FindStragglers(workers)[0].cause, "compute");
}

TEST(Stragglers, OfTwoAreNamedByTheOther) {
  auto workers = Alike(2);
  workers[0].compute_s = 0.9;
  EXPECT_THAT(Named(workers),
              ElementsAre("straggler worker/0: 2.2 times the median, compute: "
                          "90 ms, not 40 ms"));
  workers[1].compute_s = 0;
  EXPECT_THAT(Named(workers),
              ElementsAre("straggler worker/0: more than 100.0 times the "
                          "median, compute: 90 ms, not 0 ms"));
}

TEST(Stragglers, AreNotNamedForLittle) {
  auto workers = Alike(3);
  workers[0].compute_s = 0.79;  // less than twice
  workers[1].codec_s = 0.19;    // less than a tenth of a step
  EXPECT_THAT(Named(workers), IsEmpty());
  workers[0].compute_s = 0.81;
  workers[1].codec_s = 0.21;
  EXPECT_EQ(Named(workers).size(), 2u);
  workers[2].steps = 4;
  EXPECT_THAT(Named(workers), IsEmpty());
  EXPECT_THAT(Named({workers[0]}), IsEmpty());
}

TEST(Stragglers, AreNotNamedForWhatNobodyWaitsFor) {
  auto workers = Alike(2);
  workers[0].network_s = 0.8;
  EXPECT_EQ(Named(workers).size(), 1u);
  workers[1].compute_s = 0.92;  // of 1, so that it waits 8 ms of 100
  workers[0].compute_s = 0.9;
  EXPECT_THAT(Named(workers), IsEmpty());
  workers[0].compute_s = 3;  // is waited for, whatever else overlaps
  EXPECT_EQ(Named(workers).size(), 1u);
  workers = Alike(2);
  for (StepShares& each : workers) {
    each.server = 1;
    each.answer_s = 0.08;
    each.answers_s = 0.02;
  }
  EXPECT_EQ(Named(workers).size(), 1u);
  for (StepShares& each : workers) each.compute_s = 0.95;
  EXPECT_THAT(Named(workers), IsEmpty());
}

// The one that pushes for a host encodes and sends for all of it.
TEST(Stragglers, AreSoughtAmongThoseThatDoTheSame) {
  auto workers = Alike(4);
  for (const size_t rank : {1, 3}) {
    workers[rank].pushes = false;
    workers[rank].network_s = workers[rank].codec_s = 0;
  }
  EXPECT_THAT(Named(workers), IsEmpty());
  workers[2].network_s = 0.8;
  EXPECT_EQ(Named(workers).size(), 1u);
  workers[1].compute_s = 0.9;
  EXPECT_EQ(Named(workers).size(), 2u);
}

TEST(Stragglers, AreServersThatMostWorkersWaitFor) {
  auto workers = Alike(3);
  for (const size_t rank : {0, 1}) {
    workers[rank].server = 1;
    workers[rank].answer_s = 0.08;
    workers[rank].answers_s = 0.02;
    EXPECT_EQ(FindStragglers(workers).size(), rank);
  }
  EXPECT_THAT(Named(workers),
              ElementsAre("straggler server/1: 4.0 times the median, server: "
                          "80 ms, not 20 ms"));
  workers[1].server = 0;
  EXPECT_THAT(Named(workers), IsEmpty());
}

TEST(Stragglers, TravelAsTextAndAnyBytesEndWell) {
  StepShares shares = Alike(1)[0];
  shares.pushes = false;
  shares.server = 3;
  shares.answer_s = 0.25;
  const std::string text = ToText(shares);
  ASSERT_TRUE(ReadShares(text).has_value());
  EXPECT_EQ(ToText(*ReadShares(text)), text);
  for (const char* bad :
       {"", "1 2 3", "1 1 1 1 1 1 1 1", "x 1 1 1 1 1 1 1 1",
        "1 1 1 1 1 1 1 1 1 1", "-1 1 1 1 1 1 1 1 1", "1 -1 1 1 1 1 1 1 1",
        "1 nan 1 1 1 1 1 1 1", "1 1 1 1 inf 1 1 1 1", "1 1 1 1 1 1 1.5 1 1"}) {
    EXPECT_FALSE(ReadShares(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace telegrad
