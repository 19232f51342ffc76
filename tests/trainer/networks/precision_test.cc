// Products in float16 and bfloat16, with weights and gradients in float32.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/testing/status_matchers.h"
#include "tests/trainer/networks/network_batches.h"
#include "trainer/networks/network.h"
#include "trainer/networks/torch_framework.h"

namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;

std::unique_ptr<Network> MakeIn(const std::string& name, Dtype dtype) {
  ConfigureFramework(1).IgnoreError();
  NetworkSpec spec = *DefaultSpec(name);
  spec.dtype = dtype;
  auto network = MakeNetwork(spec);
  EXPECT_THAT(network, IsOk());
  return network.ok() ? std::move(*network) : nullptr;
}

// The whole gradient where the loss counts `scale` times as much, divided.
std::vector<float> GradientIn(const std::string& name, Dtype dtype,
                              float scale = 1, bool* is_finite = nullptr) {
  const auto network = MakeIn(name, dtype);
  const Batch batch = MakeBatch(*DefaultSpec(name));
  Network::Hooks hooks;
  hooks.share = scale;
  network->ForwardBackward(batch.images.data(), batch.labels.data(), kBatch,
                           hooks);
  const bool finite = network->ScaleGradients(1 / scale);
  if (is_finite != nullptr) *is_finite = finite;
  std::vector<float> all;
  for (const Parameter& each : network->parameters()) {
    all.insert(all.end(), each.grad, each.grad + each.num_elements);
  }
  return all;
}

double Norm(const std::vector<float>& x) {
  double squares = 0;
  for (const float value : x) squares += static_cast<double>(value * value);
  return std::sqrt(squares);
}

double Distance(std::vector<float> x, const std::vector<float>& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] -= y[i];
  return Norm(x) / Norm(y);
}

double UnitOf(Dtype dtype) {
  return dtype == Dtype::kFloat16 ? 0x1p-11 : 0x1p-8;
}

// A product rounds two factors and its result, and so do the two products of
// backward, each by half a unit in the last place; `layers` multiply what was
// there before. Twice as much for sums that cancel.
double MostError(Dtype dtype, int layers) {
  return 2 * 9 * layers * UnitOf(dtype) / 2;
}

TEST(Precision, IsThatOfTheType) {
  const std::vector<float> exact = GradientIn("mlp", Dtype::kFloat32);
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    const double error = Distance(GradientIn("mlp", dtype), exact);
    EXPECT_LT(error, MostError(dtype, 3)) << ToString(dtype);
    EXPECT_GT(error, UnitOf(dtype) / 4) << ToString(dtype);
  }
}

// Rounded values let other elements win in pools and pass a ReLU, which is no
// small error of theirs: the direction stays, and is closer with more bits.
TEST(Precision, OfDeeperNetworksKeepsTheDirection) {
  for (const char* name : {"lenet", "resnet20"}) {
    const std::vector<float> exact = GradientIn(name, Dtype::kFloat32);
    const double coarse = Distance(GradientIn(name, Dtype::kBfloat16), exact);
    const double fine = Distance(GradientIn(name, Dtype::kFloat16), exact);
    EXPECT_LT(coarse, 0.5) << name;
    EXPECT_LT(fine, coarse) << name;
    EXPECT_GT(fine, UnitOf(Dtype::kFloat16) / 4) << name;
  }
}

TEST(Precision, OfFloat32IsLeftAloneByAScale) {
  EXPECT_EQ(GradientIn("lenet", Dtype::kFloat32, 65536),
            GradientIn("lenet", Dtype::kFloat32));
}

TEST(Precision, OfFloat16HasItsRangeAndAScaleBringsGradientsBackIntoIt) {
  const std::vector<float> exact = GradientIn("mlp", Dtype::kFloat32);
  bool is_finite = true;
  GradientIn("mlp", Dtype::kFloat16, 0x1p40f, &is_finite);
  EXPECT_FALSE(is_finite);
  GradientIn("mlp", Dtype::kBfloat16, 0x1p40f, &is_finite);
  EXPECT_TRUE(is_finite);
  // Far below the least number of float16, 2^-24.
  EXPECT_GT(Distance(GradientIn("mlp", Dtype::kFloat16, 0x1p-30f), exact), 0.9);
  EXPECT_LT(Distance(GradientIn("mlp", Dtype::kFloat16, 0x1p10f), exact),
            MostError(Dtype::kFloat16, 3));
}

TEST(Precision, OfAnEvaluationIsThatOfTraining) {
  const Batch batch = MakeBatch(*DefaultSpec("lenet"));
  std::vector<double> losses;
  for (const Dtype dtype :
       {Dtype::kFloat32, Dtype::kBfloat16, Dtype::kFloat16}) {
    losses.push_back(
        MakeIn("lenet", dtype)
            ->Evaluate(batch.images.data(), batch.labels.data(), kBatch)
            .loss_sum);
  }
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_NE(losses[0], losses[2]);
  EXPECT_NEAR(losses[0], losses[1], losses[0] * MostError(Dtype::kBfloat16, 4));
  EXPECT_NEAR(losses[0], losses[2], losses[0] * MostError(Dtype::kFloat16, 4));
}

// Attention and tokens.
TEST(Precision, OfTextIsNotThatOfFloat32) {
  NetworkSpec spec = *DefaultSpec("gpt");
  spec.context = 16;
  const Batch batch = MakeBatch(spec);
  std::vector<double> losses;
  for (const Dtype dtype :
       {Dtype::kFloat32, Dtype::kBfloat16, Dtype::kFloat16}) {
    spec.dtype = dtype;
    auto network = MakeNetwork(spec);
    ASSERT_THAT(network, IsOk());
    const BatchResult result = (*network)->ForwardBackward(
        batch.images.data(), batch.labels.data(), kBatch, {});
    EXPECT_TRUE((*network)->ScaleGradients(1));
    losses.push_back(result.loss_sum);
  }
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_NEAR(losses[1] / losses[0], 1, MostError(Dtype::kBfloat16, 4));
  EXPECT_NE(losses[0], losses[2]);
  EXPECT_NEAR(losses[2] / losses[0], 1, MostError(Dtype::kFloat16, 4));
}

}  // namespace
}  // namespace telegrad
