// Payloads written down by hand, and selections against a sort.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/random.h"
#include "compression/codec_spec.h"
#include "compression/sparse/dgc_codec.h"
#include "compression/sparse/select.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;
using testing::StatusIs;

// One encoder with its state.
class Encoder {
 public:
  Encoder(const std::string& spec, size_t n)
      : residual(n, 0.0f), momentum(n, 1.0f), n_(n), codec_(Make(spec, n)) {
    state_.residual = Bytes(residual.data(), 4 * n);
    state_.momentum = Bytes(momentum.data(), 4 * n);
  }
  std::string Encode(const std::vector<float>& grad, float threshold = 0) {
    std::string out(codec_->max_encoded_bytes(), '\xff');
    params.threshold = threshold;
    EXPECT_THAT(codec_->Encode({grad.data(), 4 * n_}, state_, params,
                               {out.data(), out.size()}, &result, {}),
                IsOk());
    ++params.step;
    out.resize(result.encoded_bytes);
    return out;
  }
  absl::Status Validate(const std::string& payload) const {
    return codec_->Validate({payload.data(), payload.size()});
  }
  std::vector<float> Decode(const std::string& payload) const {
    std::vector<float> out(n_, 9.0f);
    EXPECT_THAT(codec_->Decode({payload.data(), payload.size()}, 1,
                               {out.data(), 4 * n_}, {}),
                IsOk());
    return out;
  }
  const PreparedCodec& codec() const { return *codec_; }
  std::vector<float> residual;
  std::vector<float> momentum;  // of what is encoded
  EncodeParams params{.stream = 3};
  EncodeResult result;

 private:
  static std::unique_ptr<PreparedCodec> Make(const std::string& text,
                                             size_t n) {
    const auto spec = ParseCodecSpec(text);
    EXPECT_THAT(spec, IsOk());
    auto prepared = spec->codec->Prepare(n, Device{}, spec->options);
    EXPECT_THAT(prepared, IsOk());
    return *std::move(prepared);
  }
  const size_t n_;
  const std::unique_ptr<PreparedCodec> codec_;
  CodecState state_;
};

std::string Hex(const std::string& bytes) {
  return absl::BytesToHexString(bytes);
}

std::vector<float> Sparse(size_t n,
                          const std::vector<std::pair<size_t, float>>& at) {
  std::vector<float> values(n);
  for (const auto& [index, value] : at) values[index] = value;
  return values;
}

TEST(ThresholdCodec, GapsOfEightBits) {
  Encoder encoder("threshold", 200);
  const auto grad = Sparse(200, {{0, .5f}, {3, -1}, {7, .25f}, {150, .75f}});
  const std::string payload = encoder.Encode(grad, 0.5f);
  // Format, count, threshold; +0, -(0 + 2), an escape of 127, +(127 + 19).
  EXPECT_EQ(Hex(payload),
            "00000000"
            "03000000"
            "0000003f"
            "0005ff26");
  EXPECT_EQ(encoder.Decode(payload),
            Sparse(200, {{0, .5f}, {3, -.5f}, {150, .5f}}));
  EXPECT_EQ(encoder.residual, Sparse(200, {{3, -.5f}, {7, .25f}, {150, .25f}}));
  EXPECT_EQ(encoder.result.stats.num_nonzero, 3u);
}

// All but dgc, whose momentum is its own.
TEST(SparseCodecs, ClearMomentumWhereTheySend) {
  constexpr size_t kElems = 5000;
  Random random(7, 7);
  for (const char* const spec :
       {"threshold", "topk:0.01", "topk:0.01:sampled=1", "topk:1",
        "randomk:0.02", "dgc:0.01"}) {
    Encoder encoder(spec, kElems);
    std::vector<float> expected(kElems, 1.0f);
    for (int step = 0; step < 4; ++step) {
      std::vector<float> grad(kElems);
      for (float& each : grad) each = random.NextNormal();
      const auto sent = encoder.Decode(encoder.Encode(grad, 2));
      const bool masks = encoder.codec().traits().masks_momentum;
      for (size_t i = 0; i < kElems && masks; ++i) {
        if (sent[i] != 0) expected[i] = 0;
      }
      ASSERT_EQ(encoder.momentum, expected) << spec << " step " << step;
    }
  }
}

TEST(ThresholdCodec, GapsOfSixteenBits) {
  Encoder encoder("threshold", 100000);
  const auto grad = Sparse(100000, {{1, -2}, {40000, 2}});
  const std::string payload = encoder.Encode(grad, 2);
  // -1, an escape of 32767, +(2 + 32767 + 7231).
  EXPECT_EQ(Hex(payload),
            "01000000"
            "02000000"
            "00000040"
            "0300ffff7e38");
  EXPECT_EQ(encoder.Decode(payload), grad);
}

TEST(ThresholdCodec, ABitmapBoundsTheSize) {
  Encoder encoder("threshold", 12);
  const std::vector<float> grad = {1, -1, 1, 1, 1, -1, 1, 1, 1, 0, 1, 1};
  const std::string payload = encoder.Encode(grad, 1);
  EXPECT_EQ(Hex(payload),
            "02000000"
            "0b000000"
            "0000803f"
            "ff0d"
            "2200");
  EXPECT_EQ(encoder.Decode(payload), grad);
  EXPECT_EQ(payload.size(), encoder.codec().max_encoded_bytes());
}

TEST(ThresholdCodec, WhatIsNeverWrittenIsRefused) {
  const Encoder encoder("threshold", 200);
  const std::string head =
      "00000000"
      "02000000"
      "0000003f";
  const auto validate = [&](const std::string& hex) {
    return encoder.Validate(absl::HexStringToBytes(hex));
  };
  EXPECT_THAT(validate(head + "0005"), IsOk());
  for (const std::string list :
       {"00", "000507", "0005ff", "00fe", "ffff00", "00ff92"}) {
    EXPECT_FALSE(validate(head + list).ok()) << list;
  }
  EXPECT_FALSE(validate("03000000"
                        "02000000"
                        "0000003f"
                        "0005")
                   .ok());
  EXPECT_FALSE(validate("00000100"
                        "02000000"
                        "0000003f"
                        "0005")
                   .ok());
  EXPECT_FALSE(validate("00000000"
                        "03000000"
                        "0000003f"
                        "0005")
                   .ok());
  EXPECT_FALSE(validate("00000000"
                        "02000000"
                        "0000003f")
                   .ok());
  for (const std::string t : {"00000000", "000000bf", "0000807f", "0000c07f"}) {
    EXPECT_FALSE(validate("00000000"
                          "02000000" +
                          t + "0005")
                     .ok())
        << t;
  }
}

// The k largest of what is not 0, lower indices first among equals.
std::vector<float> LargestBySort(const std::vector<float>& v, size_t k) {
  std::vector<size_t> order(v.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::abs(v[a]) > std::abs(v[b]);
  });
  std::vector<float> kept(v.size());
  for (size_t i = 0; i < k; ++i) kept[order[i]] = v[order[i]];
  return kept;
}

void ExpectExact(Encoder& encoder, const std::vector<float>& grad, size_t k) {
  std::vector<float> v(grad.size());
  for (size_t i = 0; i < v.size(); ++i) v[i] = encoder.residual[i] + grad[i];
  const std::vector<float> want = LargestBySort(v, k);
  const std::vector<float> got = encoder.Decode(encoder.Encode(grad));
  ASSERT_EQ(got, want);
  for (size_t i = 0; i < v.size(); ++i) {
    ASSERT_EQ(encoder.residual[i], want[i] != 0 ? 0 : v[i]) << i;
  }
}

TEST(TopKCodec, SendsExactlyTheLargest) {
  for (const size_t n : {1u, 2u, 100u, 4096u, 50000u}) {
    Encoder encoder("topk:0.01", n);
    Random random(n);
    for (int step = 0; step < 4; ++step) {
      std::vector<float> grad(n);
      for (float& value : grad) value = random.NextNormal();
      SCOPED_TRACE(::testing::Message() << "n " << n << " step " << step);
      ExpectExact(encoder, grad, (n + 99) / 100);
    }
  }
}

// Ties everywhere; only zeros; all that is large where the sample looks, or
// where it does not.
TEST(TopKCodec, SendsExactlyTheLargestOfWhatMisleadsASample) {
  const size_t n = 40960;
  std::vector<float> seen(n, 1.0f);
  std::vector<float> unseen(n, 1.0f);
  for (size_t i = 0; i < n; ++i) {
    const size_t run = i / kSampleRun;
    (SampleAt(run / 10, 10) == run * kSampleRun ? seen[i] : unseen[i]) =
        5.0f + static_cast<float>(i % 1000);
  }
  for (const auto& grad : {seen, unseen, std::vector<float>(n, -2.0f),
                           std::vector<float>(n), Sparse(n, {{77, 3}})}) {
    Encoder encoder("topk:0.05", n);
    ExpectExact(encoder, grad, n / 20);
    ExpectExact(encoder, grad, n / 20);
  }
}

TEST(TopKCodec, SampledSendsAboutAsManyAndTheLargest) {
  const size_t n = 100000;
  Encoder encoder("topk:0.01:sampled=1", n);
  ExpectExact(encoder, std::vector<float>(n), 0);
  Random random(5);
  for (int step = 0; step < 3; ++step) {
    std::vector<float> grad(n);
    for (float& value : grad) value = random.NextNormal();
    encoder.residual.assign(n, 0.0f);
    const auto decoded = encoder.Decode(encoder.Encode(grad));
    const size_t count = encoder.result.stats.num_nonzero;
    EXPECT_GE(count, 600u);
    EXPECT_LE(count, 2000u);
    EXPECT_EQ(decoded, LargestBySort(grad, count));
    encoder.residual.assign(n, 0.0f);
  }
  encoder.Encode(std::vector<float>(n, 1.0f));
  EXPECT_EQ(encoder.result.stats.num_nonzero, 1000u);
}

TEST(TopKCodec, WhatIsNeverWrittenIsRefused) {
  const Encoder encoder("topk:0.02", 100);
  const auto validate = [&](const std::string& hex) {
    return encoder.Validate(absl::HexStringToBytes(hex));
  };
  const std::string one = "0000803f";
  EXPECT_THAT(validate("00000000"
                       "02000000" +
                       one + one + "0500"),
              IsOk());
  for (const std::string value : {"00000000", "0000807f", "0000c07f"}) {
    EXPECT_FALSE(validate("00000000"
                          "02000000" +
                          one + value + "0500")
                     .ok());
  }
  // More than a push has: a server's, of two.
  EXPECT_THAT(validate("00000000"
                       "03000000" +
                       one + one + one + "050000"),
              IsOk());
  EXPECT_FALSE(validate("00000000"
                        "ffffffff" +
                        one + one + "0500")
                   .ok());
  EXPECT_FALSE(validate("00000000"
                        "02000000" +
                        one + one + "055e")
                   .ok());
}

TEST(DgcCodec, MomentumIsCorrectedAndMasked) {
  Encoder encoder("dgc:0.25:momentum=0.5:sampled=0", 4);
  EXPECT_EQ(encoder.Decode(encoder.Encode({1, 2, 3, 4})),
            (std::vector<float>{0, 0, 0, 4}));
  // u = {1.5, 1, 1.5, 1}, v = {2.5, 3, 4.5, 1}.
  EXPECT_EQ(encoder.Decode(encoder.Encode({1, 0, 0, 1})),
            (std::vector<float>{0, 0, 4.5f, 0}));
  // u = {.75, .5, 0, .5}, v = {3.25, 3.5, 0, 1.5}.
  EXPECT_EQ(encoder.Decode(encoder.Encode({0, 0, 0, 0})),
            (std::vector<float>{0, 3.5f, 0, 0}));
  EXPECT_EQ(encoder.residual, (std::vector<float>{3.25f, 0, 0, 1.5f}));
}

TEST(DgcCodec, AServerAddsNoMomentum) {
  Encoder encoder("dgc:0.25:momentum=0.5:sampled=0", 4);
  encoder.params.source = kServerSource;
  encoder.Encode({1, 2, 3, 4});
  encoder.Encode({0, 0, 0, 0});
  EXPECT_EQ(encoder.residual, (std::vector<float>{1, 2, 0, 0}));
}

TEST(DgcCodec, TheGradientIsClipped) {
  Encoder encoder("dgc:0.5:clip=1:sampled=0", 2);
  encoder.Encode({3, -4});
  EXPECT_EQ(encoder.residual, (std::vector<float>{0.6f, 0}));
  Encoder small("dgc:0.5:clip=6:sampled=0", 2);
  small.Encode({3, -4});
  EXPECT_EQ(small.residual, (std::vector<float>{3, 0}));
}

TEST(DgcCodec, TheDensityFallsDuringWarmup) {
  const CodecOptions options = {.density = 0.001, .warmup = 8};
  const double want[] = {.25,     .25,       .0625,     .0625, .015625,
                         .015625, .00390625, .00390625, .001,  .001};
  for (uint64_t step = 0; step < std::size(want); ++step) {
    EXPECT_EQ(DgcDensity(options, step), want[step]) << step;
  }
  EXPECT_EQ(DgcDensity({.density = 0.5, .warmup = 8}, 0), 0.5);
  EXPECT_EQ(DgcDensity({.density = 0.5}, 0), 0.5);
}

TEST(RandomKCodec, AllWorkersDrawOneElementOfEachStratum) {
  const size_t n = 1003;
  const std::vector<float> ones(n, 1.0f);
  Encoder first("randomk:0.1", n);
  Encoder second("randomk:0.1", n);
  second.params.source = 1;
  const std::string payload = first.Encode(ones);
  EXPECT_EQ(payload, second.Encode(ones));
  EXPECT_EQ(payload.size(), 8u + 4 * 101);
  const auto decoded = first.Decode(payload);
  for (size_t j = 0; j < 101; ++j) {
    const auto begin = decoded.begin();
    EXPECT_EQ(std::accumulate(begin + static_cast<ptrdiff_t>(j * n / 101),
                              begin + static_cast<ptrdiff_t>((j + 1) * n / 101),
                              0.0f),
              1)
        << j;
  }
  EXPECT_NE(decoded, first.Decode(first.Encode(std::vector<float>(n))));
}

TEST(RandomKCodec, PayloadsOfOtherSeedsAreNotAdded) {
  Encoder encoder("randomk:0.1", 100);
  const std::vector<float> ones(100, 1.0f);
  const std::string a = encoder.Encode(ones);
  const std::string b = encoder.Encode(ones);
  const std::vector<ConstBytes> payloads = {{a.data(), a.size()},
                                            {b.data(), b.size()}};
  std::string sum(a.size(), 0);
  std::vector<float> out(100);
  EXPECT_THAT(encoder.codec().SumCodes(payloads, {sum.data(), sum.size()}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "seeds"));
  EXPECT_THAT(encoder.codec().SumDecode(payloads, 1, {out.data(), 400}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "seeds"));
}

}  // namespace
}  // namespace telegrad
