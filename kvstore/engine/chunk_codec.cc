#include "kvstore/engine/chunk_codec.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/device_access.h"
#include "base/status_macros.h"
#include "kernels/dispatch.h"

namespace telegrad {
namespace {

const float* Floats(ConstBytes bytes) {
  return reinterpret_cast<const float*>(bytes.data);
}
float* Floats(Bytes bytes) { return reinterpret_cast<float*>(bytes.data); }

size_t FrameBytes(const Coding& coding) {
  // A lossless codec sends the gradient from where it lies.
  if (coding.codec->traits().lossless) return 0;
  const size_t bytes = coding.codec->max_encoded_bytes();
  return coding.other == nullptr
             ? bytes
             : std::max(bytes, coding.other->max_encoded_bytes());
}

}  // namespace

absl::StatusOr<ChunkCodec> ChunkCodec::Make(const TensorLayout& layout,
                                            const Chunk& chunk,
                                            const EngineConfig& config,
                                            Bytes residual) {
  ChunkCodec made;
  made.chunk_ = chunk;
  made.config_ = &config;
  made.residual_ = residual;
  ASSIGN_OR_RETURN(made.codings_,
                   Codings::Make(layout, chunk.num_elems, config));
  size_t frame_bytes = 0;
  for (const Coding& coding : made.codings_.codecs()) {
    frame_bytes = std::max(frame_bytes, FrameBytes(coding));
  }
  if (frame_bytes > 0) made.frame_ = Buffer(frame_bytes);
  return made;
}

ChunkWish ChunkCodec::Wish(const ChunkWish& wish) const {
  const bool is_vetoed = vetoed_[static_cast<size_t>(wish.mode)];
  return {.mode = is_vetoed ? CodecMode::kDense : wish.mode,
          .scale = wish.scale};
}

PushRecord ChunkCodec::Push(uint64_t step, const ChunkWish& wish) const {
  const ChunkSettings settings = At(step);
  return {.step = step,
          .payload_bytes = 0,
          .format = codings_.Of(settings.mode).payload_format(),
          .settings = settings,
          .wish = Wish(wish)};
}

absl::StatusOr<EncodedChunk> ChunkCodec::Encode(uint64_t step, uint64_t source,
                                                ConstBytes grad,
                                                Stream stream) {
  const ChunkSettings settings = At(step);
  const Coding& coding = codings_.Of(settings.mode);
  const PreparedCodec& codec = *coding.codec;
  dense_ = nullptr;
  if (codec.traits().lossless) return EncodeDense(grad, stream);
  if (settings.mode != encoded_in_) Begin(settings.mode);
  const bool propagates =
      config_->compression.nonfinite == NonFinitePolicy::kPropagate;
  const EncodeParams params{
      .threshold =
          codec.traits().needs_threshold ? coding.Threshold(settings.scale) : 0,
      .nonfinite = propagates ? NonFinite::kPropagate : NonFinite::kZero,
      .stream = StreamOf(chunk_),
      .step = step,
      .source = source};
  const bool keeps_residual = state_.residual.size > 0;
  const DeviceAccess access(grad.device);
  // Chunks side by side have different steps, so that none looks at all.
  guard_.Before(step + chunk_.key + chunk_.index, Floats(grad),
                keeps_residual ? Floats(state_.residual) : nullptr);
  EncodeResult result;
  RETURN_IF_ERROR(
      codec.Encode(grad, state_, params, frame_.view(), &result, stream));
  has_residual_ |= keeps_residual;
  const ConstBytes payload(frame_.data(), result.encoded_bytes);
  RETURN_IF_ERROR(CheckHealth(codec, grad, payload, params.threshold, stream));
  return Seen(payload, result.stats);
}

EncodedChunk ChunkCodec::Seen(ConstBytes payload,
                              const EncodeStats& stats) const {
  return {
      .payload = payload,
      .num_nonfinite = stats.num_nonfinite,
      .first_nonfinite = stats.first_nonfinite,
      .is_refused = stats.num_nonfinite > 0 &&
                    config_->compression.nonfinite != NonFinitePolicy::kZero};
}

// Where the residual does not tell what was sent, the codes are decoded.
absl::Status ChunkCodec::CheckHealth(const PreparedCodec& codec,
                                     ConstBytes grad, ConstBytes payload,
                                     float threshold, Stream stream) {
  std::shared_ptr<Buffer> decoded;
  if (guard_.needs_decoded()) {
    decoded =
        config_->buffers->Get(std::max(grad.size, config_->scratch_bytes));
    RETURN_IF_ERROR(codec.Decode(payload, threshold,
                                 Bytes(decoded->data(), grad.size), stream));
  }
  guard_.After(Floats(grad), Floats(state_.residual), threshold,
               decoded == nullptr ? nullptr : decoded->as<float>());
  if (guard_.gave_up() && config_->compression.has_guard) {
    vetoed_.set(static_cast<size_t>(encoded_in_));
  }
  return absl::OkStatus();
}

// Nothing of another codec's state is of use but the residual, which is the
// caller's and counts as before.
void ChunkCodec::Begin(CodecMode mode) {
  const Coding& coding = codings_.Of(mode);
  encoded_in_ = mode;
  state_ = {};
  if (coding.codec->traits().needs_residual) state_.residual = residual_;
  guard_ =
      Guard(chunk_.num_elems, coding.codec->traits(), coding.setting.options);
}

// The gradient from where it lies, unless something must be changed: elements
// that are not finite count as 0, and what a codec left behind goes along.
absl::StatusOr<EncodedChunk> ChunkCodec::EncodeDense(ConstBytes grad,
                                                     Stream stream) {
  const kernels::KernelTable& kernels = kernels::CpuKernels();
  const size_t n = chunk_.num_elems;
  const DeviceAccess access(grad.device);
  EncodeStats stats;
  if (config_->compression.nonfinite != NonFinitePolicy::kPropagate) {
    kernels.count_nonfinite(Floats(grad), n, &stats, stream);
  }
  EncodedChunk seen = Seen(grad, stats);
  const bool adds_residual = std::exchange(has_residual_, false);
  const bool is_ready =
      config_->device == Device{} || !config_->has_host_payloads;
  if (seen.is_refused ||
      (stats.num_nonfinite == 0 && !adds_residual && is_ready)) {
    return seen;
  }
  dense_ = config_->buffers->Get(grad.size);
  auto* const to = dense_->as<float>();
  kernels.copy(grad.data, grad.size, to, stream);
  if (stats.num_nonfinite > 0) {
    std::replace_if(
        to, to + n, [](float x) { return !std::isfinite(x); }, 0.0f);
  }
  if (adds_residual) {
    kernels.add_f32(Floats(residual_), n, to, stream);
    std::fill_n(Floats(residual_), n, 0.0f);
  }
  seen.payload = dense_->view();
  return seen;
}

size_t ChunkCodec::ReplyBytes(CodecMode mode) const {
  const Coding& coding = codings_.Of(mode);
  return telegrad::ReplyBytes(*coding.codec, coding.format,
                              config_->num_contributors);
}

size_t ChunkCodec::max_reply_bytes() const {
  // The host cannot write where a dense one ends up.
  size_t most = config_->device == Device{} ? 0 : value_bytes();
  for (const Coding& coding : codings_.codecs()) {
    if (coding.format == ReplyFormat::kDense) continue;
    for (const PreparedCodec* codec :
         {coding.codec.get(), coding.other.get()}) {
      if (codec == nullptr) continue;
      most = std::max(most, telegrad::ReplyBytes(*codec, coding.format,
                                                 config_->num_contributors));
    }
  }
  return most;
}

absl::Status ChunkCodec::CheckBareReply(const ReplyRecord& reply) const {
  if (codings_.Knows(reply.settings.mode) &&
      codings_.Knows(reply.agreed.mode)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("answer with modes ", static_cast<int>(reply.settings.mode),
                   " and ", static_cast<int>(reply.agreed.mode),
                   " of a chunk with ", codings_.codecs().size(), " codecs"));
}

absl::Status ChunkCodec::CheckReply(const ReplyRecord& reply, size_t num_bytes,
                                    bool is_value) const {
  RETURN_IF_ERROR(CheckBareReply(reply));
  const Coding& coding = codings_.Of(reply.settings.mode);
  const ReplyFormat format = is_value ? ReplyFormat::kDense : coding.format;
  size_t expected = is_value ? value_bytes() : ReplyBytes(reply.settings.mode);
  if (format == ReplyFormat::kCodes && !coding.codec->traits().constant_width &&
      num_bytes > 0) {
    expected = std::min(expected, num_bytes);
  }
  if (reply.format == format && num_bytes == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "answer of ", num_bytes, " bytes, format ",
      static_cast<int>(reply.format), "; ", expected, " bytes, format ",
      static_cast<int>(format), " were expected"));
}

absl::Status ChunkCodec::Decode(const ReplyRecord& reply, ConstBytes payload,
                                Bytes out, Stream stream) {
  const DeviceAccess access(config_->device);
  if (reply.format == ReplyFormat::kDense) {
    kernels::CpuKernels().copy(payload.data, out.size, out.data, stream);
    return absl::OkStatus();
  }
  const CodecMode mode = reply.settings.mode;
  const Coding& coding = codings_.Of(mode);
  const PreparedCodec& codec = *coding.codec;
  const float threshold = coding.Threshold(reply.settings.scale);
  const auto contributors = static_cast<uint32_t>(config_->num_contributors);
  if (reply.format == ReplyFormat::kCodes) {
    return codec.Decode(
        payload, codec.ReencodeThreshold(threshold, contributors), out, stream);
  }
  if (mode != encoded_in_) {
    return absl::InvalidArgumentError(
        absl::StrCat("sums of mode ", static_cast<int>(mode), ", but mode ",
                     static_cast<int>(encoded_in_), " was pushed last"));
  }
  RETURN_IF_ERROR(codec.ValidateSum(payload, contributors));
  RETURN_IF_ERROR(
      codec.DecodeSum(payload, contributors, threshold, out, stream));
  return codec.Learn(payload, contributors, state_, stream);
}

}  // namespace telegrad
