#include "kvstore/engine/codec/chunk_sum.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/dispatch.h"
#include "kvstore/engine/codec/floats.h"

namespace telegrad {
namespace {

// How far the scale of finer units may be below the least scale.
constexpr int16_t kMostUnits = 16;

bool IsScale(int16_t scale) { return scale >= kMinScale && scale <= kMaxScale; }

// The format of a payload of this coding, and what may be wished with it.
absl::Status CheckFormatOf(const Coding& coding, const Codings& all,
                           const PushRecord& push) {
  const PayloadFormat own = coding.payload_format();
  const size_t most = coding.codec->max_encoded_bytes();
  const size_t bytes = push.payload_bytes;
  const bool has_size = coding.codec->traits().constant_width
                            ? bytes == most
                            : bytes > 0 && bytes <= most;
  if (!has_size || push.format != own) {
    return absl::InvalidArgumentError(absl::StrCat(
        "push of ", bytes, " bytes, codec ", push.format.codec, " version ",
        push.format.codec_version, ", packing ", push.format.packing,
        ", reply format ", static_cast<int>(push.format.reply),
        "; this chunk takes ", most, " bytes, codec ", own.codec, " version ",
        own.codec_version, ", packing ", own.packing, ", reply format ",
        static_cast<int>(own.reply)));
  }
  if (push.wish.scale != kNoScale && !IsScale(push.wish.scale)) {
    return absl::InvalidArgumentError(
        absl::StrCat("push that proposes scale ", push.wish.scale));
  }
  if (!all.Knows(push.wish.mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "push that proposes mode ", static_cast<int>(push.wish.mode),
        " of a chunk with ", all.codecs().size(), " codecs"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChunkSum> ChunkSum::Make(const TensorLayout& layout,
                                        const Chunk& chunk,
                                        const EngineConfig& config) {
  ChunkSum made;
  made.chunk_ = chunk;
  made.config_ = &config;
  made.weights_ = std::make_shared<ChunkWeights>();
  made.weights_->rates = layout.rates;
  ASSIGN_OR_RETURN(made.codings_,
                   Codings::Make(layout, chunk.num_elems, config, Device{}));
  made.has_proposed_.resize(static_cast<size_t>(config.num_contributors));
  return made;
}

absl::StatusOr<bool> ChunkSum::Propose(int contributor, int16_t scale) {
  const auto index = static_cast<size_t>(contributor);
  if (!codings_.uses_scale() || has_proposed_[index] ||
      (scale != kNoScale && !IsScale(scale))) {
    return absl::InvalidArgumentError(
        absl::StrCat("proposal of scale ", scale, " was not expected"));
  }
  has_proposed_[index] = true;
  wish_.scale = std::max(wish_.scale, scale);
  if (++num_proposed_ < has_proposed_.size()) return false;
  codings_.AgreeFirst(wish_.scale == kNoScale ? kDefaultScale : wish_.scale);
  wish_.scale = kNoScale;
  return true;
}

absl::Status ChunkSum::CheckFormat(const PushRecord& push) const {
  return CheckFormatOf(coding(), codings_, push);
}

absl::Status ChunkSum::CheckAnyRound(const PushRecord& push) const {
  const ChunkSettings& said = push.settings;
  const bool has_mode = codings_.Knows(said.mode);
  if (has_mode && (codings_.uses_scale() ? IsScale(said.scale)
                                         : said.scale == kFixedScale)) {
    return CheckFormatOf(codings_.Of(said.mode), codings_, push);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("push for step ", push.step, " with scale ", said.scale,
                   ", mode ", static_cast<int>(said.mode)));
}

absl::Status ChunkSum::CheckSettings(const PushRecord& push) const {
  const ChunkSettings own = settings();
  if (push.step == step_ && push.settings.scale == own.scale &&
      push.settings.mode == own.mode && own.scale != kNoScale) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "push for step ", push.step, " with scale ", push.settings.scale,
      ", mode ", static_cast<int>(push.settings.mode), "; step ", step_,
      " with scale ", own.scale, ", mode ", static_cast<int>(own.mode),
      " is open"));
}

absl::Status ChunkSum::Hold(const PushRecord& push, ConstBytes payload) {
  const size_t num_bytes = 4 * chunk_.num_elems;
  if (held_.size() == 0) held_ = Buffer(num_bytes);
  const Coding& coding = codings_.Of(push.settings.mode);
  const std::shared_ptr<Buffer> values = config_->buffers->Get(num_bytes);
  RETURN_IF_ERROR(coding.codec->SumDecode({&payload, 1},
                                          coding.Threshold(push.settings.scale),
                                          values->view(), {}));
  kernels::CpuKernels().add_f32(values->as<float>(), chunk_.num_elems,
                                held_.as<float>(), {});
  has_held_ = true;
  return absl::OkStatus();
}

void ChunkSum::Note(const ChunkWish& wish) {
  wish_.scale = std::max(wish_.scale, wish.scale);
  wish_.mode = has_wish_ ? Combine(wish_.mode, wish.mode) : wish.mode;
  has_wish_ = true;
}

absl::StatusOr<ChunkResult> ChunkSum::Sum(std::span<const ConstBytes> payloads,
                                          const std::shared_ptr<Buffer>& first,
                                          Stream stream) {
  const ChunkSettings in_force = settings();
  ChunkResult result;
  result.record = {.format = coding().format,
                   .settings = in_force,
                   .agreed = codings_.Next(step_, wish_)};
  result.record.settings.from_step = step_;
  if (config_->optimizer.update_on == UpdateOn::kServer) {
    RETURN_IF_ERROR(UpdateWeights(payloads, stream, result));
  } else if (codec().traits().lossless) {
    result.buffer =
        first != nullptr ? first : config_->buffers->Get(4 * chunk_.num_elems);
    const Bytes sum(result.buffer->data(), 4 * chunk_.num_elems);
    RETURN_IF_ERROR(codec().SumCodes(payloads, sum, stream));
    RETURN_IF_ERROR(ReleaseResidual(sum, stream));
    ScaleResult(config_->optimizer, kernels::CpuKernels(), chunk_.num_elems,
                Floats(sum), stream);
    result.payload = sum;
  } else {
    RETURN_IF_ERROR(SumGradients(payloads, stream, result));
  }
  return result;
}

// What the last codec has kept goes along with a dense sum.
absl::Status ChunkSum::ReleaseResidual(Bytes sum, Stream stream) {
  const Coding& last = codings_.Of(reencoded_in_);
  return last.codec->ReleaseResidual(
      last.Threshold(scale()), last.UnitScale(scale()), reencode_, sum, stream);
}

absl::Status ChunkSum::SumGradients(std::span<const ConstBytes> payloads,
                                    Stream stream, ChunkResult& result) {
  const ReplyFormat format = result.record.format;
  size_t num_bytes = ReplyBytes(codec(), format, config_->num_contributors);
  result.buffer = config_->buffers->Get(num_bytes);
  const Bytes out = result.buffer->view();
  switch (format) {
    case ReplyFormat::kDense:
      RETURN_IF_ERROR(codec().SumDecode(payloads, Threshold(), out, stream));
      ScaleResult(config_->optimizer, kernels::CpuKernels(), chunk_.num_elems,
                  Floats(out), stream);
      break;
    case ReplyFormat::kSum:
      RETURN_IF_ERROR(codec().SumCodes(payloads, out, stream));
      break;
    case ReplyFormat::kReencode: {
      reencoded_in_ = settings().mode;
      const EncodeParams params{.threshold = Threshold(),
                                .stream = StreamOf(chunk_),
                                .step = step_,
                                .source = kServerSource};
      RETURN_IF_ERROR(codec().Reencode(payloads, params,
                                       coding().UnitScale(scale()), reencode_,
                                       out, &num_bytes, stream));
      break;
    }
  }
  result.payload = {out.data, num_bytes};
  return absl::OkStatus();
}

absl::Status ChunkSum::UpdateWeights(std::span<const ConstBytes> payloads,
                                     Stream stream, ChunkResult& result) {
  if (weights_->value == nullptr) {
    return absl::FailedPreconditionError(
        "a push came before the initial weights");
  }
  const kernels::KernelTable& kernels = kernels::CpuKernels();
  const size_t num_bytes = 4 * chunk_.num_elems;
  const std::shared_ptr<Buffer> sum = config_->buffers->Get(num_bytes);
  float* const values = sum->as<float>();
  if (payloads.empty()) {
    std::fill_n(values, chunk_.num_elems, 0.0f);
  } else {
    RETURN_IF_ERROR(
        codec().SumDecode(payloads, Threshold(), sum->view(), stream));
  }
  if (std::exchange(has_held_, false)) {
    kernels.add_f32(held_.as<float>(), chunk_.num_elems, values, stream);
    std::fill_n(held_.as<float>(), chunk_.num_elems, 0.0f);
  }
  // A copy: the last round's weights may still be on their way.
  result.buffer = config_->buffers->Get(num_bytes);
  kernels.copy(weights_->value->data(), num_bytes, result.buffer->data(),
               stream);
  weights_->state.Step(config_->optimizer, weights_->rates, values,
                       chunk_.num_elems, result.buffer->as<float>(), stream);
  weights_->value = result.buffer;
  result.payload = result.buffer->view();
  return absl::OkStatus();
}

void ChunkSum::SetValue(std::shared_ptr<Buffer> value) {
  if (config_->optimizer.update_on != UpdateOn::kServer) return;
  weights_->value = std::move(value);
}

std::string ChunkSum::Save() const {
  StateWriter writer;
  writer.Put(step_);
  codings_.Save(writer);
  writer.Put(static_cast<uint8_t>(reencoded_in_));
  writer.Put(static_cast<uint8_t>(reencode_.is_set));
  writer.Put(reencode_.unit_scale);
  writer.Put(reencode_.residual_bound);
  writer.Put(static_cast<uint8_t>(reencode_.residual.size() > 0));
  writer.PutBytes(reencode_.residual.view());
  return writer.Take();
}

absl::Status ChunkSum::Load(absl::string_view text) {
  StateReader reader(text);
  const auto step = reader.Take<uint64_t>();
  RETURN_IF_ERROR(codings_.Load(reader));
  const auto mode = static_cast<CodecMode>(reader.Take<uint8_t>());
  ReencodeState state;
  state.is_set = reader.Take<uint8_t>() != 0;
  state.unit_scale = reader.Take<int16_t>();
  state.residual_bound = reader.Take<float>();
  if (reader.Take<uint8_t>() != 0) {
    const size_t num_bytes = 4 * chunk_.num_elems;
    const ConstBytes residual = reader.TakeBytes(num_bytes);
    if (residual.size == num_bytes) {
      state.residual = Buffer(num_bytes);
      std::memcpy(state.residual.data(), residual.data, num_bytes);
      state.codec.residual = state.residual.view();
    }
  }
  RETURN_IF_ERROR(reader.Finish());
  const bool is_codec = codings_.Knows(mode) && !IsDense(mode);
  const bool has_residual = is_codec && state.is_set &&
                            codings_.Of(mode).codec->traits().needs_residual;
  if (!is_codec || has_residual != (state.residual.size() > 0) ||
      state.unit_scale < kMinScale - kMostUnits ||
      state.unit_scale > kMaxScale) {
    return absl::DataLossError("the state is of another sum");
  }
  step_ = step;
  reencoded_in_ = mode;
  reencode_ = std::move(state);
  // Before the first scale is agreed, all propose one.
  has_proposed_.assign(has_proposed_.size(), settings().scale != kNoScale);
  num_proposed_ = 0;
  return absl::OkStatus();
}

absl::Status ChunkSum::GoOn(std::span<const ChunkSum* const> old,
                            bool takes_held) {
  const ChunkSum& first = *old.front();
  step_ = first.step_;
  codings_.Follow(first.codings_);
  for (const ChunkSum* const each : old.subspan(1)) {
    codings_.FollowToo(each->codings_);
  }
  reencoded_in_ = first.reencoded_in_;
  reencode_ = {};
  return takes_held ? TakeHeld(old) : absl::OkStatus();
}

absl::Status ChunkSum::TakeHeld(std::span<const ChunkSum* const> old) {
  bool has_residual = false;
  for (const ChunkSum* const each : old) {
    const ReencodeState& state = each->reencode_;
    if (!state.is_set) continue;
    if (reencode_.is_set && reencoded_in_ != each->reencoded_in_) {
      return absl::DataLossError(
          "sums of a tensor hold what several codecs "
          "left");
    }
    reencode_.unit_scale =
        reencode_.is_set ? std::min(reencode_.unit_scale, state.unit_scale)
                         : state.unit_scale;
    reencoded_in_ = each->reencoded_in_;
    reencode_.is_set = true;
    reencode_.residual_bound =
        std::max(reencode_.residual_bound, state.residual_bound);
    has_residual |= state.residual.size() > 0;
  }
  if (!has_residual) return absl::OkStatus();
  reencode_.residual = Buffer(4 * chunk_.num_elems);
  for (const ChunkSum* const each : old) {
    const ReencodeState& state = each->reencode_;
    if (state.residual.size() == 0) continue;
    const Chunk& from = each->chunk_;
    const size_t begin = std::max(from.begin, chunk_.begin);
    const size_t end =
        std::min(from.begin + from.num_elems, chunk_.begin + chunk_.num_elems);
    int32_t* const to =
        reencode_.residual.as<int32_t>() + (begin - chunk_.begin);
    std::memcpy(to, state.residual.as<int32_t>() + (begin - from.begin),
                4 * (end - begin));
    // All units of floats are equal.
    if (const int finer = state.unit_scale - reencode_.unit_scale; finer > 0) {
      kernels::CpuKernels().rescale_units(to, end - begin, finer, {});
    }
  }
  return absl::OkStatus();
}

void ChunkSum::Finish(const ReplyRecord& record) {
  codings_.Agree(record.agreed);
  wish_ = {};
  has_wish_ = false;
  ++step_;
}

}  // namespace telegrad
