// The contract of compression/codec.h, for every codec of the registry.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "compression/codec.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;

constexpr float kThreshold = 0.25f;

class CodecConformance : public ::testing::TestWithParam<const Codec*> {
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
  explicit Encoder(std::unique_ptr<PreparedCodec> prepared)
      : codec(std::move(prepared)), residual(codec->num_elems(), 0.0f) {
    if (codec->traits().needs_residual) state.residual = Mutable(residual);
  }
  Buffer Encode(const std::vector<float>& grad) {
    Buffer out(codec->max_encoded_bytes());
    EncodeResult result;
    EXPECT_THAT(codec->Encode(View(grad), state, {.threshold = kThreshold},
                              out.view(), &result, {}),
                IsOk());
    EXPECT_LE(result.encoded_bytes, codec->max_encoded_bytes());
    return out;
  }
  std::unique_ptr<PreparedCodec> codec;
  std::vector<float> residual;
  CodecState state;
};

const size_t kSizes[] = {1,  2,  15,  16,  17,  31,  32,   33,  63,
                         64, 65, 255, 256, 257, 997, 4095, 4097};

TEST_P(CodecConformance, DecodedPlusResidualIsTheSumOfGradients) {
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
      ASSERT_EQ(decoded[i] + encoder.residual[i], total[i]) << n << " " << i;
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
        Encoder encoder(Prepare(n));
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
      ASSERT_THAT(codec->DecodeSum(packed.view(), count, kThreshold,
                                   Mutable(unpacked), {}),
                  IsOk());
      ASSERT_EQ(direct, expected) << num_workers << " " << n;
      ASSERT_EQ(unpacked, expected) << num_workers << " " << n;
      if (!traits().summable) continue;
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
                           {frame.data(), frame.size() - 1}, &result, {})
                   .ok());
  for (size_t size = 0; size <= frame.size() + 1; ++size) {
    if (size == codec.max_encoded_bytes()) continue;
    EXPECT_FALSE(codec.Validate({frame.data(), size}).ok()) << size;
    EXPECT_FALSE(
        codec.Decode({frame.data(), size}, kThreshold, Mutable(out), {}).ok());
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

// Agreeing workers are the worst case for the server's residual.
TEST_P(CodecConformance, ReencodedSumsConserveAndStayBounded) {
  if (!traits().summable) GTEST_SKIP() << "codes cannot be added";
  for (const uint32_t num_workers : {1u, 2u, 3u, 5u, 8u}) {
    const size_t n = 48;
    const auto codec = Prepare(n);
    const std::vector<float> ones(n, kThreshold);
    ReencodeState state;
    double sent = 0;
    double received = 0;
    for (int step = 0; step < 10000; ++step) {
      std::vector<Buffer> frames;
      std::vector<ConstBytes> views;
      for (uint32_t w = 0; w < num_workers; ++w) {
        Encoder encoder(Prepare(n));
        frames.push_back(encoder.Encode(ones));
        views.push_back(frames.back().view());
      }
      Buffer reply(codec->max_encoded_bytes());
      ASSERT_THAT(codec->Reencode(views, -2, state, reply.view(), {}), IsOk());
      std::vector<float> decoded(n);
      ASSERT_THAT(
          codec->Decode(reply.view(),
                        codec->ReencodeThreshold(kThreshold, num_workers),
                        Mutable(decoded), {}),
          IsOk());
      sent += num_workers;
      received += decoded[5] / kThreshold;
      const int32_t residual = state.residual.as<int32_t>()[5];
      ASSERT_EQ(sent, received + residual) << num_workers << " " << step;
      ASSERT_LT(std::abs(residual),
                2 * codec->ReencodeThreshold(1, num_workers));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, CodecConformance,
                         ::testing::ValuesIn(AllCodecs()),
                         [](const auto& codec) {
                           std::string name = codec.param->traits().name;
                           if (std::isdigit(
                                   static_cast<unsigned char>(name[0])))
                             name = "Codec" + name;
                           return name;
                         });

TEST(CodecRegistry, UnknownNamesListTheKnownOnes) {
  EXPECT_THAT(FindCodec("3bit"),
              testing::StatusIs(absl::StatusCode::kNotFound, "2bit"));
}

}  // namespace
}  // namespace telegrad
