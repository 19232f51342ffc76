#include "kvstore/engine/codec/codings.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace telegrad {
namespace {

absl::StatusOr<Coding> MakeCoding(const CodecSetting& setting, size_t num_elems,
                                  const EngineConfig& config, Device device) {
  const CodecTraits& traits = setting.codec->traits();
  Coding coding;
  coding.format = FormatOf(traits, config.compression, config.optimizer);
  coding.setting = setting;
  coding.uses_scale = UsesScale(traits, setting.threshold);
  coding.fixed_threshold =
      FixedThreshold(setting.threshold, config.compression.batch_size);
  ASSIGN_OR_RETURN(coding.codec,
                   setting.codec->Prepare(num_elems, device, setting.options));
  return coding;
}

bool IsLossless(const CodecSetting& setting) {
  return setting.codec->traits().lossless;
}

}  // namespace

PayloadFormat Coding::payload_format() const {
  const CodecTraits& traits = codec->traits();
  return {.codec = static_cast<uint8_t>(traits.id),
          .codec_version = traits.wire_version,
          .packing = codec->packing(),
          .reply = format};
}

absl::StatusOr<Codings> Codings::Make(const TensorLayout& layout,
                                      size_t num_elems,
                                      const EngineConfig& config,
                                      Device device) {
  Codings codings;
  for (const CodecSetting& setting : layout.codecs) {
    ASSIGN_OR_RETURN(codings.codecs_.emplace_back(),
                     MakeCoding(setting, num_elems, config, device));
    codings.uses_scale_ |= codings.codecs_.back().uses_scale;
  }
  if (codings.uses_scale_) codings.AgreeFirst(kNoScale);
  if (std::all_of(layout.codecs.begin(), layout.codecs.end(), IsLossless)) {
    return codings;
  }
  ASSIGN_OR_RETURN(const Codec* dense, FindCodec("none"));
  ASSIGN_OR_RETURN(codings.dense_.codec, dense->Prepare(num_elems, device));
  codings.num_warmup_ = static_cast<uint64_t>(config.compression.warmup_steps);
  if (config.compression.starts_dense) {
    for (ChunkSettings& each : codings.in_force_) {
      each.mode = CodecMode::kPaused;
    }
  }
  return codings;
}

ChunkSettings Codings::At(uint64_t step) const {
  ChunkSettings settings = AgreedAt(step);
  if (step < num_warmup_) settings.mode = CodecMode::kDense;
  return settings;
}

void Codings::AgreeFirst(int16_t scale) {
  for (ChunkSettings& each : in_force_) each.scale = scale;
}

ChunkSettings Codings::Next(uint64_t step, const ChunkWish& wish) const {
  const CodecMode before = AgreedAt(step + 1).mode;
  const bool is_change =
      !IsDense(wish.mode) && !IsDense(before) && wish.mode != before;
  const int16_t scale = AgreedAt(step).scale;
  return {.from_step = step + 2,
          .mode = is_change ? CodecMode::kPaused : wish.mode,
          .scale = uses_scale_ && wish.scale != kNoScale ? wish.scale : scale};
}

void Codings::Agree(ChunkSettings next) {
  if (!uses_scale_) next.scale = kFixedScale;
  in_force_[next.from_step & 1] = next;
}

void Codings::FollowToo(const Codings& other) {
  for (size_t i = 0; i < in_force_.size(); ++i) {
    in_force_[i].mode = Combine(in_force_[i].mode, other.in_force_[i].mode);
    in_force_[i].scale = std::max(in_force_[i].scale, other.in_force_[i].scale);
  }
}

void Codings::Save(StateWriter& writer) const {
  for (const ChunkSettings& each : in_force_) writer.PutSettings(each);
}

absl::Status Codings::Load(StateReader& reader) {
  std::array<ChunkSettings, 2> loaded;
  for (ChunkSettings& each : loaded) {
    each = reader.TakeSettings();
    const bool needs_scale = uses_scale_ && each.scale == kFixedScale;
    if (Knows(each.mode) && !needs_scale) continue;
    return absl::DataLossError("the state of a codec has no such mode");
  }
  in_force_ = loaded;
  return absl::OkStatus();
}

size_t Codings::MaxFrameBytes() const {
  size_t most = 0;
  for (const Coding& coding : codecs_) {
    // A lossless codec sends the gradient from where it lies.
    if (coding.codec->traits().lossless) continue;
    most = std::max(most, coding.codec->max_encoded_bytes());
  }
  return most;
}

size_t Codings::MaxReplyBytes(int num_contributors) const {
  size_t most = 0;
  for (const Coding& coding : codecs_) {
    if (coding.format == ReplyFormat::kDense) continue;
    most = std::max(most,
                    ReplyBytes(*coding.codec, coding.format, num_contributors));
  }
  return most;
}

size_t Codings::IndexOf(CodecMode mode) {
  constexpr auto kFirst = static_cast<size_t>(CodecMode::kAlternative);
  const auto value = static_cast<size_t>(mode);
  return value < kFirst ? 0 : value - kFirst + 1;
}

}  // namespace telegrad
