#include "kvstore/engine/tensor_codec.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/device_access.h"
#include "base/status_macros.h"
#include "kernels/dispatch.h"

namespace telegrad {
namespace {

const char* NameOf(ReplyFormat format) {
  switch (format) {
    case ReplyFormat::kDense:
      return "dense";
    case ReplyFormat::kSums:
      return "sum";
    case ReplyFormat::kCodes:
      return "codes";
  }
  return "?";
}

std::string PackingName(const Coding& coding) {
  if (coding.other != nullptr) return "open";
  return coding.codec->packing() == 1 ? "radix" : "plain";
}

bool NeedsResidual(const CodecSetting& setting) {
  return setting.codec->traits().needs_residual;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorCodec>> TensorCodec::Make(
    const TensorSpec& spec, const TensorLayout& layout,
    const EngineConfig& config) {
  std::unique_ptr<TensorCodec> tensor(new TensorCodec);
  tensor->spec_ = spec;
  tensor->setting_ = layout.setting;
  tensor->has_rule_ = layout.has_rule;
  tensor->reason_ = layout.reason;
  if (config.compression.starts_dense) tensor->wish_ = CodecMode::kPaused;
  if (std::any_of(layout.codecs.begin(), layout.codecs.end(), NeedsResidual)) {
    tensor->residual_ = MakeDeviceBuffer(4 * spec.num_elems, config.device);
  }
  for (const Chunk& chunk : layout.chunks) {
    Bytes residual;
    if (tensor->residual_.size() > 0) {
      residual = Bytes(tensor->residual_.data() + 4 * chunk.begin,
                       4 * chunk.num_elems, config.device);
    }
    ASSIGN_OR_RETURN(ChunkCodec codec,
                     ChunkCodec::Make(layout, chunk, config, residual));
    tensor->chunks_.push_back(std::move(codec));
  }
  return tensor;
}

absl::Status TensorCodec::SetCodec(int codec) {
  if (codec < kDenseCodec || codec >= static_cast<int>(num_codecs())) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec ", codec, " of tensor ", spec_.name, ", which has ",
                     num_codecs(), "; -1: dense"));
  }
  wish_ = codec == kDenseCodec ? CodecMode::kPaused
                               : ModeOfCodec(static_cast<size_t>(codec));
  return absl::OkStatus();
}

// The codec for which a scale is proposed: the wished one if it uses any, as
// both come into force at once.
const Coding& TensorCodec::ScaledCoding(CodecMode wish) const {
  const Codings& codings = chunks_[0].codings();
  const Coding& wished = codings.Of(IsDense(wish) ? CodecMode::kCodec : wish);
  if (wished.uses_scale) return wished;
  for (const Coding& coding : codings.codecs()) {
    if (coding.uses_scale) return coding;
  }
  return wished;
}

ChunkWish TensorCodec::Wish(ConstBytes grad, Stream stream) const {
  const CodecMode wish = wish_;
  const Coding& coding = ScaledCoding(wish);
  if (!coding.uses_scale) return {.mode = wish};
  const CodecTraits& traits = coding.codec->traits();
  const bool adds_residual = traits.auto_of_residual && residual_.size() > 0;
  double mean_square = 0;
  const DeviceAccess access(grad.device);
  kernels::CpuKernels().sampled_power(
      reinterpret_cast<const float*>(grad.data),
      adds_residual ? residual_.as<float>() : nullptr, spec_.num_elems,
      &mean_square, stream);
  const double per_rms =
      ThresholdPerRms(coding.setting.threshold, traits.auto_threshold_per_rms);
  return {.mode = wish, .scale = ProposeScale(mean_square, per_rms)};
}

void TensorCodec::DecidePacking(uint8_t packing) {
  for (ChunkCodec& chunk : chunks_) chunk.DecidePacking(packing);
}

TensorReport TensorCodec::Report(uint64_t rounds) const {
  TensorReport report;
  report.name = spec_.name;
  report.num_elems = spec_.num_elems;
  report.setting = setting_;
  report.has_rule = has_rule_;
  report.reason = reason_;
  report.num_nonfinite = num_nonfinite_;
  Guard::Sums sums;
  for (const ChunkCodec& chunk : chunks_) {
    const Codings& codings = chunk.codings();
    const bool gave_up = codings.has_dense() &&
                         codings.AgreedAt(rounds).mode == CodecMode::kDense;
    // The codec that is in force or may be, or that harmed: the caller's wish,
    // else its own.
    const CodecMode wish = gave_up ? chunk.encoded_in() : wish_.load();
    const Coding& coding = codings.Of(IsDense(wish) ? CodecMode::kCodec : wish);
    report.codec = coding.codec->traits().name;
    for (const Coding& each : codings.codecs()) {
      if (each.setting.is_packing_open) report.packing = PackingName(each);
    }
    report.reply = NameOf(coding.format);
    report.push_bytes += coding.codec->max_encoded_bytes();
    report.gave_up |= gave_up;
    report.is_dense |= codings.has_dense() && IsDense(codings.At(rounds).mode);
    sums.Add(chunk.guard().sums());
  }
  Fill(sums, report);
  return report;
}

}  // namespace telegrad
