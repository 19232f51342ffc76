#include "trainer/networks/muon.h"

#include <algorithm>
#include <cmath>

namespace telegrad {
namespace {

// Jordan's: singular values from 0.002 on come to 0.68 to 1.21, not to 1 as
// with Newton and Schulz's own, and do so in five rounds.
constexpr double kFirst = 3.4445;
constexpr double kThird = -4.7750;
constexpr double kFifth = 2.0315;
constexpr int kRounds = 5;
constexpr double kLeastNorm = 1e-7;
// The root of the mean square of AdamW's steps is about as much of its rate,
// so that both share one (Liu et al., arXiv 2502.16982, equation 4).
constexpr double kLikeAdam = 0.2;

// Each round makes kFirst s + kThird s^3 + kFifth s^5 of a singular value s.
torch::Tensor PolarFactor(const torch::Tensor& matrix) {
  const bool is_tall = matrix.size(0) > matrix.size(1);
  torch::Tensor x = matrix / (matrix.norm() + kLeastNorm);
  if (is_tall) x = x.t();
  for (int round = 0; round < kRounds; ++round) {
    const torch::Tensor square = x.mm(x.t());
    x = torch::addmm(x, torch::addmm(square, square, square, kThird, kFifth), x,
                     kFirst, 1);
  }
  return is_tall ? x.t() : x;
}

}  // namespace

void StepByMuon(const MuonStep& step, const torch::Tensor& grad,
                torch::Tensor m, torch::Tensor weight) {
  const torch::Tensor scaled = grad * step.rescale;
  m.mul_(step.momentum).add_(scaled);
  const double side = static_cast<double>(std::max(m.size(0), m.size(1)));
  weight.mul_(step.keep).sub_(PolarFactor(scaled + step.momentum * m),
                              step.rate * kLikeAdam * std::sqrt(side));
}

}  // namespace telegrad
