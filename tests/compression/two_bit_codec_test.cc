// Known answers of MXNet's rule, at the codec's interface, and the units of the
// server's residual.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "compression/codec.h"
#include "compression/two_bit/reencode_units.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;
using testing::StatusIs;

class TwoBit {
 public:
  TwoBit(size_t n, float threshold)
      : residual(n, 0.0f),
        threshold_(threshold),
        codec_(*(*FindCodec("2bit"))->Prepare(n, Device{})) {
    state_.residual = Bytes(residual.data(), 4 * n);
  }
  std::string Encode(const std::vector<float>& grad,
                     NonFinite nonfinite = NonFinite::kZero) {
    std::string out(codec_->max_encoded_bytes(), '\xff');
    EncodeResult result;
    EXPECT_THAT(
        codec_->Encode({grad.data(), 4 * grad.size()}, state_,
                       {.threshold = threshold_, .nonfinite = nonfinite},
                       {out.data(), out.size()}, &result, {}),
        IsOk());
    return absl::BytesToHexString(out);
  }
  std::vector<float> residual;

 private:
  const float threshold_;
  const std::unique_ptr<PreparedCodec> codec_;
  CodecState state_;
};

// Known answer A: computed with a float32 model of apache/mxnet
// src/kvstore/gradient_compression-inl.h.
TEST(TwoBitCodec, KnownAnswerA) {
  TwoBit codec(19, 0.5f);
  EXPECT_EQ(codec.Encode({.5f, -.5f, .49999997f, -.49999997f, .25f, -.25f, 0.f,
                          -0.f, 1.25f, -1.25f, .75f, -.75f, .125f, 3.f, -3.f,
                          .5f, -.5f, .5f, .375f}),
            "e000ee3bb0000000");
  EXPECT_EQ(codec.residual,
            (std::vector<float>{0, 0, .49999997f, -.49999997f, .25f, -.25f, 0,
                                0, .75f, -.75f, .25f, -.25f, .125f, 2.5f, -2.5f,
                                0, 0, 0, .375f}));
  EXPECT_EQ(codec.Encode({0, 0, 3e-8f, -3e-8f, .25f, -.25f, .5f, -.5f, 0, 0,
                          .25f, -.25f, .375f, 0, 0, -.5f, .5f, -.5f, .125f}),
            "0eeeeefaec000000");
}

// Known answer C: values of apache/mxnet PR 7512, threshold 4.
TEST(TwoBitCodec, KnownAnswerC) {
  TwoBit codec(10, 4.0f);
  codec.residual = {-3, 1, -1, 5, -2, 2, 3, -7, -2, -100};
  TwoBit fresh(10, 4.0f);
  std::copy(codec.residual.begin(), codec.residual.end(),
            fresh.residual.begin());
  EXPECT_EQ(fresh.Encode({-6, -2, 3, 1, 10, 5, -3, 2, -8, 0}), "83f2a000");
  EXPECT_EQ(fresh.residual,
            (std::vector<float>{-5, -1, 2, 2, 4, 3, 0, -1, -6, -96}));
}

// Known answer E: MXNet lets NaN and infinities through.
TEST(TwoBitCodec, KnownAnswerEWithPolicyPropagate) {
  TwoBit codec(4, 0.5f);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(
      codec.Encode({std::nanf(""), kInf, -kInf, 1.0f}, NonFinite::kPropagate),
      "3b000000");
  EXPECT_TRUE(std::isnan(codec.residual[0]));
  EXPECT_EQ(codec.residual[1], kInf);
  EXPECT_EQ(codec.residual[2], -kInf);
  EXPECT_EQ(codec.residual[3], 0.5f);
}

// Known answer F: sizes.
TEST(TwoBitCodec, SizesAreMxnets) {
  const auto size = [](size_t n) {
    return (*(*FindCodec("2bit"))->Prepare(n, Device{}))->max_encoded_bytes();
  };
  EXPECT_EQ(size(6), 4u);
  EXPECT_EQ(size(1), 4u);
  EXPECT_EQ(size(16), 4u);
  EXPECT_EQ(size(17), 8u);
  EXPECT_EQ(size(1466521), 366632u);
}

TEST(TwoBitCodec, ForeignCodesAndSetTailBitsAreRefused) {
  const auto codec = *(*FindCodec("2bit"))->Prepare(18, Device{});
  std::string codes(8, '\0');
  const ConstBytes view(codes.data(), codes.size());
  EXPECT_THAT(codec->Validate(view), IsOk());
  codes[2] = '\x10';  // 01 at element 9
  EXPECT_FALSE(codec->Validate(view).ok());
  codes[2] = '\0';
  codes[4] = '\xf0';  // elements 16 and 17: the last two
  EXPECT_THAT(codec->Validate(view), IsOk());
  codes[4] = '\x0c';  // element 18 does not exist
  EXPECT_FALSE(codec->Validate(view).ok());
  codes[4] = '\0';
  codes[7] = '\x03';
  EXPECT_FALSE(codec->Validate(view).ok());
}

TEST(TwoBitCodec, ThresholdsMustBePositive) {
  const auto codec = *(*FindCodec("2bit"))->Prepare(16, Device{});
  std::vector<float> values(16, 0.0f);
  std::string codes(4, '\0');
  for (const float bad : {0.0f, -1.0f, std::nanf(""), INFINITY}) {
    EXPECT_THAT(codec->Decode({codes.data(), 4}, bad, {values.data(), 64}, {}),
                StatusIs(absl::StatusCode::kInvalidArgument, "threshold"));
  }
}

TEST(ReencodeUnits, TheQuantumIsThePowerOfTwoAtLeastW) {
  EXPECT_EQ(ReencodeQuantum(1), 1u);
  EXPECT_EQ(ReencodeQuantum(2), 2u);
  EXPECT_EQ(ReencodeQuantum(3), 4u);
  EXPECT_EQ(ReencodeQuantum(8), 8u);
  EXPECT_EQ(ReencodeQuantum(9), 16u);
}

uint32_t Adopt(int16_t scale, size_t n, ReencodeState& state) {
  const auto shift = AdoptScale(scale, n, kernels::CpuKernels(), state, {});
  EXPECT_THAT(shift, IsOk());
  return *shift;
}

TEST(ReencodeUnits, ASmallerScaleRefinesExactly) {
  ReencodeState state;
  EXPECT_EQ(Adopt(-4, 2, state), 0u);
  state.residual.as<int32_t>()[0] = 5;
  state.residual.as<int32_t>()[1] = -3;
  EXPECT_EQ(Adopt(-6, 2, state), 0u);  // units 2^-6
  EXPECT_EQ(state.residual.as<int32_t>()[0], 20);
  EXPECT_EQ(state.residual.as<int32_t>()[1], -12);
  EXPECT_EQ(Adopt(-3, 2, state), 3u);  // codes count eight units each
  EXPECT_EQ(state.residual.as<int32_t>()[0], 20);
}

TEST(ReencodeUnits, AMuchLargerScaleCoarsensToNearest) {
  ReencodeState state;
  Adopt(0, 2, state);
  state.residual.as<int32_t>()[0] = 1000;  // 1000/512 = 1.95
  state.residual.as<int32_t>()[1] = -700;  // -1.37
  EXPECT_EQ(Adopt(13, 2, state), static_cast<uint32_t>(kCoarseUnits));
  EXPECT_EQ(state.unit_scale, 9);
  EXPECT_EQ(state.residual.as<int32_t>()[0], 2);
  EXPECT_EQ(state.residual.as<int32_t>()[1], -1);
}

TEST(ReencodeUnits, HugeRefinementsSaturateInsteadOfOverflowing) {
  ReencodeState state;
  Adopt(50, 1, state);
  state.residual.as<int32_t>()[0] = 7;
  Adopt(-100, 1, state);
  EXPECT_EQ(state.residual.as<int32_t>()[0], 1 << 28);
}

}  // namespace
}  // namespace telegrad
