#include <cstdint>
#include <vector>

#include "tests/kernels/kernel_test.h"

// A decode fused with the optimizer's step gives what a decode and then a step
// give, bit for bit.
namespace telegrad::kernels::testing {
namespace {

class DecodeSgd : public KernelTest {};

// Plain SGD, momentum alone, all of it, and a rate that makes infinities.
constexpr SgdParameters kParameters[] = {
    {.learning_rate = 0.1f},
    {.learning_rate = 0.05f, .momentum_rate = 0.9f},
    {.learning_rate = 0.1f,
     .momentum_rate = 0.9f,
     .weight_decay = 1e-4f,
     .rescale = 0.3f},
    {.learning_rate = 1e38f, .momentum_rate = 2.0f, .rescale = 1e30f}};

// How far arrays are off a boundary, in bytes.
struct Skews {
  size_t codes = 0;
  size_t weight = 0;
  size_t momentum = 0;
};

struct State {
  std::vector<float> weight;
  std::vector<float> momentum;
};

void ExpectSame(const State& got, const State& want) {
  ExpectSameBits(got.weight, want.weight);
  ExpectSameBits(got.momentum, want.momentum);
}

State RandomState(size_t n) {
  return {RandomFloats(n, 1.0f, true, n + 1),
          RandomFloats(n, 1.0f, true, n + 2)};
}

// decode(codes, gradient), then SgdMomentumFn.
template <typename Decode>
State StepAfter(const KernelTable& table, const std::vector<uint8_t>& codes,
                const State& from, SgdParameters params, Decode decode) {
  const size_t n = from.weight.size();
  Array<uint8_t> c(table, codes);
  Array<float> grad(table, std::vector<float>(n, 99));
  Array<float> weight(table, from.weight);
  Array<float> momentum(table, from.momentum);
  decode(c.get(), grad.get());
  table.sgd_momentum(grad.get(), n, params, weight.get(), momentum.get(),
                     Stream{});
  Wait(table);
  return {weight.values(), momentum.values()};
}

// step(codes, weight, momentum).
template <typename Step>
State Fused(const KernelTable& table, const std::vector<uint8_t>& codes,
            const State& from, const Skews& skews, Step step) {
  Array<uint8_t> c(table, codes, skews.codes);
  Array<float> weight(table, from.weight, skews.weight);
  Array<float> momentum(table, from.momentum, skews.momentum);
  step(c.get(), weight.get(), momentum.get());
  Wait(table);
  return {weight.values(), momentum.values()};
}

void ExpectTwoBitStep(const KernelTable& table, size_t n, SgdParameters params,
                      const Skews& skews) {
  const auto codes = RandomBytes(TwoBitBytes(n), n);
  const State from = RandomState(n);
  const State got = Fused(
      table, codes, from, skews, [&](const uint8_t* c, float* w, float* m) {
        table.two_bit_decode_sgd(c, n, 0.1f, params, w, m, Stream{});
      });
  for (const KernelTable* by : {&table, &ReferenceKernels()}) {
    ExpectSame(got, StepAfter(*by, codes, from, params,
                              [&](const uint8_t* c, float* grad) {
                                by->two_bit_decode(c, n, 0.1f, grad, Stream{});
                              }));
  }
}

void ExpectPackedStep(const KernelTable& table, size_t n, uint32_t num_frames,
                      SgdParameters params, const Skews& skews) {
  const auto packed = RandomBytes(PackedSumBytes(n, num_frames), n);
  const State from = RandomState(n);
  const State got = Fused(table, packed, from, skews,
                          [&](const uint8_t* c, float* w, float* m) {
                            table.packed_sum_decode_sgd(c, num_frames, n, 0.1f,
                                                        params, w, m, Stream{});
                          });
  for (const KernelTable* by : {&table, &ReferenceKernels()}) {
    ExpectSame(got, StepAfter(*by, packed, from, params,
                              [&](const uint8_t* c, float* grad) {
                                by->packed_sum_decode(c, num_frames, n, 0.1f,
                                                      grad, Stream{});
                              }));
  }
}

TEST_P(DecodeSgd, OfCodesIsADecodeAndAStep) {
  for (const size_t n : SizesToTry()) {
    const size_t odd = n % 2;
    for (const SgdParameters& params : kParameters) {
      SCOPED_TRACE(::testing::Message()
                   << "n " << n << " rate " << params.learning_rate);
      ExpectTwoBitStep(table(), n, params, {3 * odd, 4 * odd, 8 * odd});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(DecodeSgd, OfPackedSumsIsADecodeAndAStep) {
  for (const size_t n : SizesToTry()) {
    const size_t odd = n % 2;
    for (const uint32_t num_frames : {1u, 2u, 5u, 9u, 300u}) {
      SCOPED_TRACE(::testing::Message()
                   << "n " << n << " frames " << num_frames);
      ExpectPackedStep(table(), n, num_frames, kParameters[2],
                       {3 * odd, 4 * odd, 8 * odd});
      if (HasFatalFailure()) return;
    }
  }
}

// Each array off its vectors' boundaries alone, by as much as its type allows.
TEST_P(DecodeSgd, AtAnyAddress) {
  for (const size_t n : {size_t{131}, size_t{1023}, size_t{4099}}) {
    for (size_t k = 1; k < 4; ++k) {
      for (const Skews skews :
           {Skews{k, 0, 0}, Skews{0, 4 * k, 0}, Skews{0, 0, 4 * k}}) {
        SCOPED_TRACE(::testing::Message()
                     << "n " << n << " codes " << skews.codes << " weight "
                     << skews.weight << " momentum " << skews.momentum);
        ExpectTwoBitStep(table(), n, kParameters[2], skews);
        ExpectPackedStep(table(), n, 3, kParameters[2], skews);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// By hand: g = 2 * (+-1/2 or 0) + w / 4; m = m / 2 - g / 2; w = w + m.
TEST_P(DecodeSgd, KnownAnswer) {
  const State from = {{4, 4, 4}, {2, 2, 2}};
  const State got =
      Fused(table(), {0b11100000, 0, 0, 0}, from, {},
            [&](const uint8_t* codes, float* weight, float* momentum) {
              table().two_bit_decode_sgd(codes, 3, 0.5f,
                                         {.learning_rate = 0.5f,
                                          .momentum_rate = 0.5f,
                                          .weight_decay = 0.25f,
                                          .rescale = 2.0f},
                                         weight, momentum, Stream{});
            });
  EXPECT_THAT(got.momentum, ::testing::ElementsAre(0, 1, 0.5f));
  EXPECT_THAT(got.weight, ::testing::ElementsAre(4, 5, 4.5f));
}

INSTANTIATE_TEST_SUITE_P(Kernels, DecodeSgd, ::testing::ValuesIn(Tables()),
                         NameOf);

}  // namespace
}  // namespace telegrad::kernels::testing
