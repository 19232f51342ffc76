// What 2bit:packing=1 has beyond the contract of codecs.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "compression/codec_spec.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;

std::unique_ptr<PreparedCodec> Prepare(size_t n) {
  const CodecSpec spec = *ParseCodecSpec("2bit:packing=1");
  return *spec.codec->Prepare(n, Device{}, spec.options);
}

ConstBytes View(const std::vector<uint8_t>& bytes) {
  return {bytes.data(), bytes.size()};
}

TEST(TwoBitRadix, HasItsOwnPackingAndWidth) {
  EXPECT_EQ(Prepare(16)->packing(), 1);
  EXPECT_EQ((*(*FindCodec("2bit"))->Prepare(16, Device{}))->packing(), 0);
  EXPECT_EQ(Prepare(1000)->max_encoded_bytes(), 200u);
  EXPECT_EQ(Prepare(960000)->sum_bytes(2), 280000u);  // 7 bits for 3
}

TEST(TwoBitRadix, RefusesBytesThatAreNoFiveDigits) {
  const auto codec = Prepare(320);
  std::vector<uint8_t> payload(64, 242);
  EXPECT_THAT(codec->Validate(View(payload)), IsOk());
  for (const uint8_t bad : {uint8_t{243}, uint8_t{255}}) {
    payload[37] = bad;
    EXPECT_FALSE(codec->Validate(View(payload)).ok()) << int{bad};
  }
}

// 7 elements in 2 bytes: four digits in the first, three in the second.
TEST(TwoBitRadix, RefusesDigitsBehindTheEnd) {
  const auto codec = Prepare(7);
  EXPECT_THAT(codec->Validate(View({80, 26})), IsOk());
  EXPECT_FALSE(codec->Validate(View({81, 26})).ok());
  EXPECT_FALSE(codec->Validate(View({80, 27})).ok());
}

// W = 2: numbers of 7 bits below 5^3 = 125, three planes' words 28 bytes.
TEST(TwoBitRadix, RefusesSumsThatAreNoDigits) {
  const auto codec = Prepare(96);
  const auto with_number = [](size_t j, uint32_t number) {
    std::vector<uint8_t> planes(28);
    for (size_t p = 0; p < 7; ++p) {
      planes[4 * p + j / 8] =
          static_cast<uint8_t>((number >> p & 1) << (j % 8));
    }
    return planes;
  };
  for (const size_t j : {0u, 13u, 31u}) {
    for (uint32_t number = 0; number < 128; ++number) {
      EXPECT_EQ(codec->ValidateSum(View(with_number(j, number)), 2).ok(),
                number < 125)
          << j << " " << number;
    }
  }
  // Of 33 elements number 0 has two digits, the others one.
  const auto shorter = Prepare(33);
  EXPECT_THAT(shorter->ValidateSum(View(with_number(0, 24)), 2), IsOk());
  EXPECT_FALSE(shorter->ValidateSum(View(with_number(0, 25)), 2).ok());
  EXPECT_THAT(shorter->ValidateSum(View(with_number(1, 4)), 2), IsOk());
  EXPECT_FALSE(shorter->ValidateSum(View(with_number(1, 5)), 2).ok());
  EXPECT_FALSE(shorter->ValidateSum(View(with_number(0, 0)), 0).ok());
}

// The rule is 2bit's: the same decoded values and residuals, other bytes.
TEST(TwoBitRadix, DecodesToWhatPlainDecodesTo) {
  const size_t n = 1003;
  const auto plain = *(*FindCodec("2bit"))->Prepare(n, Device{});
  const auto radix = Prepare(n);
  std::vector<float> grad(n);
  for (size_t i = 0; i < n; ++i) {
    grad[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  }
  const auto run = [&](const PreparedCodec& codec) {
    std::vector<float> residual(n, 0.125f);
    std::vector<float> out(n);
    CodecState state;
    state.residual = {residual.data(), 4 * n};
    Buffer payload(codec.max_encoded_bytes());
    EncodeResult result;
    EXPECT_THAT(codec.Encode({grad.data(), 4 * n}, state, {.threshold = 0.5f},
                             payload.view(), &result, {}),
                IsOk());
    EXPECT_THAT(codec.Decode(payload.view(), 0.5f, {out.data(), 4 * n}, {}),
                IsOk());
    out.insert(out.end(), residual.begin(), residual.end());
    return out;
  };
  EXPECT_EQ(run(*radix), run(*plain));
}

}  // namespace
}  // namespace telegrad
