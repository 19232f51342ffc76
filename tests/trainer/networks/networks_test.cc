#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/testing/status_matchers.h"
#include "tests/trainer/networks/network_batches.h"
#include "trainer/networks/network.h"
#include "trainer/networks/torch_framework.h"

namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;

std::unique_ptr<Network> Make(const std::string& name, uint64_t seed = 1) {
  ConfigureFramework(1).IgnoreError();
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

std::unique_ptr<Network> MakeSmall(const std::string& name, uint64_t seed) {
  ConfigureFramework(1).IgnoreError();
  auto network = MakeNetwork(
      {.name = name, .channels = 3, .rows = 32, .cols = 32, .seed = seed});
  EXPECT_THAT(network, IsOk());
  return network.ok() ? *std::move(network) : nullptr;
}

struct Drawn {
  double largest = 0;
  double rms = 0;
};
Drawn DrawnOf(const Network& network, const std::string& name) {
  Drawn drawn;
  for (const Parameter& each : network.parameters()) {
    if (each.name != name) continue;
    for (size_t i = 0; i < each.num_elements; ++i) {
      const double value = std::abs(double{each.weight[i]});
      drawn.largest = std::max(drawn.largest, value);
      drawn.rms += value * value / static_cast<double>(each.num_elements);
    }
  }
  drawn.rms = std::sqrt(drawn.rms);
  return drawn;
}

// Of 5,120 values or more: the largest of uniform ones is within 1 % of the
// bound, the deviation of normal ones within 2 % (1 / sqrt(2 n) is 0.4 %).
TEST(InitialWeights, AreDrawnByTheLayersRule) {
  const auto vgg = MakeSmall("vgg11", 3);
  const auto is_bound = [](const Drawn& drawn, double bound) {
    EXPECT_LE(drawn.largest, bound * (1 + 1e-6));
    EXPECT_GT(drawn.largest, bound * 0.99);
    EXPECT_NEAR(drawn.rms, bound / std::sqrt(3.0), 0.03 * bound);
  };
  is_bound(DrawnOf(*vgg, "conv1.weight"), std::sqrt(6.0 / (64 * 9)));  // He
  is_bound(DrawnOf(*vgg, "fc.weight"), std::sqrt(6.0 / (512 + 10)));   // Xavier
  EXPECT_EQ(DrawnOf(*vgg, "bn1.weight").rms, 1);
  EXPECT_EQ(DrawnOf(*vgg, "bn1.bias").rms, 0);
  const auto resnet = MakeSmall("resnet20", 3);
  const double he = std::sqrt(2.0 / (64 * 9));
  const Drawn last = DrawnOf(*resnet, "conv20.weight");
  EXPECT_NEAR(last.rms, he, 0.02 * he);
  EXPECT_GT(last.largest, 3 * he);  // is not uniform
  ConfigureFramework(1).IgnoreError();
  auto gpt = MakeNetwork({.name = "gpt", .context = 8, .num_classes = 256});
  ASSERT_THAT(gpt, IsOk());
  EXPECT_NEAR(DrawnOf(**gpt, "token.weight").rms, 0.02, 0.0004);
  // Of what is added to four layers' sums: less.
  EXPECT_NEAR(DrawnOf(**gpt, "layer0.out.weight").rms, 0.02 / std::sqrt(8.0),
              0.0002);
}

// Of the first step, the new mean is a tenth of the batch's, the new variance
// nine tenths of one and a tenth of the batch's: the first convolution's output
// in zero weights is all zero.
TEST(BatchNorm, GathersStatisticsInTrainingAndReadsThemInEvaluation) {
  const auto network = MakeSmall("resnet20", 1);
  const Batch batch = MakeBatch({.channels = 3, .rows = 32, .cols = 32});
  for (const Parameter& each : network->buffers()) {
    const bool is_mean = each.name.ends_with(".mean");
    EXPECT_EQ(each.weight[0], is_mean ? 0.0f : 1.0f) << each.name;
  }
  const auto evaluate = [&] {
    return network->Evaluate(batch.images.data(), batch.labels.data(), kBatch)
        .loss_sum;
  };
  const double before = evaluate();
  EXPECT_EQ(evaluate(), before) << "evaluation changes nothing";
  const Parameter& conv = network->parameters()[0];
  const std::vector<float> weights(conv.weight,
                                   conv.weight + conv.num_elements);
  std::fill_n(conv.weight, conv.num_elements, 0.0f);
  RunBatch(*network, batch);
  EXPECT_EQ(network->buffers()[0].weight[0], 0.0f);
  EXPECT_FLOAT_EQ(network->buffers()[1].weight[0], 0.9f);
  std::copy(weights.begin(), weights.end(), conv.weight);
  EXPECT_NE(evaluate(), before);
}

TEST(Dropout, FollowsSeedAndDraw) {
  ConfigureFramework(1).IgnoreError();
  const NetworkSpec spec = {
      .name = "alexnet", .channels = 3, .rows = 64, .cols = 64, .seed = 5};
  auto network = MakeNetwork(spec);
  ASSERT_THAT(network, IsOk());
  const Batch batch = MakeBatch(spec, 2);
  const auto loss = [&](uint64_t draw) {
    return (*network)
        ->ForwardBackward(batch.images.data(), batch.labels.data(), 2,
                          {.draw = draw})
        .loss_sum;
  };
  const double first = loss(1);
  EXPECT_EQ(loss(1), first);
  EXPECT_NE(loss(2), first);
  // Nothing drops out of an evaluation.
  const auto evaluate = [&] {
    return (*network)
        ->Evaluate(batch.images.data(), batch.labels.data(), 2)
        .loss_sum;
  };
  EXPECT_EQ(evaluate(), evaluate());
}

// The difference of the loss between two labels at one position is that of
// their logits, there.
TEST(Gpt, PositionsSeeWhatCameBeforeAndNothingLater) {
  ConfigureFramework(1).IgnoreError();
  const NetworkSpec spec = {.name = "gpt:layers=2,heads=2,width=16",
                            .context = 8,
                            .num_classes = 256};
  auto network = MakeNetwork(spec);
  ASSERT_THAT(network, IsOk());
  for (const Parameter& each : (*network)->parameters()) {
    // Wide enough that attention matters.
    for (size_t i = 0; i < each.num_elements; ++i) each.weight[i] *= 20;
  }
  Batch batch = MakeBatch(spec, 1);
  constexpr size_t kPosition = 4;
  const auto difference = [&] {
    const auto loss = [&](int64_t label) {
      batch.labels[kPosition] = label;
      return (*network)
          ->Evaluate(batch.images.data(), batch.labels.data(), 1)
          .loss_sum;
    };
    return loss(3) - loss(4);
  };
  const auto with_other_token = [&](size_t position) {
    const float token = batch.images[position];
    batch.images[position] = token < 128 ? token + 1 : token - 1;
    const double result = difference();
    batch.images[position] = token;
    return result;
  };
  const double before = difference();
  // Rounding of sums of eight losses of some ten.
  EXPECT_GT(std::abs(with_other_token(0) - before), 1e-3);
  EXPECT_GT(std::abs(with_other_token(kPosition) - before), 1e-3);
  for (size_t later = kPosition + 1; later < 8; ++later) {
    EXPECT_NEAR(with_other_token(later), before, 1e-4) << later;
  }
}

TEST(Accumulation, OfHalvesIsTheWholeBatch) {
  const auto whole = Make("lenet");
  const auto halves = Make("lenet");
  const Batch batch = MakeBatch();
  RunBatch(*whole, batch);
  constexpr int64_t kHalf = kBatch / 2;
  for (int64_t part = 0; part < 2; ++part) {
    halves->ForwardBackward(batch.images.data() + part * kHalf * 28 * 28,
                            batch.labels.data() + part * kHalf, kHalf,
                            {.accumulates = part > 0, .share = 0.5f});
  }
  for (size_t i = 0; i < whole->parameters().size(); ++i) {
    const Parameter& a = whole->parameters()[i];
    const Parameter& b = halves->parameters()[i];
    for (size_t j = 0; j < a.num_elements; j += 97) {
      // Sums of eight terms below one, in another order.
      EXPECT_NEAR(a.grad[j], b.grad[j], 1e-6) << a.name << " " << j;
    }
  }
}

TEST(LabelSmoothing, GivesOtherClassesTheirShare) {
  ConfigureFramework(1).IgnoreError();
  auto network = MakeNetwork({.name = "linear", .label_smoothing = 0.1f});
  ASSERT_THAT(network, IsOk());
  for (const Parameter& each : (*network)->parameters()) {
    std::fill_n(each.weight, each.num_elements, 0.0f);
  }
  Batch batch = MakeBatch();
  batch.labels.assign(batch.labels.size(), 3);
  RunBatch(**network, batch);
  // Softmax of zero is 0.1 each; the target is 0.91 of class 3, 0.01 of others.
  const Parameter& bias = (*network)->parameters()[1];
  EXPECT_NEAR(bias.grad[3], 0.1 - 0.91, 1e-6);
  EXPECT_NEAR(bias.grad[4], 0.1 - 0.01, 1e-6);
}

}  // namespace
}  // namespace telegrad
