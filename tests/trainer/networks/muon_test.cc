#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"
#include "tests/testing/status_matchers.h"
#include "trainer/networks/network.h"
#include "trainer/networks/torch_framework.h"

namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;

using Values = std::vector<double>;

// [rows, cols] in doubles, and products as their definition has them.
struct Matrix {
  size_t rows, cols;
  Values values;

  double& at(size_t row, size_t col) { return values[row * cols + col]; }
  double at(size_t row, size_t col) const { return values[row * cols + col]; }
};

Matrix Zeros(size_t rows, size_t cols) {
  return {rows, cols, Values(rows * cols)};
}

Matrix Times(const Matrix& a, const Matrix& b) {
  Matrix product = Zeros(a.rows, b.cols);
  for (size_t i = 0; i < a.rows; ++i) {
    for (size_t j = 0; j < b.cols; ++j) {
      for (size_t k = 0; k < a.cols; ++k) {
        product.at(i, j) += a.at(i, k) * b.at(k, j);
      }
    }
  }
  return product;
}

Matrix Transposed(const Matrix& a) {
  Matrix result = Zeros(a.cols, a.rows);
  for (size_t i = 0; i < a.rows; ++i) {
    for (size_t j = 0; j < a.cols; ++j) result.at(j, i) = a.at(i, j);
  }
  return result;
}

double Norm(const Values& values) {
  return std::sqrt(
      std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

// a s + b s^3 + c s^5 five times, as in Jordan's `zeropower_via_newtonschulz5`.
double FiveRounds(double s) {
  for (int round = 0; round < 5; ++round) {
    s = 3.4445 * s - 4.7750 * std::pow(s, 3) + 2.0315 * std::pow(s, 5);
  }
  return s;
}

// The same of a matrix, without regard to which side is longer.
Matrix FiveRounds(Matrix x) {
  const double norm = Norm(x.values) + 1e-7;
  for (double& value : x.values) value /= norm;
  for (int round = 0; round < 5; ++round) {
    const Matrix third = Times(Times(x, Transposed(x)), x);
    const Matrix fifth = Times(Times(x, Transposed(x)), third);
    for (size_t i = 0; i < x.values.size(); ++i) {
      x.values[i] = 3.4445 * x.values[i] - 4.7750 * third.values[i] +
                    2.0315 * fifth.values[i];
    }
  }
  return x;
}

// I - 2 v v' / (v' v) of a random v: it is its own transpose and inverse.
Matrix Reflection(size_t n, Random& random) {
  Values v(n);
  for (double& value : v) value = double{random.NextNormal()};
  const double norm = Norm(v);
  Matrix result = Zeros(n, n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      result.at(i, j) = (i == j ? 1 : 0) - 2 * v[i] * v[j] / (norm * norm);
    }
  }
  return result;
}

// A network, one weight of which is stepped.
struct Stepped {
  std::unique_ptr<Network> network;
  size_t index = 0;
  size_t rows = 0, cols = 0;
  std::vector<float> momentum = {};

  const Parameter& parameter() const { return network->parameters()[index]; }
  void Step(const MuonStep& step, const Values& grad) {
    std::copy(grad.begin(), grad.end(), parameter().grad);
    network->StepByMuon(index, step, momentum.data());
  }
  Values weight() const {
    return {parameter().weight, parameter().weight + parameter().num_elements};
  }
};

Stepped Of(const std::string& name, const std::string& tensor) {
  ConfigureFramework(1).IgnoreError();
  auto made = MakeNetwork({.name = name, .seed = 5});
  EXPECT_THAT(made, IsOk());
  Stepped stepped{.network = std::move(*made)};
  const auto& parameters = stepped.network->parameters();
  while (parameters[stepped.index].name != tensor) ++stepped.index;
  const size_t n = stepped.parameter().num_elements;
  stepped.rows = static_cast<size_t>(stepped.parameter().shape[0]);
  stepped.cols = n / stepped.rows;
  stepped.momentum.resize(n);
  return stepped;
}

// Singular vectors of the gradient stay, and each singular value becomes what
// the polynomial makes of it: 0.68 to 1.21, of those that are not tiny.
TEST(Muon, StepsAlongThePolarFactor) {
  for (const char* name : {"mlp:6,9", "mlp:9,6"}) {
    SCOPED_TRACE(name);
    Stepped stepped = Of(name, "fc2.weight");
    Random random(3);
    const Matrix left = Reflection(stepped.rows, random);
    const Matrix right = Reflection(stepped.cols, random);
    const Values singular = {7, 3, 1, 0.5, 0.1, 0.03};
    Matrix between = Zeros(stepped.rows, stepped.cols);
    Matrix wanted = between;
    for (size_t i = 0; i < singular.size(); ++i) {
      between.at(i, i) = singular[i];
      wanted.at(i, i) = FiveRounds(singular[i] / Norm(singular));
      EXPECT_GT(wanted.at(i, i), 0.68);
      EXPECT_LT(wanted.at(i, i), 1.21);
    }
    const Matrix grad = Times(Times(left, between), right);
    wanted = Times(Times(left, wanted), right);
    std::fill_n(stepped.parameter().weight, grad.values.size(), 1.0f);
    // 0.2 sqrt(9) of the rate.
    stepped.Step({.rate = 1 / 0.6f, .keep = 0}, grad.values);
    const Values weight = stepped.weight();
    for (size_t i = 0; i < weight.size(); ++i) {
      EXPECT_NEAR(weight[i], -wanted.values[i], 2e-5) << i;
    }
  }
}

TEST(Muon, StepsAsAPlainReferenceDoes) {
  struct Case {
    const char* network;
    const char* tensor;
    double longer;
  };
  for (const Case& test : {Case{"lenet", "conv1.weight", 25},
                           {"mlp:70,20", "fc2.weight", 70},
                           {"mlp:20,70", "fc2.weight", 70}}) {
    SCOPED_TRACE(std::string(test.network) + " " + test.tensor);
    Stepped stepped = Of(test.network, test.tensor);
    Values weight = stepped.weight();
    Matrix m = Zeros(stepped.rows, stepped.cols);
    Random random(11);
    for (int step = 0; step < 3; ++step) {
      Values grad(weight.size());
      for (double& value : grad) value = double{random.NextNormal()};
      stepped.Step(
          {.rescale = 0.25f, .momentum = 0.95f, .rate = 0.02f, .keep = 0.999f},
          grad);
      Matrix ahead = m;
      for (size_t i = 0; i < grad.size(); ++i) {
        m.values[i] = 0.95 * m.values[i] + grad[i] / 4;
        ahead.values[i] = grad[i] / 4 + 0.95 * m.values[i];
      }
      const Matrix factor = FiveRounds(ahead);
      for (size_t i = 0; i < grad.size(); ++i) {
        weight[i] = 0.999 * weight[i] -
                    0.02 * 0.2 * std::sqrt(test.longer) * factor.values[i];
        ASSERT_NEAR(stepped.parameter().weight[i], weight[i], 2e-5) << i;
        ASSERT_NEAR(stepped.momentum[i], m.values[i], 1e-5) << i;
      }
    }
  }
}

TEST(Muon, AGradientOfZerosLeavesTheWeight) {
  Stepped stepped = Of("mlp:6,9", "fc2.weight");
  const Values before = stepped.weight();
  stepped.Step({.momentum = 0.95f, .rate = 1}, Values(before.size()));
  EXPECT_EQ(stepped.weight(), before);
}

}  // namespace
}  // namespace telegrad
