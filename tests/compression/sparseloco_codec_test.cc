// A payload written down by hand, and what an encoder cannot have written.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/random.h"
#include "compression/codec_spec.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;
using testing::StatusIs;

// One encoder with its state.
struct LocalEncoder {
  explicit LocalEncoder(size_t n, const char* text = "sparseloco")
      : residual(n), codec(Make(n, text)) {
    state.residual = {residual.data(), 4 * n};
  }
  static std::unique_ptr<PreparedCodec> Make(size_t n, const char* text) {
    const CodecSpec spec = *ParseCodecSpec(text);
    return *spec.codec->Prepare(n, Device{}, spec.options);
  }
  std::string Encode(const std::vector<float>& grad) {
    std::string out(codec->max_encoded_bytes(), '\xff');
    EXPECT_THAT(codec->Encode({grad.data(), 4 * grad.size()}, state, params,
                              {out.data(), out.size()}, &result, {}),
                IsOk());
    EXPECT_THAT(Validate(out), IsOk());
    return out;
  }
  absl::Status Validate(const std::string& payload) const {
    return codec->Validate({payload.data(), payload.size()});
  }
  std::vector<float> Decode(const std::string& payload) const {
    std::vector<float> out(residual.size(), 9.0f);
    EXPECT_THAT(codec->Decode({payload.data(), payload.size()}, 0,
                              {out.data(), 4 * out.size()}, {}),
                IsOk());
    return out;
  }
  std::vector<float> residual;
  std::unique_ptr<PreparedCodec> codec;
  CodecState state;
  EncodeParams params;
  EncodeResult result;
};

// Of 8 elements 4 are sent: 4, -1, 8, -2. Mean 2.25, deviation 4.646, so bins
// are 6.969 wide: codes 2, 2, 3, 1, and the means of bins are -2, 1.5 and 8.
const std::vector<float> kGrad = {0, 4, -1, .5f, 8, -2, .25f, 0};
constexpr char kGolden[] =
    "00000000"
    "000000c0"
    "0000c03f"
    "00000041"
    "012000"  // places 1, 2
    "045000"  // 4, 5
    "7a";     // codes 2, 2, 3, 1

TEST(SparseLoCoCodec, WritesTheGoldenPayload) {
  LocalEncoder encoder(8);
  const std::string payload = encoder.Encode(kGrad);
  EXPECT_EQ(absl::BytesToHexString(payload), kGolden);
  EXPECT_EQ(encoder.Decode(payload),
            (std::vector<float>{0, 1.5f, 1.5f, 0, 8, -2, 0, 0}));
  EXPECT_EQ(encoder.residual,
            (std::vector<float>{0, 2.5f, -2.5f, .5f, 0, 0, .25f, 0}));
  EXPECT_EQ(encoder.result.stats.num_nonzero, 4u);
}

TEST(SparseLoCoCodec, AWorkersResidualFadesAndAServersDoesNot) {
  for (const bool is_server : {false, true}) {
    LocalEncoder encoder(4096, "sparseloco:decay=0.5");
    if (is_server) encoder.params.source = kServerSource;
    std::vector<float> grad(4096, 1.0f);
    for (size_t i = 0; i < 64; ++i) grad[i] = 100;
    encoder.Encode(grad);
    EXPECT_EQ(encoder.residual[0], 0.0f);
    EXPECT_EQ(encoder.residual[100], 1.0f);
    encoder.Encode(grad);
    EXPECT_EQ(encoder.residual[100], is_server ? 2.0f : 1.5f);
  }
}

TEST(SparseLoCoCodec, SendsTwentyTwoHundredthsOfABit) {
  constexpr size_t kElems = size_t{1} << 18;
  const LocalEncoder encoder(kElems);
  EXPECT_EQ(encoder.codec->max_encoded_bytes(), 16u + kElems / 4096 * 112);
  const LocalEncoder denser(kElems, "sparseloco:0.03125");
  EXPECT_EQ(denser.codec->max_encoded_bytes(), 16u + kElems / 4096 * 224);
}

TEST(SparseLoCoCodec, ValuesThatAreAllEqualAreSentExactly) {
  LocalEncoder encoder(8192);
  const std::vector<float> grad(8192, 0.1f);
  const std::vector<float> decoded = encoder.Decode(encoder.Encode(grad));
  for (size_t i = 0; i < 8192; ++i) {
    ASSERT_EQ(decoded[i], i % 4096 < 64 ? 0.1f : 0.0f) << i;
  }
}

TEST(SparseLoCoCodec, RefusesWhatNoEncoderWrites) {
  LocalEncoder encoder(5);  // 4 are sent
  const std::string right = encoder.Encode({1, 2, 3, 4, 5});
  const auto refuses = [&](size_t at, uint8_t byte, const char* why) {
    std::string wrong = right;
    wrong[at] = static_cast<char>(byte);
    EXPECT_THAT(encoder.Validate(wrong),
                StatusIs(absl::StatusCode::kInvalidArgument, why))
        << at;
  };
  refuses(16, 2, "place 1");     // places 2, 2
  refuses(21, 1, "place 3");     // place 20
  refuses(0, 1, "level 0");      // of no element
  refuses(11, 0x7F, "level 2");  // beyond 2^100
  LocalEncoder three(3);
  const std::string odd = three.Encode({1, 2, 3});
  for (const size_t at : {odd.size() - 1, odd.size() - 2}) {
    std::string wrong = odd;
    wrong[at] = static_cast<char>(wrong[at] | 0x80);
    EXPECT_THAT(three.Validate(wrong),
                StatusIs(absl::StatusCode::kInvalidArgument, "behind"));
  }
  EXPECT_FALSE(ParseCodecSpec("sparseloco:0.5").ok());
  EXPECT_FALSE(ParseCodecSpec("sparseloco:decay=2").ok());
}

}  // namespace
}  // namespace telegrad
