#include "compression/codec.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "compression/codec_spec.h"
#include "kernels/dispatch.h"
#include "kvstore/options.h"
#include "python/c/status.h"
#include "topology/plan.h"

using telegrad::Buffer;
using telegrad::Bytes;
using telegrad::ConstBytes;
using telegrad::c::Give;
using telegrad::c::TextOf;

// One encoder, with what it keeps.
struct telegrad_codec {
 public:
  static absl::Status Create(const std::string& spec, int64_t num_elems,
                             const std::string& nonfinite,
                             std::unique_ptr<telegrad_codec>* codec);
  absl::Status Encode(const float* grad, Bytes out, size_t* encoded_bytes,
                      float* threshold);
  absl::Status Decode(ConstBytes payload, float threshold, float* out) const;
  size_t max_bytes() const { return prepared_->max_encoded_bytes(); }
  float* residual() {
    return residual_.size() == 0 ? nullptr : residual_.as<float>();
  }

 private:
  float ThresholdOf(const float* grad) const;

  telegrad::CodecSpec spec_;
  std::unique_ptr<telegrad::PreparedCodec> prepared_;
  telegrad::CodecState state_;
  Buffer residual_;
  bool refuses_nonfinite_ = false;
  telegrad::NonFinite nonfinite_ = telegrad::NonFinite::kZero;
  uint64_t step_ = 0;
};

absl::Status telegrad_codec::Create(const std::string& spec, int64_t num_elems,
                                    const std::string& nonfinite,
                                    std::unique_ptr<telegrad_codec>* codec) {
  if (num_elems < 1 || num_elems > (int64_t{1} << 40)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a codec of ", num_elems, " elements"));
  }
  auto made = std::make_unique<telegrad_codec>();
  ASSIGN_OR_RETURN(made->spec_, telegrad::ParseCodecSpec(spec));
  ASSIGN_OR_RETURN(const telegrad::NonFinitePolicy policy,
                   telegrad::ParseNonFinitePolicy(nonfinite));
  made->refuses_nonfinite_ = policy == telegrad::NonFinitePolicy::kError;
  if (policy == telegrad::NonFinitePolicy::kSkip) {
    return absl::InvalidArgumentError(
        "nonfinite 'skip' is for a job; a codec alone takes error, zero or "
        "propagate");
  }
  if (policy == telegrad::NonFinitePolicy::kPropagate) {
    made->nonfinite_ = telegrad::NonFinite::kPropagate;
  }
  const auto n = static_cast<size_t>(num_elems);
  ASSIGN_OR_RETURN(made->prepared_,
                   made->spec_.codec->Prepare(n, {}, made->spec_.options));
  if (made->spec_.codec->traits().needs_residual) {
    ASSIGN_OR_RETURN(made->residual_, Buffer::Create(4 * n));
    made->state_.residual = made->residual_.view();
  }
  *codec = std::move(made);
  return absl::OkStatus();
}

float telegrad_codec::ThresholdOf(const float* grad) const {
  const telegrad::CodecTraits& traits = spec_.codec->traits();
  if (!traits.needs_threshold) return 0;
  const telegrad::ThresholdSpec wish =
      spec_.threshold.value_or(telegrad::ThresholdSpec());
  if (!telegrad::FollowsGradient(wish)) {
    return telegrad::FixedThreshold(wish, 1);
  }
  double mean_square = 0;
  const float* residual =
      traits.auto_of_residual ? residual_.as<float>() : nullptr;
  telegrad::kernels::CpuKernels().sampled_power(
      grad, residual, prepared_->num_elems(), &mean_square, {});
  const int16_t scale = telegrad::ProposeScale(
      mean_square,
      telegrad::ThresholdPerRms(wish, traits.auto_threshold_per_rms));
  return telegrad::ScaleThreshold(
      scale == telegrad::kNoScale ? telegrad::kDefaultScale : scale);
}

absl::Status telegrad_codec::Encode(const float* grad, Bytes out,
                                    size_t* encoded_bytes, float* threshold) {
  const ConstBytes in(grad, 4 * prepared_->num_elems());
  if (refuses_nonfinite_) {
    telegrad::EncodeStats stats;
    telegrad::kernels::CpuKernels().count_nonfinite(
        grad, prepared_->num_elems(), &stats, {});
    if (stats.num_nonfinite > 0) {
      return telegrad::WithExitCode(
          telegrad::ExitCode::kNumericFault,
          absl::InvalidArgumentError(absl::StrCat(
              stats.num_nonfinite, " elements are not finite, the first is ",
              stats.first_nonfinite)));
    }
  }
  telegrad::EncodeParams params{.threshold = ThresholdOf(grad),
                                .nonfinite = nonfinite_};
  params.step = step_;
  telegrad::EncodeResult result;
  RETURN_IF_ERROR(prepared_->Encode(in, state_, params, out, &result, {}));
  ++step_;
  *encoded_bytes = result.encoded_bytes;
  *threshold = params.threshold;
  return absl::OkStatus();
}

absl::Status telegrad_codec::Decode(ConstBytes payload, float threshold,
                                    float* out) const {
  RETURN_IF_ERROR(prepared_->Validate(payload));
  return prepared_->Decode(payload, threshold,
                           Bytes(out, 4 * prepared_->num_elems()), {});
}

extern "C" {

int32_t telegrad_codec_create(const char* spec, int64_t num_elems,
                              const char* nonfinite, telegrad_codec** codec,
                              telegrad_status* status) {
  if (codec == nullptr) {
    return Give(absl::InvalidArgumentError("codec is null"), status);
  }
  std::unique_ptr<telegrad_codec> made;
  const absl::Status result = telegrad_codec::Create(
      TextOf(spec, "none"), num_elems, TextOf(nonfinite, "error"), &made);
  if (result.ok()) *codec = made.release();
  return Give(result, status);
}

uint64_t telegrad_codec_max_bytes(const telegrad_codec* codec) {
  return codec == nullptr ? 0 : codec->max_bytes();
}

float* telegrad_codec_residual(telegrad_codec* codec) {
  return codec == nullptr ? nullptr : codec->residual();
}

int32_t telegrad_codec_encode(telegrad_codec* codec, const float* grad,
                              void* out, uint64_t out_bytes,
                              uint64_t* encoded_bytes, float* threshold,
                              telegrad_status* status) {
  if (codec == nullptr || grad == nullptr || out == nullptr ||
      encoded_bytes == nullptr || threshold == nullptr) {
    return Give(
        absl::InvalidArgumentError("codec, grad, out, "
                                   "encoded_bytes or threshold is null"),
        status);
  }
  size_t size = 0;
  const absl::Status result =
      codec->Encode(grad, Bytes(out, out_bytes), &size, threshold);
  if (result.ok()) *encoded_bytes = size;
  return Give(result, status);
}

int32_t telegrad_codec_decode(const telegrad_codec* codec, const void* payload,
                              uint64_t payload_bytes, float threshold,
                              float* out, telegrad_status* status) {
  if (codec == nullptr || payload == nullptr || out == nullptr) {
    return Give(absl::InvalidArgumentError("codec, payload or out is null"),
                status);
  }
  return Give(codec->Decode({payload, payload_bytes}, threshold, out), status);
}

void telegrad_codec_free(telegrad_codec* codec) { delete codec; }

}  // extern "C"
