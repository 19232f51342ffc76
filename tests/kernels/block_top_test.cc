#include "kernels/block_top.h"

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/kernels/kernel_test.h"

// The largest of each block: every table gives what the reference gives, and
// the reference what a sort and the published formulas give.
namespace telegrad::kernels::testing {
namespace {

class BlockTop : public KernelTest {};

struct TopOutputs {
  std::vector<uint8_t> payload;
  std::vector<float> residual;
  std::vector<float> decoded;
  std::vector<float> sum;
  EncodeStats stats;
};

// Arrays and payload lie `skew` bytes off a border, a multiple of 4.
TopOutputs Apply(const KernelTable& table, const std::vector<float>& grad,
                 const std::vector<float>& residual, TopRule rule,
                 NonFinite nonfinite, size_t skew) {
  const size_t n = grad.size();
  Array<float> g(table, grad, skew);
  Array<float> r(table, residual, skew);
  Array<uint8_t> payload(
      table, std::vector<uint8_t>(TopPayloadBytes(NumTop(n, rule.keep)), 0x5A),
      skew);
  Array<uint8_t> scratch(
      table, std::vector<uint8_t>(TopScratchBytes(n, rule.keep), 0x55));
  Array<EncodeStats> stats(table, {{.num_nonzero = 7, .num_nonfinite = 3}});
  Array<float> decoded(table, std::vector<float>(n, 9.0f), skew);
  Array<float> sum(table, RandomFloats(n, 1, false, n + 2), skew);
  const BlockTopKernels& top = table.block_top;
  top.encode(g.get(), r.get(), n, rule, nonfinite, payload.get(), stats.get(),
             scratch.get(), {});
  top.decode(payload.get(), n, rule.keep, decoded.get(), {});
  top.decode_add(payload.get(), n, rule.keep, sum.get(), {});
  Wait(table);
  return {payload.values(), r.values(), decoded.values(), sum.values(),
          stats.values()[0]};
}

void ExpectSame(const KernelTable& table, const std::vector<float>& grad,
                const std::vector<float>& residual, TopRule rule,
                NonFinite nonfinite, size_t skew) {
  const TopOutputs got = Apply(table, grad, residual, rule, nonfinite, skew);
  const TopOutputs want =
      Apply(ReferenceKernels(), grad, residual, rule, nonfinite, 0);
  EXPECT_EQ(got.payload, want.payload);
  ExpectSameBits(got.residual, want.residual);
  ExpectSameBits(got.decoded, want.decoded);
  ExpectSameBits(got.sum, want.sum);
  ExpectSameStats(got.stats, want.stats);
}

TEST_P(BlockTop, EqualsReference) {
  std::vector<size_t> sizes = SizesToTry(table());
  sizes.insert(sizes.end(), {4096, 8191, 8192, 8193, 1100000});
  for (const size_t n : sizes) {
    if (n == 0) continue;  // of nothing, nothing is sent
    const size_t keep = n % 3 == 0 ? 4 : n % 3 == 1 ? 64 : kMostTop;
    for (const NonFinite nonfinite :
         {NonFinite::kZero, NonFinite::kPropagate}) {
      SCOPED_TRACE(::testing::Message() << "n " << n << " keep " << keep);
      ExpectSame(table(), RandomFloats(n, 1, true, n),
                 RandomFloats(n, 1, n % 2 == 0, n + 1), {keep, 0.95f},
                 nonfinite, 4 * (n % 16));
    }
  }
}

// Equal magnitudes, blocks of zeros, and scales that change from block to
// block, so that what the block before had is no guess.
TEST_P(BlockTop, EqualsReferenceWhereBlocksDiffer) {
  const size_t n = 9 * kTopBlock + 77;
  std::vector<float> grad = RandomFloats(n, 1, false, 3);
  for (size_t i = 0; i < n; ++i) {
    const size_t block = i / kTopBlock;
    if (block == 1) grad[i] = std::round(grad[i]);
    if (block == 2) grad[i] = 0;
    if (block == 3 && i % 100 != 0) grad[i] = 0;
    if (block >= 4) grad[i] = std::ldexp(grad[i], block % 2 == 0 ? 40 : -40);
    if (block == 6) grad[i] = i % 2 == 0 ? 0.1f : -0.1f;
    if (block == 8) grad[i] = 1e-44f;
  }
  for (const size_t keep : {size_t{64}, kMostTop}) {
    ExpectSame(table(), grad, std::vector<float>(n, 0.0f), {keep, 1.0f},
               NonFinite::kZero, 0);
  }
}

// What tplr-ai/templar's _quantize_values does, in double.
std::vector<double> PublishedValues(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const double shift =
      std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double v : values) squares += (v - shift) * (v - shift);
  const double scale = 6 * std::sqrt(squares / (count - 1)) / 4;
  double sums[4] = {};
  double counts[4] = {};
  std::vector<int> codes;
  for (const double v : values) {
    const double x = std::nearbyint((v - shift) / scale + 2);
    codes.push_back(static_cast<int>(std::clamp(x, 0.0, 3.0)));
    sums[codes.back()] += v - shift;
    ++counts[codes.back()];
  }
  std::vector<double> decoded;
  for (const int code : codes) {
    decoded.push_back(sums[code] / counts[code] + shift);
  }
  return decoded;
}

TEST_P(BlockTop, SendsWhatThePublishedRuleSends) {
  const size_t n = 3 * kTopBlock;
  const TopRule rule;
  const std::vector<float> grad = RandomFloats(n, 1, false, 5);
  const std::vector<float> residual = RandomFloats(n, 1, false, 6);
  std::vector<size_t> chosen;
  std::vector<double> values;
  for (size_t from = 0; from < n; from += kTopBlock) {
    std::vector<size_t> order(kTopBlock);
    std::iota(order.begin(), order.end(), from);
    const auto value = [&](size_t i) {
      return rule.decay * residual[i] + grad[i];
    };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::abs(value(a)) > std::abs(value(b));
    });
    std::sort(order.begin(), order.begin() + 64);
    for (size_t j = 0; j < 64; ++j) {
      chosen.push_back(order[j]);
      values.push_back(static_cast<double>(value(order[j])));
    }
  }
  const std::vector<double> expected = PublishedValues(values);
  const TopOutputs got =
      Apply(table(), grad, residual, rule, NonFinite::kZero, 0);
  EXPECT_EQ(got.payload.size(), 16u + 3 * 112);
  EXPECT_EQ(n - std::count(got.decoded.begin(), got.decoded.end(), 0.0f),
            chosen.size());
  for (size_t j = 0; j < chosen.size(); ++j) {
    const size_t i = chosen[j];
    EXPECT_NEAR(got.decoded[i], expected[j], 1e-6) << i;
    EXPECT_NEAR(got.residual[i], values[j] - expected[j], 1e-6) << i;
  }
  EXPECT_EQ(got.stats.num_nonzero, 7u + chosen.size());
}

// Whatever a payload holds, decoding stays within its arrays: guards tell.
TEST_P(BlockTop, DecodesAnyBytesWithinBounds) {
  for (const size_t n : {1, 5, 100, 4095, 4097, 10007}) {
    const size_t keep = 64;
    Array<uint8_t> payload(table(),
                           RandomBytes(TopPayloadBytes(NumTop(n, keep)), n));
    Array<float> out(table(), std::vector<float>(n));
    table().block_top.decode(payload.get(), n, keep, out.get(), {});
    table().block_top.decode_add(payload.get(), n, keep, out.get(), {});
    Wait(table());
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, BlockTop, ::testing::ValuesIn(Tables()),
                         NameOf);

}  // namespace
}  // namespace telegrad::kernels::testing
