#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/random.h"
#include "tests/testing/status_matchers.h"
#include "trainer/network.h"

namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;
constexpr int64_t kBatch = 8;

struct Batch {
  std::vector<float> images;
  std::vector<int64_t> labels;
};

Batch MakeBatch() {
  Batch batch;
  Random random(9);
  for (int64_t i = 0; i < kBatch * 28 * 28; ++i) {
    batch.images.push_back(random.NextUniform(-1, 1));
  }
  for (int64_t i = 0; i < kBatch; ++i) {
    batch.labels.push_back(static_cast<int64_t>(random.NextBelow(10)));
  }
  return batch;
}

std::unique_ptr<Network> Make(const std::string& name, uint64_t seed = 1) {
  ConfigureFramework(1);
  NetworkSpec spec;
  spec.name = name;
  spec.seed = seed;
  auto network = MakeNetwork(spec);
  EXPECT_THAT(network, IsOk());
  return network.ok() ? std::move(*network) : nullptr;
}

BatchResult RunBatch(Network& network, const Batch& batch,
                     const Network::Hooks& hooks = {}) {
  return network.ForwardBackward(batch.images.data(), batch.labels.data(),
                                 kBatch, hooks);
}

std::vector<float> Gradient(const Parameter& parameter) {
  return {parameter.grad, parameter.grad + parameter.num_elements};
}

class Networks : public ::testing::TestWithParam<const char*> {};

TEST_P(Networks, GradientsAreCompleteWhenTheyAreReported) {
  const Batch batch = MakeBatch();
  const auto expected = Make(GetParam());
  RunBatch(*expected, batch);
  const auto network = Make(GetParam());
  std::vector<size_t> order;
  for (int round = 0; round < 2; ++round) {  // the second replaces the first
    order.clear();
    RunBatch(*network, batch, {.gradient_ready = [&](size_t index) {
      order.push_back(index);
      EXPECT_EQ(Gradient(network->parameters().at(index)),
                Gradient(expected->parameters().at(index)))
          << network->parameters()[index].name;
    }});
  }
  const size_t count = network->parameters().size();
  ASSERT_EQ(order.size(), count);
  EXPECT_GE(order.front(), count - 2);  // of the last layer
  EXPECT_LE(order.back(), 1u);          // of the first
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < count; ++i) EXPECT_EQ(order[i], i);
}

// A tensor's sum may come in the midst of forward: into the gradient, whose
// step then changes the weight.
TEST_P(Networks, WeightsMayChangeUntilForwardNeedsThem) {
  const Batch batch = MakeBatch();
  const auto expected = Make(GetParam(), 3);
  RunBatch(*expected, batch);
  const auto network = Make(GetParam(), 4);
  std::vector<size_t> order;
  RunBatch(*network, batch, {.weight_needed = [&](size_t index) {
    order.push_back(index);
    const Parameter& from = expected->parameters().at(index);
    const Parameter& to = network->parameters().at(index);
    std::fill_n(to.grad, to.num_elements, 7.0f);
    std::copy_n(from.weight, from.num_elements, to.weight);
  }});
  for (size_t i = 0; i < network->parameters().size(); ++i) {
    EXPECT_EQ(Gradient(network->parameters()[i]),
              Gradient(expected->parameters()[i]));
  }
  // In forward order; a layer has two, which come in any.
  EXPECT_TRUE(std::ranges::is_sorted(order, {},
                                     [](size_t index) { return index / 2; }));
  EXPECT_EQ(order.size(), network->parameters().size());
}

TEST_P(Networks, EqualSeedsGiveEqualBitsAndOthersDoNot) {
  const Batch batch = MakeBatch();
  const auto a = Make(GetParam(), 3);
  const auto b = Make(GetParam(), 3);
  const auto c = Make(GetParam(), 4);
  RunBatch(*a, batch);
  RunBatch(*b, batch);
  for (size_t i = 0; i < a->parameters().size(); ++i) {
    const Parameter& p = a->parameters()[i];
    const Parameter& q = b->parameters()[i];
    const size_t bytes = p.num_elements * sizeof(float);
    EXPECT_EQ(std::memcmp(p.weight, q.weight, bytes), 0) << p.name;
    EXPECT_EQ(std::memcmp(p.grad, q.grad, bytes), 0) << p.name;
  }
  EXPECT_NE(a->parameters()[0].weight[0], c->parameters()[0].weight[0]);
}

TEST_P(Networks, WeightsWrittenInPlaceAreUsed) {
  const Batch batch = MakeBatch();
  const auto network = Make(GetParam());
  const double before = RunBatch(*network, batch).loss_sum;
  const auto evaluate = [&] {
    return network->Evaluate(batch.images.data(), batch.labels.data(), kBatch);
  };
  EXPECT_NEAR(evaluate().loss_sum, before, 1e-4 * before);
  for (const Parameter& parameter : network->parameters()) {
    std::fill_n(parameter.weight, parameter.num_elements, 0.0f);
  }
  // Without weights all ten classes are equally likely.
  EXPECT_NEAR(evaluate().loss_sum, kBatch * std::log(10.0), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(All, Networks,
                         ::testing::Values("linear", "mlp", "lenet"),
                         [](const auto& test) { return test.param; });

TEST(LinearNetwork, GradientAgreesWithDifferencesOfTheLoss) {
  const Batch batch = MakeBatch();
  const auto network = Make("linear");
  RunBatch(*network, batch);
  const auto loss = [&] {
    return network->Evaluate(batch.images.data(), batch.labels.data(), kBatch)
               .loss_sum /
           kBatch;
  };
  for (const Parameter& parameter : network->parameters()) {
    for (size_t i = 0; i < parameter.num_elements;
         i += parameter.num_elements / 10) {
      constexpr float kStep = 1.0f / 64;
      const float weight = parameter.weight[i];
      parameter.weight[i] = weight + kStep;
      const double above = loss();
      parameter.weight[i] = weight - kStep;
      const double below = loss();
      parameter.weight[i] = weight;
      // Rounding of a float loss near 3, over 2 steps, plus step^2 / 6.
      EXPECT_NEAR(parameter.grad[i], (above - below) / (2 * kStep), 2e-4)
          << parameter.name << " " << i;
    }
  }
}

TEST(LeNet, HasTheShapesOfMxnetsExample) {
  const auto network = Make("lenet");
  size_t total = 0;
  for (const Parameter& p : network->parameters()) total += p.num_elements;
  // 20*25+20 + 50*20*25+50 + 500*800+500 + 10*500+10.
  EXPECT_EQ(total, 431080u);
}

TEST(MakeNetwork, RefusesWhatItCannotBuild) {
  NetworkSpec spec;
  spec.name = "alexnet";
  EXPECT_THAT(MakeNetwork(spec),
              StatusIs(absl::StatusCode::kNotFound, "linear, mlp, lenet"));
  spec.name = "lenet";
  spec.rows = 15;
  EXPECT_THAT(MakeNetwork(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, "15 x 28"));
  spec.rows = -1;
  EXPECT_THAT(MakeNetwork(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, "-1"));
}

}  // namespace
}  // namespace telegrad
