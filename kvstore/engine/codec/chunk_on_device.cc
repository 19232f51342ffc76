#include "kvstore/engine/codec/chunk_on_device.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/gather.h"
#include "kvstore/engine/codec/floats.h"

// No byte of a gradient, a residual or an output is looked at here: kernels and
// copies get addresses.
namespace telegrad {
namespace {

constexpr size_t kSampledArrays = 4;  // arrays in Begun::samples
// Between two answers: takes no longer than to begin another copy.
constexpr size_t kMostCopiedAlong = size_t{4} << 10;

}  // namespace

absl::StatusOr<std::shared_ptr<Buffer>> ChunkOnDevice::Room(
    size_t bytes) const {
  std::shared_ptr<Buffer> room = lane().device_buffers().Get(bytes);
  if (room->size() == bytes) return room;
  return NoDeviceMemory(lane(), bytes);
}

absl::StatusOr<std::shared_ptr<Buffer>> ChunkOnDevice::Widened(
    ConstBytes from) const {
  ASSIGN_OR_RETURN(std::shared_ptr<Buffer> to, Room(codec_.value_bytes()));
  Widen(lane().kernels(), Reach(from), codec_.dtype_, codec_.chunk_.num_elems,
        Floats(Reach(to->view())), lane().stream());
  return to;
}

absl::Status ChunkOnDevice::BeginEncode(uint64_t step, uint64_t source,
                                        ConstBytes grad) {
  const Coding& coding = codec_.Begin(step);
  const PreparedCodec& codec = *coding.codec;
  begun_ = {.is_dense = codec.traits().lossless};
  Dtype dtype = codec_.dtype_;
  if (codec_.memory_.momentum.size > 0) {
    ASSIGN_OR_RETURN(grad, WithMomentum(grad));
    dtype = Dtype::kFloat32;
  }
  if (begun_.is_dense) return BeginDense(grad, dtype);
  EncodeItem item = {.codec = &codec,
                     .grad = Reach(grad),
                     .state = &codec_.state_,
                     .params = codec_.ParamsOf(coding, step, source),
                     .out = Reach(codec_.memory_.frame),
                     .result = result_on_device()};
  begun_.threshold = item.params.threshold;
  bool is_queued = false;
  if (dtype != Dtype::kFloat32) {
    RETURN_IF_ERROR(BeginHalves(item, &is_queued));
  }
  if (is_queued) return AfterEncode(codec);
  if (codec_.has_sample_) RETURN_IF_ERROR(SampleBefore(item));
  codec_.has_residual_ |= codec_.state_.residual.size > 0;
  lane().batch().Encode(item, [this, &codec] { return AfterEncode(codec); });
  return absl::OkStatus();
}

// In memory of the lane, until what reads it is queued.
absl::StatusOr<ConstBytes> ChunkOnDevice::WithMomentum(ConstBytes grad) {
  const bool is_float = codec_.dtype_ == Dtype::kFloat32;
  ASSIGN_OR_RETURN(begun_.floats,
                   is_float ? Room(codec_.value_bytes()) : Widened(grad));
  lane().batch().Keep(begun_.floats);
  const Bytes pushed = begun_.floats->view();
  const CompressionConfig& config = codec_.config_->compression;
  lane().batch().PushMomentum(
      {.grad = Floats(Reach(is_float ? grad : ConstBytes(pushed))),
       .momentum = Floats(Reach(codec_.memory_.momentum)),
       .out = Floats(Reach(pushed)),
       .num_elems = codec_.chunk_.num_elems,
       .rate = config.momentum_rate,
       .leads = config.momentum == PushMomentum::kNesterov});
  codec_.has_momentum_ = true;
  return pushed;
}

// As they are where a launch of many takes them, or the codec does; else as
// float32.
absl::Status ChunkOnDevice::BeginHalves(EncodeItem& item, bool* is_queued) {
  if (codec_.tries_halves_) {
    item.half = codec_.dtype_ == Dtype::kFloat16 ? HalfFormat::kFp16
                                                 : HalfFormat::kBf16;
    ASSIGN_OR_RETURN(const std::optional<BatchPart> part,
                     item.codec->BatchPartOf(item, lane().stream()));
    if (part.has_value()) return absl::OkStatus();
    if (!codec_.has_sample_) {
      RETURN_IF_ERROR(lane().batch().LaunchPowers());
      ASSIGN_OR_RETURN(*is_queued, codec_.EncodeHalves(
                                       *item.codec, item.params, item.grad,
                                       item.out, item.result, lane().stream()));
    }
    if (*is_queued) return absl::OkStatus();
    item.half = std::nullopt;
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<Buffer> floats, Widened(item.grad));
  lane().batch().Keep(floats);
  item.grad = Reach(floats->view());
  return absl::OkStatus();
}

absl::Status ChunkOnDevice::AfterEncode(const PreparedCodec& codec) {
  if (codec_.has_sample_) RETURN_IF_ERROR(SampleAfter(codec));
  const ChunkMemory& memory = codec_.memory_;
  lane().Down(memory.host_result, memory.result, memory.block);
  if (codec.traits().constant_width && !codec_.config_->cards.sends) {
    lane().Down(memory.host_frame,
                ConstBytes(memory.frame.data, codec.max_encoded_bytes(),
                           memory.frame.device),
                memory.block);
  }
  return absl::OkStatus();
}

// Small ones go to the host as one copy.
absl::Status ChunkOnDevice::BeginDense(ConstBytes grad, Dtype dtype) {
  const kernels::KernelTable& kernels = lane().kernels();
  const ChunkMemory& memory = codec_.memory_;
  const size_t bytes = codec_.value_bytes();
  if (memory.dense.size > 0) {
    if (dtype != Dtype::kFloat32) {
      ASSIGN_OR_RETURN(begun_.floats, Widened(grad));
      grad = begun_.floats->view();
    }
    lane().batch().Gather({.from = Floats(Reach(grad)),
                           .to = Floats(Reach(memory.dense)),
                           .count = codec_.chunk_.num_elems});
    lane().Down(memory.host_dense, memory.dense, memory.block);
  } else {
    codec_.dense_ = lane().host_buffers().Get(bytes);
    RETURN_IF_ERROR(CopyFloats(grad, dtype, codec_.dense_->view()));
  }
  if (!std::exchange(codec_.has_residual_, false)) return absl::OkStatus();
  ASSIGN_OR_RETURN(begun_.residual, Room(bytes));
  begun_.host_residual = lane().host_buffers().Get(bytes);
  const Bytes residual = Reach(memory.residual);
  kernels.copy(residual.data, bytes, Reach(begun_.residual->view()).data,
               lane().stream());
  kernels::GatherKernelsOf(kernels.device)
      .clear(bytes, residual.data, lane().stream());
  lane().Down(begun_.host_residual->view(), begun_.residual->view());
  return absl::OkStatus();
}

absl::Status ChunkOnDevice::CopyFloats(ConstBytes from, Dtype dtype, Bytes to) {
  if (dtype != Dtype::kFloat32) {
    ASSIGN_OR_RETURN(begun_.floats, Widened(from));
    from = begun_.floats->view();
  }
  lane().Down(to, from);
  return absl::OkStatus();
}

// A launch of many takes samples, too; else others do, around it.
absl::Status ChunkOnDevice::SampleBefore(EncodeItem& item) {
  const size_t bytes = kSampledArrays * 4 * codec_.guard_.num_samples();
  ASSIGN_OR_RETURN(begun_.samples, Room(bytes));
  begun_.host_samples = lane().host_buffers().Get(bytes);
  item.samples = Floats(Reach(begun_.samples->view()));
  item.sample_stride = codec_.guard_.stride();
  ASSIGN_OR_RETURN(const std::optional<BatchPart> part,
                   item.codec->BatchPartOf(item, lane().stream()));
  begun_.encoder_samples = part.has_value();
  if (begun_.encoder_samples) return absl::OkStatus();
  item.samples = nullptr;
  lane().batch().Gather(SampleOf(item.grad, 0));
  if (codec_.guard_.has_residual()) {
    lane().batch().Gather(SampleOf(codec_.state_.residual, 1));
  }
  return absl::OkStatus();
}

absl::Status ChunkOnDevice::SampleAfter(const PreparedCodec& codec) {
  if (codec_.guard_.has_residual() && !begun_.encoder_samples) {
    lane().batch().Gather(SampleOf(codec_.state_.residual, 2));
  }
  if (codec_.guard_.needs_decoded()) {
    // Given back at once: whoever gets it has kernels that come later.
    ASSIGN_OR_RETURN(const std::shared_ptr<Buffer> decoded,
                     Room(codec_.value_bytes()));
    const Bytes to = Reach(decoded->view());
    ConstBytes payload = Reach(codec_.memory_.frame);
    // A CPU's kernels have ended, and say how much there is.
    payload.size = lane().kernels().device == DeviceKind::kCpu
                       ? result_on_device()->encoded_bytes
                       : codec.max_encoded_bytes();
    RETURN_IF_ERROR(
        codec.Decode(payload, begun_.threshold, to, lane().stream()));
    kernels::GatherKernelsOf(lane().kernels().device)
        .sample(Floats(to), codec_.chunk_.num_elems, codec_.guard_.stride(),
                SampleOf(to, 3).to, lane().stream());
  }
  lane().Down(begun_.host_samples->view(), begun_.samples->view());
  return absl::OkStatus();
}

kernels::GatherSpan ChunkOnDevice::SampleOf(ConstBytes from,
                                            size_t array) const {
  const Guard& guard = codec_.guard_;
  return {
      .from = Floats(from),
      .to = Floats(Reach(begun_.samples->view())) + array * guard.num_samples(),
      .count = guard.num_samples(),
      .stride = guard.stride()};
}

absl::StatusOr<bool> ChunkOnDevice::CopyCodes() {
  if (begun_.is_dense ||
      codec_.codings_.Of(codec_.encoded_in_).codec->traits().constant_width) {
    return false;
  }
  const ChunkMemory& memory = codec_.memory_;
  const size_t bytes = result().encoded_bytes;
  if (bytes > memory.frame.size) {
    return DeviceFault(absl::StrCat("an encoder with room for ",
                                    memory.frame.size, " bytes wrote ", bytes));
  }
  if (codec_.config_->cards.sends) return false;
  lane().Down(memory.host_frame,
              ConstBytes(memory.frame.data, bytes, memory.frame.device),
              memory.block);
  return true;
}

Bytes ChunkOnDevice::dense() const {
  return codec_.dense_ == nullptr ? codec_.memory_.host_dense
                                  : codec_.dense_->view();
}

EncodedChunk ChunkOnDevice::EndEncode() {
  const Begun begun = std::exchange(begun_, {});
  if (begun.is_dense) {
    const EncodedChunk seen = codec_.SeenDense(dense());
    if (seen.is_refused) return seen;
    ChangeDense(
        seen.num_nonfinite,
        begun.residual == nullptr ? nullptr : begun.host_residual->as<float>(),
        dense());
    return seen;
  }
  if (codec_.has_sample_) {
    Guard& guard = codec_.guard_;
    const size_t n = guard.num_samples();
    const float* const sampled = begun.host_samples->as<float>();
    guard.Before(sampled, sampled + n, Guard::Reads::kSamples);
    guard.After(sampled, sampled + 2 * n, begun.threshold, sampled + 3 * n,
                Guard::Reads::kSamples);
    codec_.TakeHealth();
  }
  const Bytes frame = codec_.config_->cards.sends ? codec_.memory_.frame
                                                  : codec_.memory_.host_frame;
  return codec_.Seen(
      ConstBytes(frame.data, result().encoded_bytes, frame.device),
      result().stats);
}

Bytes ChunkOnDevice::TargetOf(const ReplyRecord& reply) const {
  if (reply.format == ReplyFormat::kDense) return Bytes();
  const CodecMode mode = reply.settings.mode;
  const bool is_unchecked =
      codec_.config_->cards.receives &&
      codec_.codings_.Of(mode).codec->traits().decodes_any_bits &&
      (reply.format == ReplyFormat::kReencode || mode == codec_.encoded_in_);
  return is_unchecked ? codec_.memory_.answer : codec_.memory_.host_answer;
}

absl::Status ChunkOnDevice::BeginDecode(const ReplyRecord& reply,
                                        ConstBytes payload, Bytes out) {
  const ChunkMemory& memory = codec_.memory_;
  const Bytes answer = memory.answer;
  if (payload.device == lane().device()) {
    lane().TakeArrived();  // where EndDecode reads it, or where it is to be
  } else if (reply.format != ReplyFormat::kDense) {
    // The next chunk's lies behind the room of this one.
    const size_t room = answer.size - payload.size + kMirrorAlignment - 1;
    lane().Up(answer, payload,
              payload.data == memory.host_answer.data ? memory.block : nullptr,
              std::min(room, kMostCopiedAlong));
  } else if (codec_.dtype_ == Dtype::kFloat32) {
    lane().Up(out, payload);
  } else {
    ASSIGN_OR_RETURN(begun_.floats, Room(codec_.value_bytes()));
    lane().UpAfterKernels(begun_.floats->view(), payload);
  }
  return absl::OkStatus();
}

// With the others that have come; not to 16 bits where the codec cannot.
absl::StatusOr<bool> ChunkOnDevice::DecodeWithOthers(const ReplyRecord& reply,
                                                     ConstBytes payload,
                                                     Bytes out) {
  DecodeItem item = codec_.DecodeItemOf(reply, payload, Reach(out));
  if (codec_.dtype_ != Dtype::kFloat32) {
    item.half = codec_.dtype_ == Dtype::kFloat16 ? HalfFormat::kFp16
                                                 : HalfFormat::kBf16;
    ASSIGN_OR_RETURN(const std::optional<DecodePart> part,
                     item.codec->DecodePartOf(item));
    if (!part.has_value()) return false;
  }
  lane().batch().Decode(item, [this, item] {
    return LearnOf(item, codec_.state_, lane().stream());
  });
  return true;
}

absl::Status ChunkOnDevice::EndDecode(const ReplyRecord& reply,
                                      size_t payload_bytes, Bytes out) {
  const bool is_dense = reply.format == ReplyFormat::kDense;
  const bool is_wide = codec_.dtype_ == Dtype::kFloat32;
  if (is_wide && is_dense) return absl::OkStatus();
  ConstBytes payload = Reach(codec_.memory_.answer);
  payload.size = payload_bytes;
  if (!is_dense) {
    ASSIGN_OR_RETURN(const bool is_queued,
                     DecodeWithOthers(reply, payload, out));
    if (is_queued) return absl::OkStatus();
  }
  std::shared_ptr<Buffer> floats = std::move(begun_.floats);
  if (!is_dense) {
    ASSIGN_OR_RETURN(floats, Room(codec_.value_bytes()));
    RETURN_IF_ERROR(codec_.DecodeTo(reply, payload, Reach(floats->view()),
                                    lane().stream()));
  }
  Narrow(lane().kernels(), Floats(Reach(floats->view())),
         codec_.chunk_.num_elems, Reach(out), codec_.dtype_,
         &result_on_device()->stats, lane().stream());
  return absl::OkStatus();
}

}  // namespace telegrad
