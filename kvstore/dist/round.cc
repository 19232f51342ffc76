#include "kvstore/dist/round.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/dispatch.h"

namespace telegrad {

ChunkRounds::ChunkRounds(const Chunk& plan, Stages stages,
                         const JobConfig& config, int num_workers,
                         BufferPool* pool)
    : plan_(plan),
      stages_(std::move(stages)),
      config_(config),
      pool_(pool),
      uses_scale_(stages_.uses_scale()),
      slots_(static_cast<size_t>(num_workers)),
      has_proposed_(static_cast<size_t>(num_workers), false) {}

absl::StatusOr<ChunkRounds::Verdict> ChunkRounds::Begin(
    int worker, const FrameHeader& header) {
  const CodecTraits& traits = codec().traits();
  // The first push by a codec with a choice says what workers have agreed on.
  if (coding().other != nullptr &&
      header.codec == static_cast<uint8_t>(traits.id)) {
    stages_.DecidePacking(header.packing);
  }
  const ReplyFormat format = coding().format;
  if (!IsPushSize(header.payload_bytes) ||
      header.codec != static_cast<uint8_t>(traits.id) ||
      header.codec_version != traits.wire_version ||
      header.packing != codec().packing() || header.contributors != 1 ||
      header.reply_mode != static_cast<uint8_t>(format)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "push of ", header.payload_bytes, " bytes, codec ", header.codec,
        " version ", header.codec_version, ", packing ", header.packing,
        ", reply format ", header.reply_mode, "; this chunk takes ",
        codec().max_encoded_bytes(), " bytes, codec ",
        static_cast<int>(traits.id), " version ", traits.wire_version,
        ", packing ", codec().packing(), ", reply format ",
        static_cast<int>(format)));
  }
  Slot& slot = slots_[static_cast<size_t>(worker)];
  if (header.step < step_ ||
      (header.step == step_ && slot.state != Slot::State::kEmpty)) {
    return Verdict::kDuplicate;
  }
  const int16_t wish = header.proposed_scale;
  if (wish != kNoScale && (wish < kMinScale || wish > kMaxScale)) {
    return absl::InvalidArgumentError(
        absl::StrCat("push with the wish for scale ", wish));
  }
  if (!stages_.Knows(header.proposed_stage)) {
    return absl::InvalidArgumentError(
        absl::StrCat("push with the wish for stage ",
                     static_cast<int>(header.proposed_stage),
                     " of a chunk with ", stages_.codings().size(), " codecs"));
  }
  if (header.step > step_ || header.scale != scale() ||
      header.stage != stage() || (uses_scale_ && !has_agreed_)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "push for step ", header.step, " with scale ", header.scale, ", stage ",
        static_cast<int>(header.stage), "; step ", step_, " with scale ",
        scale(), ", stage ", static_cast<int>(stage()), " is open"));
  }
  slot.state = Slot::State::kReceiving;
  slot.wants_reply = (header.flags & kFlagNoReply) == 0;
  slot.payload_bytes = header.payload_bytes;
  slot.frame = pool_->Get(codec().max_encoded_bytes());
  return Verdict::kAccept;
}

bool ChunkRounds::IsPushSize(size_t num_bytes) const {
  const size_t most = codec().max_encoded_bytes();
  return codec().traits().constant_width ? num_bytes == most
                                         : num_bytes > 0 && num_bytes <= most;
}

Bytes ChunkRounds::PushTarget(int worker) {
  const Slot& slot = slots_[static_cast<size_t>(worker)];
  return {slot.frame->data(), slot.payload_bytes};
}

bool ChunkRounds::Arrive(int worker, const FrameHeader& header) {
  slots_[static_cast<size_t>(worker)].state = Slot::State::kArrived;
  wish_ = std::max(wish_, header.proposed_scale);
  stage_wish_ = Combine(stage_wish_.value_or(header.proposed_stage),
                        header.proposed_stage);
  return ++num_arrived_ == slots_.size();
}

absl::Status ChunkRounds::Validate(int worker) const {
  return codec().Validate(slots_[static_cast<size_t>(worker)].payload());
}

std::vector<ConstBytes> ChunkRounds::Payloads() const {
  std::vector<ConstBytes> payloads;
  for (const Slot& slot : slots_) payloads.push_back(slot.payload());
  return payloads;
}

absl::StatusOr<RoundResult> ChunkRounds::Sum() {
  const std::vector<ConstBytes> payloads = Payloads();
  RoundResult result{.format = coding().format, .step = step_};
  if (config_.optimizer.update_on == UpdateOn::kServer) {
    ASSIGN_OR_RETURN(result, UpdateWeights(payloads));
  } else if (codec().traits().lossless) {
    // Adds in rank order into the first worker's frame.
    result.buffer = slots_[0].frame;
    RETURN_IF_ERROR(codec().SumCodes(payloads, result.buffer->view(), {}));
    RETURN_IF_ERROR(ReleaseResidual(result.buffer->view()));
    result.payload = result.buffer->view();
  } else {
    RETURN_IF_ERROR(SumGradients(payloads, result));
  }
  result.scale = scale();
  if (uses_scale_) result.agreed = wish_ == kNoScale ? scale() : wish_;
  result.stage = stage();
  result.agreed_stage =
      stages_.Agreement(step_, stage_wish_.value_or(ChunkStage::kPaused));
  return result;
}

// What the last codec has kept goes along with a dense sum.
absl::Status ChunkRounds::ReleaseResidual(Bytes sum) {
  const ChunkCoding& last = stages_.Of(reencoded_in_);
  return last.codec->ReleaseResidual(last.Threshold(scale()),
                                     last.uses_scale ? scale() : int16_t{0},
                                     reencode_, sum, {});
}

absl::Status ChunkRounds::SumGradients(const std::vector<ConstBytes>& payloads,
                                       RoundResult& result) {
  const auto num_workers = static_cast<int>(slots_.size());
  size_t num_bytes = ReplyBytes(codec(), result.format, num_workers);
  result.buffer = pool_->Get(num_bytes);
  const Bytes out = result.buffer->view();
  switch (result.format) {
    case ReplyFormat::kDense:
      RETURN_IF_ERROR(codec().SumDecode(payloads, Threshold(), out, {}));
      break;
    case ReplyFormat::kSums:
      RETURN_IF_ERROR(codec().SumCodes(payloads, out, {}));
      break;
    case ReplyFormat::kCodes: {
      reencoded_in_ = stage();
      const EncodeParams params{.threshold = Threshold(),
                                .stream = StreamOf(plan_),
                                .step = step_,
                                .source = kServerSource};
      RETURN_IF_ERROR(codec().Reencode(
          payloads, params, coding().uses_scale ? scale() : int16_t{0},
          reencode_, out, &num_bytes, {}));
      break;
    }
  }
  result.payload = {out.data, num_bytes};
  return absl::OkStatus();
}

absl::StatusOr<RoundResult> ChunkRounds::UpdateWeights(
    const std::vector<ConstBytes>& payloads) {
  if (weights_ == nullptr) {
    return absl::FailedPreconditionError(
        "a push came before the initial weights");
  }
  if (momentum_.size() == 0) momentum_ = Buffer(4 * plan_.num_elems);
  const std::shared_ptr<Buffer> sum = pool_->Get(4 * plan_.num_elems);
  RETURN_IF_ERROR(codec().SumDecode(payloads, Threshold(), sum->view(), {}));
  // A copy: the last round's weights may still be on their way to a worker.
  std::shared_ptr<Buffer> updated = pool_->Get(4 * plan_.num_elems);
  std::copy_n(weights_->as<float>(), plan_.num_elems, updated->as<float>());
  kernels::CpuKernels().sgd_momentum(
      sum->as<float>(), plan_.num_elems, config_.optimizer.sgd,
      updated->as<float>(), momentum_.as<float>(), {});
  weights_ = updated;
  const ConstBytes payload = updated->view();
  return RoundResult{.buffer = std::move(updated),
                     .payload = payload,
                     .format = ReplyFormat::kDense,
                     .step = step_};
}

void ChunkRounds::Finish(RoundResult result) {
  if (uses_scale_) scales_[step_ & 1] = result.agreed;
  stages_.Agree(step_, result.agreed_stage);
  current_ = std::move(result);
  has_current_ = true;
  for (Slot& slot : slots_) {
    slot.state = Slot::State::kEmpty;
    slot.frame = nullptr;
  }
  num_arrived_ = 0;
  wish_ = kNoScale;
  stage_wish_.reset();
  ++step_;
}

absl::StatusOr<bool> ChunkRounds::Propose(int worker, int16_t scale) {
  const auto index = static_cast<size_t>(worker);
  if (!uses_scale_ || has_proposed_[index] ||
      (scale != kNoScale && (scale < kMinScale || scale > kMaxScale))) {
    return absl::InvalidArgumentError(
        absl::StrCat("proposal of scale ", scale, " was not expected"));
  }
  has_proposed_[index] = true;
  wish_ = std::max(wish_, scale);
  if (++num_proposed_ < slots_.size()) return false;
  const int16_t agreed = wish_ == kNoScale ? kDefaultScale : wish_;
  scales_ = {agreed, agreed};
  has_agreed_ = true;
  wish_ = kNoScale;
  return true;
}

absl::StatusOr<Bytes> ChunkRounds::BeginValue(size_t num_bytes) {
  if (num_bytes != 4 * plan_.num_elems || arriving_value_ != nullptr ||
      has_current_ || num_arrived_ > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "initial value of ", num_bytes, " bytes for key ", plan_.key, " chunk ",
        plan_.index, " of ", 4 * plan_.num_elems, " bytes was not expected"));
  }
  arriving_value_ = pool_->Get(num_bytes);
  return arriving_value_->view();
}

void ChunkRounds::FinishValue() {
  const std::shared_ptr<Buffer> value = std::move(arriving_value_);
  if (config_.optimizer.update_on == UpdateOn::kServer) weights_ = value;
  current_ = {.buffer = value, .payload = value->view()};
  has_current_ = true;
}

const RoundResult* ChunkRounds::current() const {
  return has_current_ ? &current_ : nullptr;
}

bool ChunkRounds::wants_reply(int worker) const {
  return slots_[static_cast<size_t>(worker)].wants_reply;
}

}  // namespace telegrad
