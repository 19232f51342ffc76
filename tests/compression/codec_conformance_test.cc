// The contract of compression/codec.h, for every codec of the registry.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"
#include "compression/codec.h"
#include "tests/compression/codec_variant.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;

constexpr float kThreshold = 0.25f;

class CodecConformance
    : public ::testing::TestWithParam<std::shared_ptr<const Variant>> {
 protected:
  const CodecTraits& traits() { return GetParam()->traits(); }
  std::unique_ptr<PreparedCodec> Prepare(size_t n) {
    auto prepared = GetParam()->Prepare(n, Device{});
    EXPECT_THAT(prepared, IsOk());
    return *std::move(prepared);
  }
};

// Multiples of 2^-10 in [-2, 2]: every sum and difference below is exact.
std::vector<float> DyadicGradient(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<float> grad(n);
  for (float& value : grad) {
    value = (static_cast<float>(random.NextBelow(4097)) - 2048) * 0x1p-10f;
  }
  return grad;
}

ConstBytes View(const std::vector<float>& values) {
  return {values.data(), 4 * values.size()};
}
Bytes Mutable(std::vector<float>& values) {
  return {values.data(), 4 * values.size()};
}

// One worker's encoder with its residual.
struct Encoder {
  explicit Encoder(std::unique_ptr<PreparedCodec> prepared, uint64_t rank = 0)
      : codec(std::move(prepared)), residual(codec->num_elems(), 0.0f) {
    if (codec->traits().needs_residual) state.residual = Mutable(residual);
    params.source = rank;
  }
  Buffer Encode(const std::vector<float>& grad) {
    Buffer out(codec->max_encoded_bytes());
    EncodeResult result;
    EXPECT_THAT(
        codec->Encode(View(grad), state, params, out.view(), &result, {}),
        IsOk());
    ++params.step;
    EXPECT_LE(result.encoded_bytes, codec->max_encoded_bytes());
    if (codec->traits().constant_width) {
      EXPECT_EQ(result.encoded_bytes, codec->max_encoded_bytes());
    }
    Buffer frame(result.encoded_bytes);
    std::memcpy(frame.data(), out.data(), frame.size());
    return frame;
  }
  std::unique_ptr<PreparedCodec> codec;
  std::vector<float> residual;
  CodecState state;
  EncodeParams params{.threshold = kThreshold, .stream = 7};
};

// Codecs that only ever add multiples of a power of two, or nothing.
bool IsExact(const CodecTraits& traits) {
  return traits.lossless || traits.needs_threshold;
}

const size_t kSizes[] = {1,  2,  15,  16,  17,  31,  32,   33,  63,
                         64, 65, 255, 256, 257, 997, 4095, 4097};

TEST_P(CodecConformance, DecodedPlusResidualIsTheSumOfGradients) {
  if (!traits().conserves) GTEST_SKIP() << "no error feedback";
  for (const size_t n : kSizes) {
    Encoder encoder(Prepare(n));
    std::vector<float> decoded(n, 0.0f);
    std::vector<float> total(n, 0.0f);
    for (uint64_t step = 0; step < 20; ++step) {
      const std::vector<float> grad = DyadicGradient(n, 100 * n + step);
      const Buffer frame = encoder.Encode(grad);
      ASSERT_THAT(encoder.codec->Validate(frame.view()), IsOk());
      ASSERT_THAT(encoder.codec->DecodeAdd(frame.view(), kThreshold,
                                           Mutable(decoded), {}),
                  IsOk());
      for (size_t i = 0; i < n; ++i) total[i] += grad[i];
    }
    for (size_t i = 0; i < n; ++i) {
      const float sum = decoded[i] + encoder.residual[i];
      if (IsExact(traits())) {
        ASSERT_EQ(sum, total[i]) << n << " " << i;
      } else {
        ASSERT_NEAR(sum, total[i], 1e-3) << n << " " << i;
      }
    }
  }
}

// Mean of many encodings of the same gradient: within 6 standard errors.
TEST_P(CodecConformance, UnbiasedCodecsAreRightOnAverage) {
  if (!traits().unbiased) GTEST_SKIP() << "biased";
  const size_t n = 64;
  const int num_seeds = 4000;
  const std::vector<float> grad = DyadicGradient(n, 5);
  std::vector<double> sum(n);
  std::vector<double> squares(n);
  for (int seed = 0; seed < num_seeds; ++seed) {
    Encoder encoder(Prepare(n), static_cast<uint64_t>(seed % 3));
    encoder.params.step = static_cast<uint64_t>(seed);
    std::vector<float> decoded(n);
    ASSERT_THAT(encoder.codec->Decode(encoder.Encode(grad).view(), kThreshold,
                                      Mutable(decoded), {}),
                IsOk());
    for (size_t i = 0; i < n; ++i) {
      const double error = decoded[i] - grad[i];
      sum[i] += error;
      squares[i] += error * error;
    }
  }
  for (size_t i = 0; i < n; ++i) {
    ASSERT_LE(std::abs(sum[i]), 6 * std::sqrt(squares[i]) + 1e-3)
        << i << ": " << grad[i];
  }
}

// Bytes of a network: refused, or decoded to something finite in bounds.
TEST_P(CodecConformance, ForeignBytesAreRefusedOrFinite) {
  Random random(11);
  for (const size_t n : {1u, 33u, 257u, 4097u}) {
    Encoder encoder(Prepare(n));
    const PreparedCodec& codec = *encoder.codec;
    const Buffer frame = encoder.Encode(DyadicGradient(n, n));
    for (int trial = 0; trial < 3000; ++trial) {
      Buffer bad(trial % 4 == 0
                     ? random.NextBelow(codec.max_encoded_bytes() + 8) + 1
                     : frame.size());
      std::memcpy(bad.data(), frame.data(), std::min(bad.size(), frame.size()));
      const uint64_t num_changes = 1 + random.NextBelow(8);
      for (uint64_t change = 0; change < num_changes; ++change) {
        bad.as<uint8_t>()[random.NextBelow(bad.size())] =
            static_cast<uint8_t>(random.NextU32());
      }
      std::vector<float> out(n, 0.0f);
      if (!codec.Validate(bad.view()).ok()) {
        if (!traits().needs_threshold && !traits().lossless) {
          EXPECT_FALSE(
              codec.Decode(bad.view(), kThreshold, Mutable(out), {}).ok());
        }
        continue;
      }
      ASSERT_THAT(codec.Decode(bad.view(), kThreshold, Mutable(out), {}),
                  IsOk());
      if (traits().keeps_nonfinite) continue;
      for (const float value : out) ASSERT_TRUE(std::isfinite(value));
    }
  }
}

TEST_P(CodecConformance, DecodeAddIsDecodeThenAdd) {
  const size_t n = 1003;
  Encoder encoder(Prepare(n));
  const Buffer frame = encoder.Encode(DyadicGradient(n, 5));
  std::vector<float> decoded(n, 9.0f);
  std::vector<float> sum(n, 0.5f);
  ASSERT_THAT(
      encoder.codec->Decode(frame.view(), kThreshold, Mutable(decoded), {}),
      IsOk());
  ASSERT_THAT(
      encoder.codec->DecodeAdd(frame.view(), kThreshold, Mutable(sum), {}),
      IsOk());
  for (size_t i = 0; i < n; ++i) ASSERT_EQ(sum[i], 0.5f + decoded[i]) << i;
}

TEST_P(CodecConformance, AllFormsOfTheSumAgree) {
  for (const size_t num_workers : {1u, 2u, 3u, 4u, 7u, 8u, 17u}) {
    for (const size_t n : {1u, 33u, 1003u}) {
      const auto codec = Prepare(n);
      std::vector<Buffer> frames;
      std::vector<ConstBytes> views;
      std::vector<float> expected(n, 0.0f);
      for (size_t w = 0; w < num_workers; ++w) {
        Encoder encoder(Prepare(n), w);
        frames.push_back(encoder.Encode(DyadicGradient(n, 7 * w + n)));
        views.push_back(frames.back().view());
        ASSERT_THAT(
            codec->DecodeAdd(views.back(), kThreshold, Mutable(expected), {}),
            IsOk());
      }
      const auto count = static_cast<uint32_t>(num_workers);
      Buffer packed(codec->sum_bytes(count));
      std::vector<float> unpacked(n, 7.0f);
      std::vector<float> direct(n, 8.0f);
      ASSERT_THAT(codec->SumDecode(views, kThreshold, Mutable(direct), {}),
                  IsOk());
      ASSERT_THAT(codec->SumCodes(views, packed.view(), {}), IsOk());
      ASSERT_THAT(codec->ValidateSum(packed.view(), count), IsOk());
      ASSERT_THAT(codec->DecodeSum(packed.view(), count, kThreshold,
                                   Mutable(unpacked), {}),
                  IsOk());
      ASSERT_EQ(unpacked, direct) << num_workers << " " << n;
      if (!traits().summable || IsExact(traits())) {
        ASSERT_EQ(direct, expected) << num_workers << " " << n;
      }
      for (size_t i = 0; i < n; ++i) {
        ASSERT_NEAR(direct[i], expected[i], 1e-4) << num_workers << " " << n;
      }
      if (!traits().summable || !IsExact(traits())) continue;
      std::reverse(views.begin(), views.end());
      Buffer reversed(codec->sum_bytes(count));
      ASSERT_THAT(codec->SumCodes(views, reversed.view(), {}), IsOk());
      ASSERT_EQ(std::memcmp(reversed.data(), packed.data(), packed.size()), 0)
          << "the order of arrival shows";
    }
  }
}

TEST_P(CodecConformance, WrongSizesAreErrorsAndTouchNothing) {
  const size_t n = 100;
  Encoder encoder(Prepare(n));
  const PreparedCodec& codec = *encoder.codec;
  std::vector<float> grad = DyadicGradient(n, 1);
  std::vector<float> out(n, 3.0f);
  Buffer frame = encoder.Encode(grad);
  EncodeResult result;
  const EncodeParams params{.threshold = kThreshold};
  EXPECT_FALSE(codec
                   .Encode({grad.data(), 4 * n - 4}, encoder.state, params,
                           frame.view(), &result, {})
                   .ok());
  EXPECT_FALSE(codec
                   .Encode(View(grad), encoder.state, params,
                           {frame.data(), codec.max_encoded_bytes() - 1},
                           &result, {})
                   .ok());
  Buffer longer(frame.size() + 1);
  std::memcpy(longer.data(), frame.data(), frame.size());
  for (size_t size = 0; size <= longer.size(); ++size) {
    if (size == frame.size()) continue;
    EXPECT_FALSE(codec.Validate({longer.data(), size}).ok()) << size;
    EXPECT_FALSE(
        codec.Decode({longer.data(), size}, kThreshold, Mutable(out), {}).ok());
  }
  EXPECT_FALSE(
      codec.Decode(frame.view(), kThreshold, {out.data(), 4 * n - 4}, {}).ok());
  EXPECT_FALSE(codec.SumCodes({}, frame.view(), {}).ok());
  EXPECT_EQ(std::count(out.begin(), out.end(), 3.0f), 100);
}

TEST_P(CodecConformance, AnEmptyTensorIsRefused) {
  EXPECT_FALSE(GetParam()->Prepare(0, Device{}).ok());
}

TEST_P(CodecConformance, AMissingGpuIsAReasonNotACrash) {
  const auto prepared = GetParam()->Prepare(16, {DeviceKind::kCuda, 0});
  if (prepared.ok()) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(prepared.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_FALSE(prepared.status().message().empty());
}

TEST_P(CodecConformance, NonFiniteElementsAreCountedAndTakenAsZero) {
  const size_t n = 77;
  Encoder encoder(Prepare(n));
  std::vector<float> grad = DyadicGradient(n, 3);
  grad[13] = std::nanf("");
  grad[50] = INFINITY;
  Buffer frame(encoder.codec->max_encoded_bytes());
  EncodeResult result;
  ASSERT_THAT(encoder.codec->Encode(View(grad), encoder.state,
                                    {.threshold = kThreshold}, frame.view(),
                                    &result, {}),
              IsOk());
  EXPECT_EQ(result.stats.num_nonfinite, 2u);
  EXPECT_EQ(result.stats.first_nonfinite, 13u);
  for (const float residual : encoder.residual) {
    EXPECT_TRUE(std::isfinite(residual));
  }
}

float ResidualAt(const PreparedCodec& codec, const ReencodeState& state,
                 size_t i) {
  if (codec.traits().id != CodecId::kTwoBit) {
    return state.residual.as<float>()[i];
  }
  return static_cast<float>(state.residual.as<int32_t>()[i]) * kThreshold;
}

// Every element's code in every payload.
bool SendsAll(const CodecTraits& traits) {
  return std::none_of(traits.options.begin(), traits.options.end(),
                      [](const CodecOption& option) {
                        return option.field == &CodecOptions::density ||
                               option.field == &CodecOptions::rank;
                      });
}

// Of thresholds.
constexpr float kAgreed[] = {1.0f, 0.625f, -0.875f, -0.03125f};

// Agreeing workers are the worst case for the server's residual.
TEST_P(CodecConformance, ReencodedSumsConserveAndStayBounded) {
  if (traits().lossless) GTEST_SKIP() << "nothing to encode again";
  for (const uint32_t num_workers : {1u, 2u, 3u, 5u, 8u}) {
    const size_t n = 48;
    const auto codec = Prepare(n);
    std::vector<float> grad(n);
    for (size_t i = 0; i < n; ++i) grad[i] = kThreshold * kAgreed[i % 4];
    ReencodeState state;
    std::vector<Encoder> encoders;
    for (uint32_t w = 0; w < num_workers; ++w) {
      encoders.emplace_back(Prepare(n), w);
    }
    double sent = 0;
    double received = 0;
    // In steps' worth of gradients; codecs that send a part make others wait.
    const size_t waits = SendsAll(traits()) ? 8 : 20 * n;
    const float most = static_cast<float>(waits * num_workers) * kThreshold;
    for (uint64_t step = 0; step < 10000; ++step) {
      std::vector<Buffer> frames;
      std::vector<ConstBytes> views;
      std::vector<float> pushed(n);
      for (Encoder& encoder : encoders) {
        frames.push_back(encoder.Encode(grad));
        views.push_back(frames.back().view());
      }
      ASSERT_THAT(codec->SumDecode(views, kThreshold, Mutable(pushed), {}),
                  IsOk());
      Buffer reply(codec->max_reencoded_bytes(num_workers));
      size_t reply_bytes = 0;
      const EncodeParams params{.threshold = kThreshold,
                                .stream = 7,
                                .step = step,
                                .source = kServerSource};
      ASSERT_THAT(codec->Reencode(views, params, -2, state, reply.view(),
                                  &reply_bytes, {}),
                  IsOk());
      const ConstBytes payload(reply.data(), reply_bytes);
      ASSERT_THAT(codec->Validate(payload), IsOk());
      std::vector<float> decoded(n);
      ASSERT_THAT(
          codec->Decode(payload,
                        codec->ReencodeThreshold(kThreshold, num_workers),
                        Mutable(decoded), {}),
          IsOk());
      sent += pushed[5];
      received += decoded[5];
      if (!traits().needs_residual) continue;
      for (size_t i = 0; i < n; ++i) {
        ASSERT_LE(std::abs(ResidualAt(*codec, state, i)), most) << i;
        ASSERT_LE(std::abs(encoders[0].residual[i]), most) << i;
      }
      const float residual = ResidualAt(*codec, state, 5);
      if (!traits().conserves) continue;
      if (IsExact(traits())) {
        ASSERT_EQ(sent, received + residual) << num_workers << " " << step;
      } else {
        ASSERT_NEAR(sent, received + residual, 1e-4 * (1 + std::abs(sent)))
            << num_workers << " " << step;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, CodecConformance,
                         ::testing::ValuesIn(Variants()),
                         [](const auto& variant) {
                           return variant.param->TestName();
                         });

TEST(CodecRegistry, UnknownNamesListTheKnownOnes) {
  EXPECT_THAT(FindCodec("3bit"),
              testing::StatusIs(absl::StatusCode::kNotFound, "2bit"));
}

}  // namespace
}  // namespace telegrad
