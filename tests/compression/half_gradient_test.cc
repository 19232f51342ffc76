// Encode of a 16-bit gradient, for every codec of the registry: the bytes and
// residuals of the same gradient as float32, or a refusal.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "compression/codec.h"
#include "kernels/dispatch.h"
#include "tests/compression/codec_variant.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;
using testing::StatusIs;

constexpr float kThreshold = 0.25f;

struct Gradient {
  std::vector<uint16_t> halves;
  std::vector<float> floats;
};

Gradient RandomGradient(HalfFormat format, size_t n, uint64_t seed) {
  Random random(seed);
  Gradient made = {std::vector<uint16_t>(n), std::vector<float>(n)};
  for (float& value : made.floats) value = 0.2f * random.NextNormal();
  const kernels::CastKernels& cast = kernels::CpuKernels().cast;
  const auto& by = format == HalfFormat::kFp16 ? cast.fp16 : cast.bf16;
  auto* const codes = reinterpret_cast<uint8_t*>(made.halves.data());
  EncodeStats stats;
  by.encode(made.floats.data(), nullptr, n, NonFinite::kZero, codes, &stats,
            {});
  by.decode(codes, n, made.floats.data(), {});
  return made;
}

struct Encoder {
  explicit Encoder(const PreparedCodec& prepared)
      : codec(prepared), residual(prepared.num_elems()) {
    if (!codec.traits().needs_residual) residual.clear();
    state.residual = Bytes(residual.data(), 4 * residual.size());
  }
  std::string Payload() const {
    return {reinterpret_cast<const char*>(out.data()), result.encoded_bytes};
  }

  const PreparedCodec& codec;
  std::vector<float> residual;
  CodecState state;
  EncodeParams params{.threshold = kThreshold, .stream = 7};
  Buffer out{codec.max_encoded_bytes()};
  EncodeResult result;
};

class HalfGradient
    : public ::testing::TestWithParam<std::shared_ptr<const Variant>> {};

TEST_P(HalfGradient, EncodesAsTheSameFloatsOrNotAtAll) {
  static const std::set<std::string> takes = {"2bit", "threshold"};
  for (const size_t n : {size_t{1}, size_t{17}, size_t{257}, size_t{4097}}) {
    const auto codec = GetParam()->Prepare(n, Device{});
    ASSERT_THAT(codec, IsOk());
    const bool is_taken =
        takes.contains((*codec)->traits().name) && (*codec)->packing() == 0;
    for (const HalfFormat format : {HalfFormat::kFp16, HalfFormat::kBf16}) {
      Encoder halves(**codec);
      Encoder floats(**codec);
      for (uint64_t step = 0; step < 5; ++step) {
        const Gradient grad = RandomGradient(format, n, 10 * n + step);
        const ConstBytes bytes(grad.halves.data(), 2 * n);
        const absl::Status status =
            (*codec)->EncodeHalf(format, bytes, halves.state, halves.params,
                                 halves.out.view(), &halves.result, {});
        if (!is_taken) {
          ASSERT_THAT(status, StatusIs(absl::StatusCode::kUnimplemented,
                                       "does not take 16-bit gradients"));
          break;
        }
        ASSERT_THAT(status, IsOk());
        ASSERT_THAT((*codec)->Encode({grad.floats.data(), 4 * n}, floats.state,
                                     floats.params, floats.out.view(),
                                     &floats.result, {}),
                    IsOk());
        ASSERT_EQ(halves.Payload(), floats.Payload()) << n << " " << step;
        ASSERT_EQ(halves.residual, floats.residual) << n << " " << step;
        ASSERT_EQ(halves.result.stats.num_nonzero,
                  floats.result.stats.num_nonzero);
      }
    }
  }
}

TEST_P(HalfGradient, WrongSizesAreErrors) {
  constexpr size_t kN = 33;
  const auto codec = GetParam()->Prepare(kN, Device{});
  ASSERT_THAT(codec, IsOk());
  const std::vector<float> grad(kN);
  Encoder encoder(**codec);
  for (const size_t bytes : {size_t{0}, 2 * kN - 2, 2 * kN + 2, 4 * kN}) {
    EXPECT_FALSE((*codec)
                     ->EncodeHalf(HalfFormat::kFp16, {grad.data(), bytes},
                                  encoder.state, encoder.params,
                                  encoder.out.view(), &encoder.result, {})
                     .ok())
        << bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, HalfGradient, ::testing::ValuesIn(Variants()),
                         [](const auto& variant) {
                           return variant.param->TestName();
                         });

}  // namespace
}  // namespace telegrad
