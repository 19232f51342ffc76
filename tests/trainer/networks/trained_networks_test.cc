#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <memory>
#include <string>

#include "tests/testing/status_matchers.h"
#include "tests/trainer/networks/network_batches.h"
#include "trainer/networks/torch_framework.h"

namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;

struct Trained {
  const char* network;
  int side;  // of the images, or what is read at once
};

class TrainedNetworks : public ::testing::TestWithParam<Trained> {
 protected:
  void SetUp() override {
    ConfigureFramework(1).IgnoreError();
    auto spec = DefaultSpec(GetParam().network);
    ASSERT_THAT(spec, IsOk());
    spec_ = *spec;
    if (spec_.context > 0) {
      spec_.context = GetParam().side;
    } else {
      spec_.rows = spec_.cols = GetParam().side;
      spec_.num_classes = 10;
    }
    auto network = MakeNetwork(spec_);
    ASSERT_THAT(network, IsOk());
    network_ = *std::move(network);
  }

  NetworkSpec spec_;
  std::unique_ptr<Network> network_;
};

// Steps of 0.001 along the whole gradient's direction, on one batch and with
// the same units dropped out: the loss falls.
TEST_P(TrainedNetworks, LearnABatchInThreeSteps) {
  // The second head of inception-v3 takes its full images.
  const bool is_large = GetParam().side > 200;
  constexpr int64_t kFew = 2;
  const Batch batch = MakeBatch(spec_, kFew);
  std::vector<double> losses;
  for (int step = 0; step < (is_large ? 2 : 3); ++step) {
    std::vector<int> reports(network_->parameters().size());
    const BatchResult result = network_->ForwardBackward(
        batch.images.data(), batch.labels.data(), kFew,
        {.gradient_ready = [&](size_t index) { ++reports.at(index); }});
    losses.push_back(result.loss_sum);
    EXPECT_EQ(reports, std::vector<int>(reports.size(), 1));
    double squares = 0;
    for (const Parameter& each : network_->parameters()) {
      double own = 0;
      for (size_t i = 0; i < each.num_elements; ++i) {
        own += double(each.grad[i]) * double(each.grad[i]);
      }
      EXPECT_GT(own, 0) << each.name << " has no gradient";
      squares += own;
    }
    const auto rate =
        static_cast<float>(0.005 * result.loss_sum /
                           static_cast<double>(result.num_samples) / squares);
    for (const Parameter& each : network_->parameters()) {
      for (size_t i = 0; i < each.num_elements; ++i) {
        each.weight[i] -= rate * each.grad[i];
      }
    }
  }
  EXPECT_LT(losses[1], losses[0]);
  EXPECT_LT(losses.back(), losses[0]);
  const BatchResult seen =
      network_->Evaluate(batch.images.data(), batch.labels.data(), kFew);
  EXPECT_TRUE(std::isfinite(seen.loss_sum));
  EXPECT_EQ(seen.num_samples, kFew * std::max(spec_.context, 1));
}

// resnet101 and resnet152 are more of resnet50's blocks: models_test.cc has
// their shapes.
INSTANTIATE_TEST_SUITE_P(
    All, TrainedNetworks,
    ::testing::Values(Trained{"mlp:64,64,64", 28}, Trained{"alexnet", 64},
                      Trained{"vgg11", 64}, Trained{"vgg11", 32},
                      Trained{"vgg16", 64}, Trained{"inception-v3:aux", 299},
                      Trained{"inception-v3", 107}, Trained{"resnet18", 32},
                      Trained{"resnet18", 64}, Trained{"resnet34", 64},
                      Trained{"resnet50", 64}, Trained{"resnet20", 32},
                      Trained{"resnet56", 32}, Trained{"gpt", 16}),
    [](const auto& test) {
      std::string name = test.param.network;
      for (char& c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
      }
      return name + "_" + std::to_string(test.param.side);
    });

}  // namespace
}  // namespace telegrad
