// What is special to int8 to int2, the same shared, qsgd and terngrad.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/random.h"
#include "compression/block/block_codecs.h"
#include "compression/codec_spec.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;
using testing::StatusIs;

constexpr float kThreshold = 0.25f;

std::unique_ptr<PreparedCodec> PrepareText(const char* text, size_t n) {
  const auto spec = ParseCodecSpec(text);
  EXPECT_THAT(spec, IsOk());
  auto prepared = spec->codec->Prepare(n, Device{}, spec->options);
  EXPECT_THAT(prepared, IsOk());
  return *std::move(prepared);
}

std::vector<float> NormalGradient(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<float> grad(n);
  for (float& value : grad) value = 0.1f * random.NextNormal();
  return grad;
}

// One encoding with a residual of zeros.
struct Once {
  Once(const char* text, const std::vector<float>& grad, uint64_t step = 0,
       uint64_t source = 0)
      : codec(PrepareText(text, grad.size())),
        residual(grad.size()),
        payload(codec->max_encoded_bytes()),
        decoded(grad.size()) {
    CodecState state;
    const size_t bytes = 4 * grad.size();
    if (codec->traits().needs_residual) {
      state.residual = {residual.data(), bytes};
    }
    const EncodeParams params = {
        .threshold = kThreshold, .stream = 3, .step = step, .source = source};
    EncodeResult result;
    EXPECT_THAT(codec->Encode({grad.data(), bytes}, state, params,
                              payload.view(), &result, {}),
                IsOk());
    EXPECT_THAT(codec->Validate(payload.view()), IsOk());
    EXPECT_THAT(
        codec->Decode(payload.view(), kThreshold, {decoded.data(), bytes}, {}),
        IsOk());
  }
  uint8_t* bytes() { return payload.as<uint8_t>(); }

  std::unique_ptr<PreparedCodec> codec;
  std::vector<float> residual;
  Buffer payload;
  std::vector<float> decoded;
};

TEST(BlockCodecs, SizesAreThoseOfTheDocument) {
  EXPECT_EQ(PrepareText("int8", 2500)->max_encoded_bytes(), 2500u + 12);
  EXPECT_EQ(PrepareText("int4", 2501)->max_encoded_bytes(), 1251u + 12);
  EXPECT_EQ(PrepareText("int3", 2501)->max_encoded_bytes(), 938u + 20);
  EXPECT_EQ(PrepareText("int2", 2501)->max_encoded_bytes(), 626u + 20);
  EXPECT_EQ(PrepareText("int3shared", 77)->max_encoded_bytes(), 29u);
  EXPECT_EQ(PrepareText("int8:block=64", 65)->max_encoded_bytes(), 65u + 8);
  EXPECT_EQ(PrepareText("int8shared", 77)->max_encoded_bytes(), 77u);
  EXPECT_EQ(PrepareText("int4shared", 77)->max_encoded_bytes(), 39u);
  EXPECT_EQ(PrepareText("qsgd", 513)->max_encoded_bytes(), 513u + 8);
  EXPECT_EQ(PrepareText("qsgd:7", 513)->max_encoded_bytes(), 257u + 8);
  EXPECT_EQ(PrepareText("qsgd:1", 513)->max_encoded_bytes(), 129u + 8);
  EXPECT_EQ(PrepareText("terngrad", 513)->max_encoded_bytes(), 129u + 4);
}

TEST(BlockCodecs, ABlockMustBeAMultipleOf64) {
  for (const char* text : {"int8:block=100", "int2:block=100"}) {
    EXPECT_THAT(ParseCodecSpec(text).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, "multiple of 64"));
  }
}

TEST(BlockCodecs, DropWhatIsLeftWithoutResidual) {
  const std::vector<float> grad = {1, 0.3f, -0.7f, 1e-5f};
  for (const std::string codec : {"int8", "int4", "int2"}) {
    const Once kept(codec.c_str(), grad);
    const Once dropped((codec + ":residual=0").c_str(), grad);
    EXPECT_EQ(dropped.decoded, kept.decoded);
    EXPECT_NE(kept.residual[1], 0);
    EXPECT_EQ(dropped.residual, std::vector<float>(grad.size()));
  }
}

TEST(BlockCodecs, ErrorsAreAtMostHalfAStep) {
  const std::vector<float> grad = NormalGradient(5000, 1);
  for (const auto& [text, levels] :
       {std::pair("int8", 127.0f), {"int4", 7.0f}}) {
    const Once once(text, grad);
    for (size_t from = 0; from < grad.size(); from += 1024) {
      const size_t to = std::min<size_t>(from + 1024, grad.size());
      float most = 0;
      for (size_t i = from; i < to; ++i) {
        most = std::max(most, std::abs(grad[i]));
      }
      for (size_t i = from; i < to; ++i) {
        ASSERT_LE(std::abs(once.decoded[i] - grad[i]), 0.5001f * most / levels)
            << text << " " << i;
      }
    }
  }
}

TEST(BlockCodecs, SharedQuantaAreShared) {
  const Once int8("int8shared", {0.25f, -0.25f / 32, 9.0f, -9.0f});
  const float quantum = kThreshold / 32;
  EXPECT_EQ(int8.decoded, (std::vector<float>{0.25f, -quantum, 127 * quantum,
                                              -127 * quantum}));
  EXPECT_EQ(int8.residual[2], 9.0f - 127 * quantum);
  const Once int4("int4shared", {0.25f, -0.125f, 9.0f, -9.0f});
  EXPECT_EQ(int4.decoded,
            (std::vector<float>{0.25f, -0.125f, 0.875f, -0.875f}));
  // Odd multiples: 0 goes up, 0.5 lies on a border, whose even code is 0.
  const Once int2("int2shared", {0.0f, 0.5f, 0.625f, -9.0f});
  EXPECT_EQ(int2.decoded, (std::vector<float>{0.25f, 0.25f, 0.75f, -0.75f}));
  const Once int3("int3shared", {1.125f, -0.625f, 9.0f, -9.0f});
  EXPECT_EQ(int3.decoded, (std::vector<float>{1.25f, -0.75f, 1.75f, -1.75f}));
}

TEST(BlockCodecs, SumsAreAsWideAsTheyMustBe) {
  const auto int8 = PrepareText("int8shared", 10);
  EXPECT_EQ(int8->sum_bytes(1), 20u);
  EXPECT_EQ(int8->sum_bytes(258), 20u);
  EXPECT_EQ(int8->sum_bytes(259), 40u);
  const auto int4 = PrepareText("int4shared", 10);
  EXPECT_EQ(int4->sum_bytes(18), 10u);
  EXPECT_EQ(int4->sum_bytes(19), 20u);
  EXPECT_EQ(int4->sum_bytes(4681), 20u);
  EXPECT_EQ(int4->sum_bytes(4682), 40u);
  const auto int2 = PrepareText("int2shared", 16);
  EXPECT_EQ(int2->sum_bytes(2), 6u);
  EXPECT_EQ(int2->sum_bytes(4), 8u);
  EXPECT_EQ(int2->sum_bytes(8), 10u);
  EXPECT_EQ(int2->sum_bytes(64), 16u);
  EXPECT_EQ(int2->sum_bytes(65), 32u);
  const auto int3 = PrepareText("int3shared", 16);
  EXPECT_EQ(int3->sum_bytes(1), 6u);
  EXPECT_EQ(int3->sum_bytes(8), 12u);
}

TEST(BlockCodecs, SumsBeyondTheirWorkersAreRefused) {
  const auto codec = PrepareText("int4shared", 3);
  const int8_t good[] = {14, -14, 0};
  const int8_t bad[] = {14, -15, 0};
  EXPECT_THAT(codec->ValidateSum({good, 3}, 2), IsOk());
  EXPECT_FALSE(codec->ValidateSum({bad, 3}, 2).ok());
  EXPECT_FALSE(codec->ValidateSum({good, 3}, 1).ok());
  // -4 and 2, 3 bits each; 3 cannot be, and nothing lies behind them.
  const auto odd = PrepareText("int2shared", 2);
  const uint8_t sums[] = {0b010100};
  const uint8_t above[] = {0b011100};
  const uint8_t behind[] = {0b1010100};
  EXPECT_THAT(odd->ValidateSum({sums, 1}, 2), IsOk());
  EXPECT_FALSE(odd->ValidateSum({above, 1}, 2).ok());
  EXPECT_FALSE(odd->ValidateSum({behind, 1}, 2).ok());
}

TEST(BlockCodecs, WhatCannotBeWrittenIsRefused) {
  const std::vector<float> grad = NormalGradient(67, 2);
  for (const char* text : {"int8", "int4", "qsgd", "qsgd:7", "qsgd:5",
                           "qsgd:natural=1", "terngrad", "qsgd:1"}) {
    for (const float scale : {-1.0f, NAN, INFINITY, 1e38f, 1e-42f, -0.0f}) {
      Once once(text, grad);
      std::memcpy(once.bytes(), &scale, sizeof(scale));
      EXPECT_FALSE(once.codec->Validate(once.payload.view()).ok())
          << text << " " << scale;
    }
    Once none(text, grad);
    std::memset(none.bytes(), 0, 4);
    EXPECT_FALSE(none.codec->Validate(none.payload.view()).ok()) << text;
    Once lowest(text, grad);
    lowest.bytes()[lowest.payload.size() - 2] = 0x80;
    EXPECT_FALSE(lowest.codec->Validate(lowest.payload.view()).ok()) << text;
  }
  Once over("qsgd:5", grad);
  over.bytes()[over.payload.size() - 2] = 0x06;
  EXPECT_FALSE(over.codec->Validate(over.payload.view()).ok());
  for (const char* text : {"int2", "int3"}) {
    for (const int bits : {0xBF80, 0x7FC0, 0x7F80, 0x7E96, 0x8000, 1}) {
      const auto scale = static_cast<uint16_t>(bits);
      Once once(text, grad);
      std::memcpy(once.bytes(), &scale, sizeof(scale));
      EXPECT_FALSE(once.codec->Validate(once.payload.view()).ok())
          << text << " " << scale;
    }
    Once none(text, grad);
    std::memset(none.bytes(), 0, 2);
    EXPECT_FALSE(none.codec->Validate(none.payload.view()).ok()) << text;
    Once last(text, grad);
    last.bytes()[last.payload.size() - 1] |= 0x80;
    EXPECT_FALSE(last.codec->Validate(last.payload.view()).ok()) << text;
  }
  Once behind("int4shared", grad);
  behind.bytes()[33] |= 0x10;
  EXPECT_FALSE(behind.codec->Validate(behind.payload.view()).ok());
}

TEST(BlockCodecs, AThresholdOutOfRangeIsAnError) {
  const auto codec = PrepareText("int8shared", 2);
  const uint8_t payload[2] = {1, 2};
  float out[2];
  for (const float threshold : {0.0f, -1.0f, NAN, INFINITY, 1e-42f, 3e38f}) {
    EXPECT_FALSE(codec->Decode({payload, 2}, threshold, {out, 8}, {}).ok())
        << threshold;
  }
}

TEST(BlockCodecs, TernGradSendsThreeValues) {
  std::vector<float> grad = NormalGradient(10000, 3);
  grad[7] = -1.5f;
  const Once once("terngrad", grad);
  EXPECT_EQ(once.decoded[7], -1.5f);
  const std::set<float> values(once.decoded.begin(), once.decoded.end());
  EXPECT_EQ(values, (std::set<float>{-1.5f, 0.0f, 1.5f}));
  double sum = 0;
  for (const float value : grad) sum += value * value;
  const auto rms = static_cast<float>(std::sqrt(sum / 10000));
  const Once clipped("terngrad:clip=2.5", grad);
  EXPECT_NEAR(clipped.decoded[7], -2.5f * rms, 0.05f * rms);
}

TEST(BlockCodecs, NaturalLevelsAreHalves) {
  const Once once("qsgd:8:natural=1", NormalGradient(512, 4));
  float scale;
  std::memcpy(&scale, once.payload.data(), sizeof(scale));
  for (const float value : once.decoded) {
    if (value == 0) continue;
    const float exponent = std::log2(std::abs(value) / scale);
    EXPECT_EQ(exponent, std::round(exponent));
    EXPECT_LE(exponent, 7.0f);
  }
}

// The mean over many encodings, for the settings that the conformance test
// does not try: within 6 standard errors.
TEST(BlockCodecs, AllDithersAreUnbiased) {
  const std::vector<float> grad = NormalGradient(96, 5);
  for (const char* text : {"qsgd:4:natural=1", "qsgd:natural=1", "qsgd:5",
                           "qsgd:1:block=64", "terngrad"}) {
    std::vector<double> sum(grad.size());
    std::vector<double> squares(grad.size());
    for (uint64_t step = 0; step < 2000; ++step) {
      const Once once(text, grad, step);
      for (size_t i = 0; i < grad.size(); ++i) {
        const double error = once.decoded[i] - grad[i];
        sum[i] += error;
        squares[i] += error * error;
      }
    }
    for (size_t i = 0; i < grad.size(); ++i) {
      ASSERT_LE(std::abs(sum[i]), 6 * std::sqrt(squares[i]) + 1e-3)
          << text << " " << i;
    }
  }
}

// Errors of two workers are not correlated: |r| < 6 / sqrt(n).
TEST(BlockCodecs, WorkersRoundIndependently) {
  const std::vector<float> grad = NormalGradient(20000, 6);
  for (const char* text : {"qsgd", "qsgd:natural=1", "terngrad"}) {
    const Once a(text, grad, 0, 0);
    for (const auto& [step, source] :
         {std::pair<uint64_t, uint64_t>(0, 1), {1, 0}}) {
      const Once b(text, grad, step, source);
      double ab = 0;
      double aa = 0;
      double bb = 0;
      for (size_t i = 0; i < grad.size(); ++i) {
        const double x = a.decoded[i] - grad[i];
        const double y = b.decoded[i] - grad[i];
        ab += x * y;
        aa += x * x;
        bb += y * y;
      }
      EXPECT_LT(std::abs(ab) / std::sqrt(aa * bb), 6 / std::sqrt(20000.0))
          << text << " step " << step << " source " << source;
    }
  }
}

std::string Hex(Buffer& buffer) {
  std::string text;
  for (size_t i = 0; i < buffer.size(); ++i) {
    absl::StrAppendFormat(&text, "%02x", buffer.as<uint8_t>()[i]);
  }
  return text;
}

// Computed with a float32 model in Python, Philox and all. A change of any byte
// is a new wire_version.
TEST(BlockCodecs, GoldenPayloads) {
  std::vector<float> grad = {0.5f,    -0.25f,   0.125f, 1.0f,    -1.0f,   0.0f,
                             0.3125f, -0.6875f, 0.75f,  0.0625f, -0.9375f};
  const std::vector<float> once = grad;
  grad.insert(grad.end(), once.begin(), once.end());
  Once qsgd("qsgd", grad, 5, 2);
  EXPECT_EQ(Hex(qsgd.payload),
            "0402013c40e0107f810028a95f08893fe0107f810028a95f0889");
  Once four_bits("qsgd:7", grad, 5, 2);
  EXPECT_EQ(Hex(four_bits.payload), "2549123ee47109b215391e97205ca0");
  Once terngrad("terngrad", grad, 5, 2);
  EXPECT_EQ(Hex(terngrad.payload), "0000803f4dc331d7000c");
  Once four_levels("int2", grad);
  EXPECT_EQ(Hex(four_levels.payload), "a03e4c8221936008");
  Once eight_levels("int3", grad);
  EXPECT_EQ(Hex(eight_levels.payload), "3d3e3954c04273a8808502");
}

TEST(BlockCodecs, TheSameStepGivesTheSameBytes) {
  const std::vector<float> grad = NormalGradient(1000, 7);
  const Once a("qsgd", grad, 4, 2);
  const Once b("qsgd", grad, 4, 2);
  EXPECT_EQ(a.decoded, b.decoded);
}

}  // namespace
}  // namespace telegrad
