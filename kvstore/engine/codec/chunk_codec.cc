#include "kvstore/engine/codec/chunk_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/codec_memory.h"
#include "kernels/dispatch.h"
#include "kvstore/engine/codec/chunk_on_device.h"
#include "kvstore/engine/codec/floats.h"

namespace telegrad {
namespace {

// Bits of what a saved chunk holds.
constexpr uint8_t kHasResidual = 1;
constexpr uint8_t kHasMomentum = 2;

std::shared_ptr<Buffer> ScratchOf(const EngineConfig& config, size_t bytes) {
  return config.buffers->Get(std::max(bytes, config.scratch_bytes));
}

// Between the host and where a codec's memory is.
absl::Status CopyState(const EngineConfig& config, Bytes to, ConstBytes from) {
  if (to.device == from.device) {
    std::copy_n(from.data, from.size, to.data);
    return absl::OkStatus();
  }
  DeviceLane& lane = *config.lane;
  const Event after = lane.TakeEvent();
  lane.Record(after, lane.stream());
  const absl::Status status = lane.CopyNow(to, from, after);
  lane.Return(after);
  return status;
}

absl::Status PutState(const EngineConfig& config, ConstBytes from,
                      StateWriter& writer) {
  const Buffer host(from.size);
  RETURN_IF_ERROR(CopyState(config, host.view(), from));
  writer.PutBytes(host.view());
  return absl::OkStatus();
}

// Whether the codec in which `codec` has encoded keeps memory by element.
bool HasMemoryByElement(const ChunkCodec& codec) {
  return IsMemoryByElement(
      codec.codings().Of(codec.encoded_in()).codec->traits());
}

bool HaveSameElements(const Chunk& a, const Chunk& b) {
  return a.begin == b.begin && a.num_elems == b.num_elems;
}

size_t NumShared(const Chunk& a, const Chunk& b) {
  return std::min(a.begin + a.num_elems, b.begin + b.num_elems) -
         std::max(a.begin, b.begin);
}

// The guard's of `codec`, whose elements were in `old`: of each its mean square
// of an element counts by the elements that are shared.
Guard::State GuardAfter(std::span<const ChunkCodec* const> old,
                        const ChunkCodec& codec) {
  Guard::State state;
  for (Guard::Squares Guard::State::*const late :
       {&Guard::State::recent, &Guard::State::earlier}) {
    Guard::Squares& squares = state.*late;
    double num_shared = 0;
    for (const ChunkCodec* const each : old) {
      const Guard::Squares& from = each->guard().state().*late;
      if (each->encoded_in() != codec.encoded_in() || from.count == 0) continue;
      const auto share =
          static_cast<double>(NumShared(each->chunk(), codec.chunk()));
      num_shared += share;
      squares.count = std::max(squares.count, from.count);
      squares.sum +=
          share * from.sum /
          static_cast<double>(from.count * each->guard().num_samples());
    }
    if (squares.count == 0) continue;
    squares.sum *=
        static_cast<double>(squares.count * codec.guard().num_samples()) /
        num_shared;
  }
  return state;
}

}  // namespace

void ChangeDense(size_t num_nonfinite, const float* residual, Bytes dense) {
  float* const to = Floats(dense);
  const size_t n = dense.size / sizeof(float);
  if (num_nonfinite > 0) {
    std::replace_if(
        to, to + n, [](float x) { return !std::isfinite(x); }, 0.0f);
  }
  if (residual != nullptr) kernels::CpuKernels().add_f32(residual, n, to, {});
}

absl::StatusOr<ChunkCodec> ChunkCodec::Make(const TensorLayout& layout,
                                            const Chunk& chunk,
                                            const EngineConfig& config,
                                            Dtype dtype) {
  ChunkCodec made;
  made.chunk_ = chunk;
  made.config_ = &config;
  made.dtype_ = dtype;
  ASSIGN_OR_RETURN(made.codings_, Codings::Make(layout, chunk.num_elems, config,
                                                config.codec_device()));
  return made;
}

void ChunkCodec::SetMemory(const ChunkMemory& memory) {
  memory_ = memory;
  const size_t bytes = codings_.MaxFrameBytes();
  if (config_->lane == nullptr && bytes > 0) frame_ = Buffer(bytes);
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

void SavedChunk::Switch(ChunkCodec& codec, CodecMode mode) {
  const Coding& coding = codec.codings_.Of(mode);
  const CodecTraits& traits = coding.codec->traits();
  codec.encoded_in_ = mode;
  codec.tries_halves_ = codec.dtype_ != Dtype::kFloat32;
  codec.state_ = {};
  if (traits.needs_residual) {
    codec.state_.residual = Reach(codec.memory_.residual);
  }
  if (traits.masks_momentum) {
    codec.state_.momentum = Reach(codec.memory_.momentum);
  }
  codec.guard_ = Guard(codec.chunk_.num_elems, traits, coding.setting.options);
}

// Nothing of another codec's state is of use but the residual, which is the
// caller's and counts as before.
const Coding& ChunkCodec::Begin(uint64_t step) {
  dense_ = nullptr;
  const CodecMode mode = At(step).mode;
  const Coding& coding = codings_.Of(mode);
  const CodecTraits& traits = coding.codec->traits();
  if (traits.lossless) return coding;
  if (mode != encoded_in_) SavedChunk::Switch(*this, mode);
  // Chunks side by side have different steps, so that none looks at all.
  has_sample_ = guard_.Begin(step + chunk_.key + chunk_.index);
  return coding;
}

EncodeParams ChunkCodec::ParamsOf(const Coding& coding, uint64_t step,
                                  uint64_t source) const {
  const bool propagates =
      config_->compression.nonfinite == NonFinitePolicy::kPropagate;
  return {.threshold = coding.codec->traits().needs_threshold
                           ? coding.Threshold(At(step).scale)
                           : 0,
          .nonfinite = propagates ? NonFinite::kPropagate : NonFinite::kZero,
          .stream = StreamOf(chunk_),
          .step = step,
          .source = source};
}

absl::StatusOr<EncodedChunk> ChunkCodec::Encode(uint64_t step, uint64_t source,
                                                ConstBytes grad) {
  const Coding& coding = Begin(step);
  const PreparedCodec& codec = *coding.codec;
  Dtype dtype = dtype_;
  std::shared_ptr<Buffer> pushed;
  if (memory_.momentum.size > 0) {
    pushed = config_->buffers->Get(value_bytes());
    PushMomentumOf(config_->compression, kernels::CpuKernels(), grad, dtype,
                   chunk_.num_elems, Floats(memory_.momentum),
                   pushed->as<float>(), {});
    has_momentum_ = true;
    grad = pushed->view();
    dtype = Dtype::kFloat32;
  }
  if (codec.traits().lossless) {
    dense_ = std::move(pushed);
    return EncodeDense(grad, dtype);
  }
  const EncodeParams params = ParamsOf(coding, step, source);
  EncodeResult result;
  std::shared_ptr<Buffer> widened;
  if (dtype != Dtype::kFloat32) {
    ASSIGN_OR_RETURN(
        const bool is_encoded,
        EncodeHalves(codec, params, grad, frame_.view(), &result, {}));
    if (is_encoded) {
      return Seen({frame_.data(), result.encoded_bytes}, result.stats);
    }
    widened = ScratchOf(*config_, value_bytes());
    Widen(kernels::CpuKernels(), grad, dtype_, chunk_.num_elems,
          widened->as<float>(), {});
    grad = {widened->data(), value_bytes()};
  }
  if (has_sample_) {
    guard_.Before(Floats(grad), Floats(state_.residual), Guard::Reads::kWhole);
  }
  RETURN_IF_ERROR(
      codec.Encode(grad, state_, params, frame_.view(), &result, {}));
  has_residual_ |= state_.residual.size > 0;
  const ConstBytes payload(frame_.data(), result.encoded_bytes);
  if (has_sample_) {
    RETURN_IF_ERROR(CheckHealth(codec, grad, payload, params.threshold));
  }
  return Seen(payload, result.stats);
}

// Where the codec takes 16-bit floats itself; not where there is to be a
// sample, which is of float32.
absl::StatusOr<bool> ChunkCodec::EncodeHalves(const PreparedCodec& codec,
                                              const EncodeParams& params,
                                              ConstBytes grad, Bytes out,
                                              EncodeResult* result,
                                              Stream stream) {
  if (has_sample_ || !tries_halves_) return false;
  const HalfFormat format = *HalfFormatOf(dtype_);
  const absl::Status status =
      codec.EncodeHalf(format, grad, state_, params, out, result, stream);
  tries_halves_ = !absl::IsUnimplemented(status);
  if (!tries_halves_) return false;
  RETURN_IF_ERROR(status);
  has_residual_ |= state_.residual.size > 0;
  return true;
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
                                     float threshold) {
  std::shared_ptr<Buffer> decoded;
  if (guard_.needs_decoded()) {
    decoded = ScratchOf(*config_, value_bytes());
    RETURN_IF_ERROR(codec.Decode(payload, threshold,
                                 Bytes(decoded->data(), value_bytes()), {}));
  }
  guard_.After(Floats(grad), Floats(state_.residual), threshold,
               decoded == nullptr ? nullptr : decoded->as<float>(),
               Guard::Reads::kWhole);
  TakeHealth();
  return absl::OkStatus();
}

void ChunkCodec::TakeHealth() {
  if (guard_.gave_up() && config_->compression.has_guard) {
    vetoed_.set(static_cast<size_t>(encoded_in_));
  }
}

// The gradient from where it lies, unless something must be changed: elements
// that are not finite count as 0, and what a codec left behind goes along.
absl::StatusOr<EncodedChunk> ChunkCodec::EncodeDense(ConstBytes grad,
                                                     Dtype dtype) {
  if (dtype != Dtype::kFloat32) {
    dense_ = config_->buffers->Get(value_bytes());
    Widen(kernels::CpuKernels(), grad, dtype, chunk_.num_elems,
          dense_->as<float>(), {});
    grad = dense_->view();
  }
  EncodedChunk seen = SeenDense(grad);
  const bool adds_residual = std::exchange(has_residual_, false);
  if (seen.is_refused || (seen.num_nonfinite == 0 && !adds_residual)) {
    return seen;
  }
  if (dense_ == nullptr) {
    dense_ = config_->buffers->Get(value_bytes());
    kernels::CpuKernels().copy(grad.data, grad.size, dense_->data(), {});
  }
  float* const residual = Floats(memory_.residual);
  ChangeDense(seen.num_nonfinite, adds_residual ? residual : nullptr,
              dense_->view());
  if (adds_residual) std::fill_n(residual, chunk_.num_elems, 0.0f);
  seen.payload = dense_->view();
  return seen;
}

EncodedChunk ChunkCodec::SeenDense(ConstBytes grad) const {
  EncodeStats stats;
  if (config_->compression.nonfinite != NonFinitePolicy::kPropagate) {
    kernels::CpuKernels().count_nonfinite(Floats(grad), chunk_.num_elems,
                                          &stats, {});
  }
  return Seen(grad, stats);
}

absl::Status SavedChunk::Save(const ChunkCodec& codec, StateWriter& writer) {
  codec.codings_.Save(writer);
  writer.Put(static_cast<uint8_t>(codec.encoded_in_));
  const Guard::State& state = codec.guard_.state();
  writer.Put(static_cast<uint8_t>(state.num_bad));
  for (const Guard::Squares& each : {state.recent, state.earlier}) {
    writer.Put(each.count);
    writer.Put(each.sum);
  }
  writer.Put(static_cast<uint16_t>(codec.vetoed_.to_ulong()));
  writer.Put(static_cast<uint8_t>((codec.has_residual_ ? kHasResidual : 0) |
                                  (codec.has_momentum_ ? kHasMomentum : 0)));
  if (codec.has_residual_) {
    RETURN_IF_ERROR(PutState(*codec.config_, codec.memory_.residual, writer));
  }
  if (codec.has_momentum_) {
    RETURN_IF_ERROR(PutState(*codec.config_, codec.memory_.momentum, writer));
  }
  writer.Put(uint64_t{codec.state_.memory.size()});
  return PutState(*codec.config_, codec.state_.memory.view(), writer);
}

absl::Status SavedChunk::Load(ChunkCodec& codec, StateReader& reader) {
  const auto wrong = [] {
    return absl::DataLossError("the state is of another codec or chunk");
  };
  RETURN_IF_ERROR(codec.codings_.Load(reader));
  const auto mode = static_cast<CodecMode>(reader.Take<uint8_t>());
  if (!codec.codings_.Knows(mode)) return wrong();
  codec.encoded_in_ = CodecMode::kPaused;
  if (!IsDense(mode)) Switch(codec, mode);
  Guard::State state;
  state.num_bad = reader.Take<uint8_t>();
  for (Guard::Squares* each : {&state.recent, &state.earlier}) {
    each->count = reader.Take<uint64_t>();
    each->sum = reader.Take<double>();
  }
  if (!codec.guard_.Restore(state)) return wrong();
  codec.vetoed_ = reader.Take<uint16_t>();
  const auto held = reader.Take<uint8_t>();
  const EngineConfig& config = *codec.config_;
  codec.has_residual_ = (held & kHasResidual) != 0;
  codec.has_momentum_ = (held & kHasMomentum) != 0;
  if (held > (kHasResidual | kHasMomentum)) return wrong();
  for (const auto& [is_there, to] :
       {std::pair(codec.has_residual_, codec.memory_.residual),
        std::pair(codec.has_momentum_, codec.memory_.momentum)}) {
    if (is_there && to.size == 0) return wrong();
    const Buffer zeros(is_there ? 0 : to.size);
    const ConstBytes from = is_there ? reader.TakeBytes(to.size) : zeros.view();
    if (from.size != to.size) return wrong();
    RETURN_IF_ERROR(CopyState(config, to, from));
  }
  const auto num_bytes = reader.Take<uint64_t>();
  if (num_bytes == 0) return absl::OkStatus();
  const ConstBytes memory = reader.TakeBytes(num_bytes);
  if (memory.size == 0 || IsDense(mode)) return wrong();
  Buffer host(memory.size);
  std::memcpy(host.data(), memory.data, memory.size);
  RETURN_IF_ERROR(
      CheckCodecMemory(*codec.codings_.Of(mode).codec, host.view()));
  if (config.codec_device() == Device{}) {
    codec.state_.memory = std::move(host);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(codec.state_.memory, config.lane->MakeMemory(host.size()));
  return CopyState(config, codec.state_.memory.view(), host.view());
}

void SavedChunk::GoOn(std::span<const ChunkCodec* const> old,
                      ChunkCodec& codec) {
  const ChunkCodec& first = *old.front();
  codec.codings_.Follow(first.codings_);
  for (const ChunkCodec* const each : old) {
    if (each != &first) codec.codings_.FollowToo(each->codings_);
    codec.vetoed_ |= each->vetoed_;
    if (IsDense(codec.encoded_in_) && !IsDense(each->encoded_in_)) {
      Switch(codec, each->encoded_in_);
    }
  }
  const bool is_same = HaveSameElements(first.chunk_, codec.chunk_);
  (void)codec.guard_.Restore(is_same && first.encoded_in_ == codec.encoded_in_
                                 ? first.guard_.state()
                                 : GuardAfter(old, codec));
  const size_t size = first.state_.memory.size();
  if (size == 0 || !is_same || HasMemoryByElement(first)) return;
  codec.state_.memory = Buffer(size);
  std::memcpy(codec.state_.memory.data(), first.state_.memory.data(), size);
}

void SavedChunk::AddHeld(const ChunkCodec& old, ChunkCodec& codec) {
  const Chunk& from = old.chunk_;
  const Chunk& to = codec.chunk_;
  const size_t begin = std::max(from.begin, to.begin);
  const auto add = [&](ConstBytes values, Bytes sum) {
    kernels::CpuKernels().add_f32(Floats(values) + (begin - from.begin),
                                  NumShared(from, to),
                                  Floats(sum) + (begin - to.begin), {});
  };
  codec.vetoed_ |= old.vetoed_;
  if (old.has_residual_) {
    codec.has_residual_ = true;
    add(old.memory_.residual, codec.memory_.residual);
  }
  if (old.has_momentum_) {
    codec.has_momentum_ = true;
    add(old.memory_.momentum, codec.memory_.momentum);
  }
  if (codec.encoded_in_ != old.encoded_in_) return;
  if (old.state_.memory.size() == 0 || !HasMemoryByElement(old)) return;
  if (codec.state_.memory.size() == 0) {
    codec.state_.memory = Buffer(codec.value_bytes());
  }
  add(old.state_.memory.view(), codec.state_.memory.view());
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
  size_t expected =
      is_value ? value_bytes()
               : ReplyBytes(*coding.codec, format, config_->num_contributors);
  if (format == ReplyFormat::kReencode &&
      !coding.codec->traits().constant_width && num_bytes > 0) {
    expected = std::min(expected, num_bytes);
  }
  if (reply.format == format && num_bytes == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "answer of ", num_bytes, " bytes, format ",
      static_cast<int>(reply.format), "; ", expected, " bytes, format ",
      static_cast<int>(format), " were expected"));
}

absl::Status ChunkCodec::Decode(const ReplyRecord& reply, ConstBytes payload,
                                Bytes out) {
  if (reply.format == ReplyFormat::kDense) {
    EncodeStats stats;
    Narrow(kernels::CpuKernels(), Floats(payload), chunk_.num_elems, out,
           dtype_, &stats, {});
    return absl::OkStatus();
  }
  if (reply.format == ReplyFormat::kSum) {
    RETURN_IF_ERROR(CheckPayload(reply, payload));
  }
  if (dtype_ == Dtype::kFloat32) return DecodeTo(reply, payload, out, {});
  const std::shared_ptr<Buffer> floats = ScratchOf(*config_, value_bytes());
  const Bytes to(floats->data(), value_bytes());
  RETURN_IF_ERROR(DecodeTo(reply, payload, to, {}));
  EncodeStats stats;
  Narrow(kernels::CpuKernels(), Floats(to), chunk_.num_elems, out, dtype_,
         &stats, {});
  return absl::OkStatus();
}

absl::Status ChunkCodec::CheckPayload(const ReplyRecord& reply,
                                      ConstBytes payload) const {
  const CodecMode mode = reply.settings.mode;
  const PreparedCodec& codec = *codings_.Of(mode).codec;
  switch (reply.format) {
    case ReplyFormat::kDense:
      return absl::OkStatus();
    case ReplyFormat::kReencode:
      return codec.Validate(payload);
    case ReplyFormat::kSum:
      break;
  }
  if (mode != encoded_in_) {
    return absl::InvalidArgumentError(
        absl::StrCat("sums of mode ", static_cast<int>(mode), ", but mode ",
                     static_cast<int>(encoded_in_), " was pushed last"));
  }
  return codec.ValidateSum(payload,
                           static_cast<uint32_t>(config_->num_contributors));
}

// The answer was checked, and is not dense: that was multiplied where it was
// summed.
DecodeItem ChunkCodec::DecodeItemOf(const ReplyRecord& reply,
                                    ConstBytes payload, Bytes floats) const {
  const Coding& coding = codings_.Of(reply.settings.mode);
  const auto contributors = static_cast<uint32_t>(config_->num_contributors);
  DecodeItem item = {.codec = coding.codec.get(),
                     .payload = payload,
                     .threshold = coding.Threshold(reply.settings.scale),
                     .out = floats,
                     .scale = config_->optimizer.result_scale};
  if (reply.format == ReplyFormat::kReencode) {
    item.threshold =
        item.codec->ReencodeThreshold(item.threshold, contributors);
  } else {
    item.num_payloads = contributors;
  }
  return item;
}

absl::Status ChunkCodec::DecodeTo(const ReplyRecord& reply, ConstBytes payload,
                                  Bytes floats, Stream stream) {
  const DecodeItem item = DecodeItemOf(reply, payload, floats);
  RETURN_IF_ERROR(DecodeOne(item,
                            config_->lane == nullptr ? kernels::CpuKernels()
                                                     : config_->lane->kernels(),
                            stream));
  return LearnOf(item, state_, stream);
}

}  // namespace telegrad
