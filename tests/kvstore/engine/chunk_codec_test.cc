#include "kvstore/engine/codec/chunk_codec.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "tests/kvstore/engine/devices.h"
#include "tests/kvstore/oracle.h"

namespace telegrad {
namespace {

using testing::Devices;
using testing::Gradients;
using testing::IsOk;
using testing::StatusIs;
using testing::TensorOracle;

constexpr size_t kElems = 229;  // chunks of 64: the last is not whole
constexpr float kThreshold = 1.0f / 128;

CompressionConfig Compression(const std::string& type, ReplyMode reply,
                              ThresholdSpec threshold = {
                                  ThresholdSpec::Kind::kAbsolute, kThreshold}) {
  CompressionConfig compression;
  compression.type = type;
  compression.reply = reply;
  compression.threshold = threshold;
  return compression;
}

Gradients GradsOf(int num_devices, int step) {
  return testing::GradsOf(num_devices, step, kElems);
}

std::vector<float> SumOf(const Gradients& grads) {
  std::vector<float> sum(grads[0].size());
  for (const std::vector<float>& grad : grads) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += grad[i];
  }
  return sum;
}

// The codec's own methods on one chunk, in the order that the documents say:
// payloads, then sums, then what decodes.
class CodecReference {
 public:
  CodecReference(const std::string& type, size_t num_elems, int num_devices,
                 ReplyFormat format)
      : codec_(*(*FindCodec(type))->Prepare(num_elems, Device{})),
        format_(format),
        residuals_(static_cast<size_t>(num_devices)) {
    for (Buffer& residual : residuals_) {
      CodecState& state = states_.emplace_back();
      if (!codec_->traits().needs_residual) continue;
      residual = Buffer(4 * num_elems);
      state.residual = residual.view();
    }
  }

  std::vector<float> Round(uint64_t step, const Gradients& grads) {
    std::vector<Buffer> frames;
    std::vector<ConstBytes> payloads;
    const EncodeParams params{.threshold = kThreshold, .step = step};
    for (size_t d = 0; d < grads.size(); ++d) {
      EncodeParams own = params;
      own.source = d;
      EncodeResult result;
      frames.emplace_back(codec_->max_encoded_bytes());
      EXPECT_THAT(
          codec_->Encode({grads[d].data(), 4 * grads[d].size()}, states_[d],
                         own, frames.back().view(), &result, {}),
          IsOk());
      payloads.push_back({frames.back().data(), result.encoded_bytes});
    }
    std::vector<float> sums(grads[0].size());
    Reply(payloads, params, Bytes(sums.data(), 4 * sums.size()));
    return sums;
  }

 private:
  void Reply(const std::vector<ConstBytes>& payloads, EncodeParams params,
             Bytes out) {
    const auto count = static_cast<uint32_t>(payloads.size());
    if (format_ == ReplyFormat::kDense) {
      EXPECT_THAT(codec_->SumDecode(payloads, kThreshold, out, {}), IsOk());
      return;
    }
    if (format_ == ReplyFormat::kSum) {
      Buffer sum(codec_->sum_bytes(count));
      EXPECT_THAT(codec_->SumCodes(payloads, sum.view(), {}), IsOk());
      EXPECT_THAT(codec_->DecodeSum(sum.view(), count, kThreshold, out, {}),
                  IsOk());
      for (CodecState& state : states_) {
        EXPECT_THAT(codec_->Learn(sum.view(), count, state, {}), IsOk());
      }
      return;
    }
    Buffer codes(codec_->max_reencoded_bytes(count));
    size_t num_bytes = 0;
    params.source = UINT64_MAX;
    EXPECT_THAT(codec_->Reencode(payloads, params, 0, reencode_, codes.view(),
                                 &num_bytes, {}),
                IsOk());
    EXPECT_THAT(
        codec_->Decode({codes.data(), num_bytes},
                       codec_->ReencodeThreshold(kThreshold, count), out, {}),
        IsOk());
  }

  std::unique_ptr<PreparedCodec> codec_;
  const ReplyFormat format_;
  std::vector<Buffer> residuals_;
  std::vector<CodecState> states_;
  ReencodeState reencode_;
};

struct Format {
  ReplyMode mode;
  ReplyFormat format;
};

std::vector<Format> FormatsOf(const CodecTraits& traits) {
  if (traits.lossless) return {{ReplyMode::kAuto, ReplyFormat::kDense}};
  std::vector<Format> formats = {
      {ReplyMode::kDense, ReplyFormat::kDense},
      {ReplyMode::kReencode, ReplyFormat::kReencode}};
  if (traits.summable) {
    formats.push_back({ReplyMode::kSum, ReplyFormat::kSum});
  }
  return formats;
}

class EveryCodec : public ::testing::TestWithParam<const Codec*> {};

INSTANTIATE_TEST_SUITE_P(, EveryCodec, ::testing::ValuesIn(AllCodecs()),
                         [](const auto& codec) {
                           return "Of" + codec.param->traits().name;
                         });

// One chunk, without the health check: it would change the mode.
TEST_P(EveryCodec, GivesWhatTheCodecsMethodsGive) {
  const CodecTraits& traits = GetParam()->traits();
  for (const auto& [mode, format] : FormatsOf(traits)) {
    for (const int num_devices : {1, 2, 5}) {
      CompressionConfig compression = Compression(traits.name, mode);
      compression.has_guard = false;
      Devices devices(kElems, num_devices, compression, kElems);
      CodecReference reference(traits.name, kElems, num_devices, format);
      for (int step = 0; step < 6; ++step) {
        const Gradients grads = GradsOf(num_devices, step);
        const auto outs = devices.Round(grads);
        ASSERT_THAT(outs, IsOk()) << ToString(mode);
        const std::vector<float> expected =
            reference.Round(static_cast<uint64_t>(step), grads);
        for (const std::vector<float>& out : *outs) {
          ASSERT_EQ(out, expected) << ToString(mode) << " of " << num_devices
                                   << " devices, step " << step;
        }
      }
    }
  }
}

// Thresholds that are fixed and those that devices agree on, by the rule of
// MXNet in words (oracle.h).
// Reports and the cache of calibrations say what users write.
TEST(ReplyFormat, HasTheWordOfItsMode) {
  EXPECT_STREQ(ToString(ReplyFormat::kDense), "dense");
  EXPECT_STREQ(ToString(ReplyFormat::kSum), "sum");
  EXPECT_STREQ(ToString(ReplyFormat::kReencode), "reencode");
}

TEST(ChunkCodec, FollowsTheTwoBitRuleForEveryReply) {
  const ThresholdSpec fixed{ThresholdSpec::Kind::kAbsolute, kThreshold};
  for (const ThresholdSpec& threshold : {fixed, ThresholdSpec{}}) {
    for (const ReplyMode mode :
         {ReplyMode::kDense, ReplyMode::kSum, ReplyMode::kReencode}) {
      const CompressionConfig compression =
          Compression("2bit", mode, threshold);
      Devices devices(kElems, 3, compression);
      TensorOracle oracle(kElems, 3, compression);
      for (int step = 0; step < 12; ++step) {
        const auto outs = devices.Round(GradsOf(3, step));
        ASSERT_THAT(outs, IsOk());
        const std::vector<float> expected = oracle.NextSums(false);
        for (const std::vector<float>& out : *outs) {
          ASSERT_EQ(out, expected) << ToString(mode) << " step " << step;
        }
      }
      EXPECT_TRUE(oracle.IsConserved());
    }
  }
}

TEST(ChunkCodec, WarmsUpDense) {
  CompressionConfig compression = Compression("2bit", ReplyMode::kSum);
  compression.warmup_steps = 3;
  Devices devices(kElems, 2, compression);
  for (int step = 0; step < 5; ++step) {
    const Gradients grads = GradsOf(2, step);
    const auto outs = devices.Round(grads);
    ASSERT_THAT(outs, IsOk());
    EXPECT_EQ((*outs)[1] == SumOf(grads), step < 3) << step;
  }
}

// From one codec to another: a dense round between, to which both sides add
// what they had kept, so that nothing is lost.
TEST(ChunkCodec, LosesNothingBetweenTwoCodecs) {
  for (const ReplyMode mode : {ReplyMode::kSum, ReplyMode::kReencode}) {
    CompressionConfig compression = Compression("2bit", mode);
    compression.alternatives = {"int8"};
    Devices devices(kElems, 2, compression);
    std::vector<float> given(kElems);
    std::vector<float> got(kElems);
    std::vector<CodecMode> modes;
    for (int step = 0; step < 9; ++step) {
      if (step == 3) {
        EXPECT_THAT(devices.codec(0).SetCodec(1), IsOk());
        EXPECT_THAT(devices.codec(1).SetCodec(1), IsOk());
      }
      modes.push_back(devices.mode());
      const Gradients grads = GradsOf(2, step);
      const auto outs = devices.Round(grads);
      ASSERT_THAT(outs, IsOk());
      for (size_t i = 0; i < kElems; ++i) {
        given[i] += grads[0][i] + grads[1][i];
        got[i] += (*outs)[0][i];
      }
      if (IsDense(modes.back())) {
        EXPECT_EQ(got, given) << step;
      } else if (step < 4) {
        EXPECT_NE(got, given) << step;
      }
    }
    using M = CodecMode;
    EXPECT_EQ(modes, (std::vector<M>{M::kCodec, M::kCodec, M::kCodec, M::kCodec,
                                     M::kCodec, M::kPaused, M::kAlternative,
                                     M::kAlternative, M::kAlternative}));
  }
}

TEST(ChunkCodec, IsDenseWhileWishesDiffer) {
  Devices devices(kElems, 2, Compression("2bit", ReplyMode::kSum));
  EXPECT_THAT(devices.codec(1).SetCodec(kDenseCodec), IsOk());
  EXPECT_THAT(devices.codec(1).SetCodec(1),
              StatusIs(absl::StatusCode::kInvalidArgument, "which has 1"));
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(devices.mode(),
              step < 2 ? CodecMode::kCodec : CodecMode::kPaused);
    ASSERT_THAT(devices.Round(GradsOf(2, step)), IsOk());
  }
}

// With a threshold far below the gradient the residual only grows.
TEST(ChunkCodec, GivesUpACodecThatHarms) {
  for (const bool has_guard : {true, false}) {
    CompressionConfig compression = Compression(
        "2bit", ReplyMode::kSum, {ThresholdSpec::Kind::kAbsolute, 0x1p-30f});
    compression.has_guard = has_guard;
    Devices devices(kElems, 2, compression, kElems);
    for (uint64_t step = 0; step < kGuardPeriod * kGuardPatience; ++step) {
      ASSERT_THAT(devices.Round(GradsOf(2, 1)), IsOk());
    }
    EXPECT_EQ(devices.mode(),
              has_guard ? CodecMode::kDense : CodecMode::kCodec);
    EXPECT_EQ(devices.codec(0).Report(devices.step()).gave_up, has_guard);
  }
}

TEST(ChunkCodec, TreatsWhatIsNotFiniteAsThePolicySays) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const std::string type : {"2bit", "none"}) {
    for (const NonFinitePolicy policy :
         {NonFinitePolicy::kError, NonFinitePolicy::kSkip,
          NonFinitePolicy::kZero}) {
      CompressionConfig compression = Compression(type, ReplyMode::kDense);
      compression.nonfinite = policy;
      Devices devices(kElems, 2, compression);
      Gradients grads = GradsOf(2, 0);
      grads[1][70] = kNan;  // 6 in its chunk
      const auto outs = devices.Round(grads);
      if (policy != NonFinitePolicy::kZero) {
        EXPECT_THAT(outs, StatusIs(absl::StatusCode::kDataLoss, "finite at 6"));
        continue;
      }
      ASSERT_THAT(outs, IsOk());
      EXPECT_EQ(devices.codec(1).Report(0).num_nonfinite, 1);
      if (type == "none") {
        grads[1][70] = 0;
        EXPECT_EQ((*outs)[0], SumOf(grads));
      }
      for (const float x : (*outs)[0]) EXPECT_TRUE(std::isfinite(x));
    }
  }
}

TEST(ChunkSum, StepsWeightsAsSgdDoes) {
  const OptimizerConfig on_server{.update_on = UpdateOn::kServer,
                                  .sgd = {.learning_rate = 0.1f,
                                          .momentum_rate = 0.9f,
                                          .weight_decay = 0.01f,
                                          .rescale = 0.25f}};
  for (const std::string type : {"2bit", "none"}) {
    const CompressionConfig compression = Compression(type, ReplyMode::kDense);
    Devices devices(kElems, 2, compression, kElems, on_server);
    EXPECT_THAT(devices.Round(GradsOf(2, 0)),
                StatusIs(absl::StatusCode::kFailedPrecondition, "weights"));
    Devices with_value(kElems, 2, compression, kElems, on_server);
    std::vector<float> weights(kElems);
    std::iota(weights.begin(), weights.end(), -7.0f);
    auto value = std::make_shared<Buffer>(4 * kElems);
    std::copy(weights.begin(), weights.end(), value->as<float>());
    with_value.sum(0).SetValue(value);
    testing::SgdOracle sgd(weights, on_server.sgd);
    TensorOracle sums(kElems, 2, compression);
    for (int step = 0; step < 5; ++step) {
      const auto outs = with_value.Round(GradsOf(2, step));
      ASSERT_THAT(outs, IsOk());
      EXPECT_EQ((*outs)[1], sgd.Update(sums.NextSums(true))) << step;
    }
  }
}

}  // namespace
}  // namespace telegrad
