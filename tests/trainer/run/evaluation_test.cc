#include "trainer/run/evaluation.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "tests/kvstore/cluster.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;

// Of two elements, one weight and one buffer.
class TwoNumbers : public Network {
 public:
  explicit TwoNumbers(float statistic) : buffer_{statistic, -statistic} {
    parameters_.push_back(
        {.name = "w", .shape = {1}, .num_elements = 1, .weight = &weight_});
    buffers_.push_back(
        {.name = "b", .shape = {2}, .num_elements = 2, .weight = buffer_});
  }
  const std::vector<Parameter>& parameters() const override {
    return parameters_;
  }
  const std::vector<Parameter>& buffers() const override { return buffers_; }
  BatchResult ForwardBackward(const float*, const int64_t*, int64_t,
                              const Hooks&) override {
    return {};
  }
  bool ScaleGradients(float) override { return true; }
  void ClipGradients(float) override {}
  // The number of images is what it gets right.
  BatchResult Evaluate(const float*, const int64_t*, int64_t n) override {
    return {.loss_sum = 0.5 * static_cast<double>(n),
            .num_correct = n,
            .num_samples = n};
  }

 private:
  float weight_ = 3;
  float buffer_[2];
  std::vector<Parameter> parameters_;
  std::vector<Parameter> buffers_;
};

std::vector<Replica> TwoDevices(float first) {
  std::vector<Replica> replicas(2);
  replicas[0].network = std::make_unique<TwoNumbers>(first);
  replicas[1].network = std::make_unique<TwoNumbers>(first + 2);
  return replicas;
}

// Two workers with two devices each: 1, 3 and 10, 12.
std::vector<float> Agreed(bool from_first_worker) {
  testing::Cluster cluster(testing::Job(2));
  std::vector<float> firsts;
  Mutex mutex;
  cluster.Run([&](KVStore& store) {
    WorkerGroup& group = store.group();
    std::vector<Replica> replicas = TwoDevices(group.rank() == 0 ? 1 : 10);
    EXPECT_THAT(AgreeOnBuffers(group, replicas, from_first_worker), IsOk());
    EXPECT_EQ(DigestOf(*replicas[0].network), DigestOf(*replicas[1].network));
    MutexLock lock(&mutex);
    for (const Replica& replica : replicas) {
      const float* values = replica.network->buffers()[0].weight;
      EXPECT_EQ(values[1], -values[0]);
      firsts.push_back(values[0]);
    }
  });
  return firsts;
}

// A worker's seconds of 100,000 steps are more than what Gather takes.
TEST(GatherLarge, TakesPayloadsOfDifferentSizes) {
  constexpr size_t kMiB = size_t{1} << 20;
  const std::vector<std::vector<size_t>> cases = {
      {2 * kMiB + 3, 5}, {0, kMiB}, {0, 0}};
  testing::Cluster cluster(testing::Job(2));
  cluster.Run([&](KVStore& store) {
    WorkerGroup& group = store.group();
    for (const std::vector<size_t>& sizes : cases) {
      const auto own = static_cast<size_t>(group.rank());
      const auto all =
          GatherLarge(group, "large",
                      std::string(sizes[own], group.rank() == 0 ? 'a' : 'b'));
      ASSERT_THAT(all, IsOk());
      ASSERT_EQ(all->size(), 2u);
      EXPECT_EQ((*all)[0], std::string(sizes[0], 'a'));
      EXPECT_EQ((*all)[1], std::string(sizes[1], 'b'));
    }
  });
}

TEST(AgreeOnBuffers, TakesTheMeanOverWorkersAndDevices) {
  EXPECT_EQ(Agreed(false), std::vector<float>(4, 6.5f));
}

TEST(AgreeOnBuffers, OrThoseOfTheFirstWorkersFirstDevice) {
  EXPECT_EQ(Agreed(true), std::vector<float>(4, 1.0f));
}

TEST(DigestOf, CoversBuffers) {
  TwoNumbers one(1);
  TwoNumbers same(1);
  TwoNumbers two(2);
  EXPECT_NE(DigestOf(one), DigestOf(two));
  EXPECT_EQ(DigestOf(one), DigestOf(same));
}

TEST(EvaluateTogether, EachWorkerTakesAShareAndLearnsTheWhole) {
  Dataset test;
  test.rows = test.cols = 1;
  test.pixels.resize(601);
  test.labels.resize(601);
  test.mean = {0};
  test.stddev = {1};
  testing::Cluster cluster(testing::Job(2));
  cluster.Run([&](KVStore& store) {
    TwoNumbers network(1);
    std::vector<double> shares;
    const auto result =
        EvaluateTogether(store.group(), network, test,
                         [&](double share) { shares.push_back(share); });
    ASSERT_THAT(result, IsOk());
    // 300 or 301 samples in batches of 256.
    ASSERT_EQ(shares.size(), 2u);
    EXPECT_NEAR(shares[0], 256 / 300.5, 0.002);
    EXPECT_EQ(shares[1], 1);
    EXPECT_EQ(result->num_samples, 601);
    EXPECT_EQ(result->num_correct, 601);
    EXPECT_EQ(result->loss_sum, 300.5);
  });
}

}  // namespace
}  // namespace telegrad
