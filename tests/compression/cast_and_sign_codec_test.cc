// What is special about fp16, bf16, 1bit and onebit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "compression/codec_spec.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using testing::IsOk;
using testing::StatusIs;

ConstBytes View(const std::vector<float>& values) {
  return {values.data(), 4 * values.size()};
}
Bytes Mutable(std::vector<float>& values) {
  return {values.data(), 4 * values.size()};
}
ConstBytes View(const std::vector<uint8_t>& bytes) {
  return {bytes.data(), bytes.size()};
}

struct Encoder {
  Encoder(const char* text, size_t n) : residual(n) {
    const CodecSpec spec = *ParseCodecSpec(text);
    codec = *spec.codec->Prepare(n, Device{}, spec.options);
    state.residual = Mutable(residual);
  }
  std::vector<uint8_t> Encode(const std::vector<float>& grad,
                              NonFinite nonfinite = NonFinite::kZero) {
    std::vector<uint8_t> out(codec->max_encoded_bytes());
    EncodeResult result;
    EXPECT_THAT(codec->Encode(View(grad), state, {.nonfinite = nonfinite},
                              {out.data(), out.size()}, &result, {}),
                IsOk());
    return out;
  }
  std::vector<float> Decode(const std::vector<uint8_t>& payload) {
    std::vector<float> out(codec->num_elems());
    EXPECT_THAT(codec->Decode(View(payload), 0, Mutable(out), {}), IsOk());
    return out;
  }
  std::unique_ptr<PreparedCodec> codec;
  std::vector<float> residual;
  CodecState state;
};

TEST(CastCodecs, RoundAndKeepWhatIsLeft) {
  Encoder fp16("fp16", 3);
  EXPECT_THAT(fp16.Decode(fp16.Encode({1 + 0x1p-12f, 1e-30f, -70000})),
              ElementsAre(1, 0, -65504));
  EXPECT_THAT(fp16.residual, ElementsAre(0x1p-12f, 1e-30f, -4496));
  Encoder bf16("bf16", 2);
  EXPECT_THAT(bf16.Decode(bf16.Encode({1 + 0x1p-9f, 1e30f})),
              ElementsAre(1, ::testing::FloatNear(1e30f, 4e27f)));
  EXPECT_EQ(bf16.residual[0], 0x1p-9f);
}

TEST(CastCodecs, DropWhatIsLeftWithoutResidual) {
  Encoder fp16("fp16:0", 1);
  for (int step = 0; step < 9; ++step) {
    EXPECT_THAT(fp16.Decode(fp16.Encode({1 + 0x1p-12f})), ElementsAre(1));
  }
  EXPECT_THAT(fp16.residual, ElementsAre(0));
}

TEST(CastCodecs, KeepWhatIsNotFiniteWhereTheyMay) {
  Encoder bf16("bf16:residual=0", 2);
  const auto values =
      bf16.Decode(bf16.Encode({NAN, -INFINITY}, NonFinite::kPropagate));
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(values[1], -INFINITY);
}

TEST(OneBitCodec, ThresholdIsAnOption) {
  Encoder codec("1bit:0.5", 10);
  EXPECT_THAT(codec.Encode({2, -2, .5f, -.5f, 0, 1, -1, .25f, 3, -3}),
              ElementsAre(0x84, 0x80, 0, 0, 0, 0, 0x80, 0x3f));
  EXPECT_THAT(codec.residual,
              ElementsAre(1, -1, 1.5f, .5f, 1, 0, 0, 1.25f, 2, -2));
}

TEST(OneBitCodec, RefusesWhatItCannotHaveWritten) {
  Encoder codec("1bit", 10);
  const auto payload = codec.Encode(std::vector<float>(10, 1.0f));
  ASSERT_THAT(codec.codec->Validate(View(payload)), IsOk());
  auto bad = payload;
  bad[1] = 0xC1;
  EXPECT_THAT(codec.codec->Validate(View(bad)),
              StatusIs(absl::StatusCode::kInvalidArgument, "behind its end"));
  for (const float magnitude : {0.0f, -1.0f, 0.5f, 3.0f, 65536.0f, NAN}) {
    bad = payload;
    std::memcpy(bad.data() + 4, &magnitude, 4);
    EXPECT_THAT(codec.codec->Validate(View(bad)),
                StatusIs(absl::StatusCode::kInvalidArgument, "magnitude"));
  }
}

// Three workers: +3, +1, -1, -3 in units of 1; a server sends +-4.
TEST(OneBitCodec, SumsAndRepliesByHand) {
  Encoder a("1bit", 4);
  Encoder b("1bit", 4);
  Encoder c("1bit", 4);
  const auto x = a.Encode({1, 1, 1, -1});
  const auto y = b.Encode({1, 1, -1, -1});
  const auto z = c.Encode({1, -1, -1, -1});
  const std::vector<ConstBytes> payloads = {View(x), View(y), View(z)};
  std::vector<float> sum(4);
  ASSERT_THAT(a.codec->SumDecode(payloads, 0, Mutable(sum), {}), IsOk());
  EXPECT_THAT(sum, ElementsAre(3, 1, -1, -3));
  EXPECT_EQ(a.codec->sum_bytes(3), 8u);
  ReencodeState state;
  std::vector<uint8_t> reply(a.codec->max_encoded_bytes());
  size_t bytes = 0;
  ASSERT_THAT(a.codec->Reencode(payloads, {}, 0, state,
                                {reply.data(), reply.size()}, &bytes, {}),
              IsOk());
  EXPECT_EQ(bytes, reply.size());
  EXPECT_THAT(a.Decode(reply), ElementsAre(4, 4, -4, -4));
  const std::vector<ConstBytes> mixed = {View(x), View(reply)};
  EXPECT_THAT(a.codec->SumDecode(mixed, 0, Mutable(sum), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "magnitude"));
}

// Parts of sums, whose length is 4096, against one payload after the other.
TEST(OneBitCodec, LongSums) {
  const size_t n = 9001;
  std::vector<float> grad(n);
  for (size_t i = 0; i < n; ++i) {
    grad[i] = static_cast<float>(i * i % 7) - 3;
  }
  Encoder encoder("1bit", n);
  const auto x = encoder.Encode(grad);
  const auto y = encoder.Encode(grad);
  const std::vector<ConstBytes> payloads = {View(x), View(y)};
  std::vector<float> sum(n);
  std::vector<float> want(n);
  ASSERT_THAT(encoder.codec->SumDecode(payloads, 0, Mutable(sum), {}), IsOk());
  ASSERT_THAT(encoder.codec->DecodeAdd(View(x), 0, Mutable(want), {}), IsOk());
  ASSERT_THAT(encoder.codec->DecodeAdd(View(y), 0, Mutable(want), {}), IsOk());
  EXPECT_EQ(sum, want);
}

TEST(BlockSignCodec, SendsTheMeanMagnitude) {
  Encoder codec("onebit:128", 130);
  std::vector<float> grad(130, 0.5f);
  grad[128] = 3;
  grad[129] = -1;
  const auto payload = codec.Encode(grad);
  EXPECT_EQ(payload.size(), 8u + 20u);
  const auto values = codec.Decode(payload);
  EXPECT_EQ(values[0], 0.5f);
  EXPECT_EQ(values[127], 0.5f);
  EXPECT_EQ(values[128], 2);
  EXPECT_EQ(values[129], -2);
  EXPECT_EQ(codec.residual[128], 1);
  EXPECT_EQ(codec.residual[129], 1);
}

TEST(BlockSignCodec, RefusesScalesThatItCannotHaveWritten) {
  Encoder codec("onebit", 10);
  const auto payload = codec.Encode(std::vector<float>(10, 1.0f));
  ASSERT_THAT(codec.codec->Validate(View(payload)), IsOk());
  for (const float scale : {-1.0f, -0.0f, NAN, INFINITY}) {
    auto bad = payload;
    std::memcpy(bad.data(), &scale, 4);
    EXPECT_THAT(codec.codec->Validate(View(bad)),
                StatusIs(absl::StatusCode::kInvalidArgument, "scale"));
  }
  auto bad = payload;
  bad[7] = 1;
  EXPECT_THAT(codec.codec->Validate(View(bad)),
              StatusIs(absl::StatusCode::kInvalidArgument, "behind its end"));
}

TEST(BlockSignCodec, ScalesStayFiniteWithoutAGuard) {
  Encoder codec("onebit", 4);
  const auto payload =
      codec.Encode({NAN, INFINITY, 1, -1}, NonFinite::kPropagate);
  EXPECT_THAT(codec.codec->Validate(View(payload)), IsOk());
}

TEST(BlockSignCodec, BlocksAreMultiplesOf128) {
  for (const char* text : {"onebit:100", "onebit:192", "onebit:9000"}) {
    const auto spec = ParseCodecSpec(text);
    EXPECT_FALSE(spec.ok() &&
                 spec->codec->Prepare(1, Device{}, spec->options).ok())
        << text;
  }
}

}  // namespace
}  // namespace telegrad
