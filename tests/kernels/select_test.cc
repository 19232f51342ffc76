#include "kernels/select.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/kernels/kernel_test.h"

// The largest of many: every table gives what the reference gives, and the
// reference what is written down by hand.
namespace telegrad::kernels::testing {
namespace {

class Select : public KernelTest {};

std::vector<uint8_t> Scratch(size_t n) {
  return std::vector<uint8_t>(SelectScratchBytes(n), 0x55);
}

// Values of few magnitudes, so that many are equal; with `specials` also those
// that cannot be sent.
std::vector<float> Ties(size_t n, bool specials, uint64_t seed) {
  std::vector<float> values = RandomFloats(n, 1, specials, seed);
  for (float& value : values) {
    if (std::isfinite(value)) value = std::round(2 * value) / 2;
  }
  return values;
}

// Arrays lie 4 * (n % 16) bytes off a border.
float SampleThreshold(const KernelTable& table, size_t n, size_t wanted,
                      bool generous, bool has_momentum) {
  const size_t skew = 4 * (n % 16);
  Array<float> g(table, RandomFloats(n, 0.5f, true, n + 1), skew);
  Array<float> r(table, RandomFloats(n, 0.3f, false, n + 2), skew);
  Array<float> u(table, RandomFloats(n, 0.3f, false, n + 3), skew);
  Array<float> scale(table, {0.75f});
  Array<float> threshold(table, {-1});
  Array<uint8_t> scratch(table, Scratch(n));
  SampledValues values;
  values.grad = g.get();
  values.residual = r.get();
  if (has_momentum) {
    values.momentum = u.get();
    values.correction = {.rate = 0.9f, .scale = scale.get()};
  }
  table.select.sample_threshold(values, n, wanted, generous, threshold.get(),
                                scratch.get(), {});
  Wait(table);
  return threshold.values()[0];
}

TEST_P(Select, SamplesTheThresholdOfTheReference) {
  std::vector<size_t> sizes = SizesToTry(table());
  sizes.insert(sizes.end(), {8191, 8192, 8193});
  for (const size_t n : sizes) {
    if (n == 0) continue;  // has no threshold
    for (const bool is_generous : {false, true}) {
      for (const bool has_momentum : {false, true}) {
        for (const size_t wanted : {size_t{1}, n / 50 + 1, n}) {
          SCOPED_TRACE(::testing::Message() << "n " << n << " of " << wanted);
          EXPECT_EQ(
              SampleThreshold(table(), n, wanted, is_generous, has_momentum),
              SampleThreshold(ReferenceKernels(), n, wanted, is_generous,
                              has_momentum));
        }
      }
    }
  }
}

// Of 0.5 to 8 in steps of 0.5, all sampled: the third largest, or what has the
// same 12 bits from the least on.
TEST_P(Select, SampledThresholdIsThatOfARank) {
  std::vector<float> values(16);
  std::iota(values.begin(), values.end(), 1.0f);
  for (float& value : values) value *= 0.5f;
  Array<float> g(table(), values);
  Array<float> r(table(), std::vector<float>(16));
  Array<float> threshold(table(), {-1});
  Array<uint8_t> scratch(table(), Scratch(16));
  table().select.sample_threshold({g.get(), r.get(), nullptr, {}}, 16, 3, false,
                                  threshold.get(), scratch.get(), {});
  Wait(table());
  EXPECT_EQ(threshold.values()[0], 7);
}

struct Choice {
  std::vector<uint32_t> indices;
  std::vector<float> values;
  std::vector<float> residual;
  std::vector<float> momentum;
  uint64_t num_nonzero;
};

// Of candidates that reach `threshold`; arrays lie 4 * (n % 16) bytes off a
// border.
Choice Take(const KernelTable& table, const std::vector<float>& residual,
            float threshold, HowMany how_many, bool has_momentum) {
  const size_t n = residual.size();
  const size_t skew = 4 * (n % 16);
  std::vector<uint32_t> listed;
  std::vector<float> listed_values;
  for (size_t i = 0; i < n; ++i) {
    if (SendableBits(residual[i]) < SendableBits(threshold)) continue;
    listed.push_back(static_cast<uint32_t>(i));
    listed_values.push_back(residual[i]);
  }
  Array<uint32_t> indices(table, listed, skew);
  Array<float> values(table, listed_values, skew);
  Array<uint64_t> counts(table, {listed.size(), 99});
  Array<float> r(table, residual, skew);
  Array<float> u(table, std::vector<float>(n, 3.0f), skew);
  const size_t room = std::min(n, how_many.most);
  Array<uint32_t> kept(table, std::vector<uint32_t>(room), skew);
  Array<float> kept_values(table, std::vector<float>(room), skew);
  Array<EncodeStats> stats(table, {{.num_nonzero = 7, .num_nonfinite = 3}});
  Array<uint8_t> scratch(table, Scratch(n));
  table.select.take_largest(
      how_many,
      {indices.get(), values.get(), counts.get(), r.get(),
       has_momentum ? u.get() : nullptr, n},
      {kept.get(), kept_values.get(), counts.get() + 1, stats.get()},
      scratch.get(), {});
  Wait(table);
  Choice choice = {kept.values(), kept_values.values(), r.values(), u.values(),
                   stats.values()[0].num_nonzero};
  EXPECT_EQ(stats.values()[0].num_nonfinite, 3u);
  choice.indices.resize(counts.values()[1]);
  choice.values.resize(counts.values()[1]);
  return choice;
}

void ExpectSame(const Choice& got, const Choice& want) {
  ASSERT_EQ(got.indices, want.indices);
  ExpectSameBits(got.values, want.values);
  ExpectSameBits(got.residual, want.residual);
  ExpectSameBits(got.momentum, want.momentum);
  EXPECT_EQ(got.num_nonzero, want.num_nonzero);
}

void ExpectTakesAsReference(const KernelTable& table, size_t n, bool has_ties,
                            float threshold) {
  const std::vector<float> residual =
      has_ties ? Ties(n, true, n) : RandomFloats(n, 1, true, n);
  for (const size_t k : {size_t{1}, n / 20 + 1, n}) {
    for (const bool is_exact : {false, true}) {
      const HowMany how_many = {k, is_exact ? k : 1, is_exact ? k : 2 * k};
      SCOPED_TRACE(::testing::Message()
                   << "n " << n << " ties " << has_ties << " k " << k
                   << " threshold " << threshold);
      ExpectSame(
          Take(table, residual, threshold, how_many, is_exact),
          Take(ReferenceKernels(), residual, threshold, how_many, is_exact));
    }
  }
}

TEST_P(Select, TakesWhatTheReferenceTakes) {
  for (const size_t n : SizesToTry(table())) {
    if (n != 0) ExpectTakesAsReference(table(), n, n % 2 == 0, 0.5f);
  }
}

// All candidates, some of too many, and some of all elements.
TEST_P(Select, TakesWhatTheReferenceTakesOfAnyCandidates) {
  for (const size_t n : {1, 2, 33, 1023, 1024, 1025, 4099, 30011}) {
    for (const bool has_ties : {false, true}) {
      for (const float threshold : {1e-42f, 0.5f, 2.0f, 3e38f}) {
        ExpectTakesAsReference(table(), n, has_ties, threshold);
      }
    }
  }
}

TEST_P(Select, OfEqualOnesTheFirstAndNeverZero) {
  const std::vector<float> residual = {1, -2, 0, 2, -2, INFINITY, 2, NAN};
  Choice choice = Take(table(), residual, 1, {2, 2, 2}, true);
  EXPECT_EQ(choice.indices, (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(choice.values, (std::vector<float>{-2, 2}));
  ExpectSameBits(choice.residual, {1, 0, 0, 0, -2, INFINITY, 2, NAN});
  EXPECT_EQ(choice.momentum, (std::vector<float>{3, 0, 3, 0, 3, 3, 3, 3}));
  // One candidate is too few: of all elements only two can be sent.
  choice = Take(table(), {0, -2, 0, 1}, 2, {3, 3, 3}, false);
  EXPECT_EQ(choice.indices, (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(choice.residual, (std::vector<float>{0, 0, 0, 0}));
}

float Clip(const KernelTable& table, const std::vector<float>& x, double clip,
           size_t skew = 0) {
  Array<float> values(table, x, skew);
  Array<float> scale(table, {-1});
  Array<uint8_t> scratch(table, Scratch(x.size()));
  table.select.clip_scale(values.get(), x.size(), clip, scale.get(),
                          scratch.get(), {});
  Wait(table);
  return scale.values()[0];
}

TEST_P(Select, ClipsAsTheReference) {
  std::vector<size_t> sizes = SizesToTry(table());
  sizes.insert(sizes.end(), {16384, 16385});
  for (const size_t n : sizes) {
    for (const bool specials : {false, true}) {
      const std::vector<float> x = RandomFloats(n, 0.1f, specials, n);
      for (const double clip : {1e-3, 0.5, 1e30}) {
        EXPECT_EQ(Clip(table(), x, clip, 4 * (n % 16)),
                  Clip(ReferenceKernels(), x, clip));
      }
    }
  }
}

TEST_P(Select, ClipsToTheNorm) {
  EXPECT_EQ(Clip(table(), {3, NAN, 4, INFINITY}, 1), 0.2f);
  EXPECT_EQ(Clip(table(), {3, NAN, 4, INFINITY}, 5), 1);
  EXPECT_EQ(Clip(table(), {0, 0}, 1), 1);
}

INSTANTIATE_TEST_SUITE_P(Tables, Select, ::testing::ValuesIn(Tables()), NameOf);

}  // namespace
}  // namespace telegrad::kernels::testing
