#include "kvstore/engine/tensor_codec.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/dispatch.h"
#include "kvstore/engine/floats.h"

namespace telegrad {
namespace {

std::string PackingName(const Coding& coding) {
  if (coding.other != nullptr) return "open";
  return coding.codec->packing() == 1 ? "radix" : "plain";
}

// Of TensorCodec::codes_. What is copied down lies side by side.
constexpr size_t kPowerAt = 8;
constexpr size_t kResultsAt = 16;
constexpr size_t kFrameAlignment = 16;  // kernels' widest access

size_t Aligned(size_t at) {
  return (at + kFrameAlignment - 1) / kFrameAlignment * kFrameAlignment;
}

Bytes Slice(const Buffer& buffer, size_t at, size_t size) {
  return {buffer.data() + at, size, buffer.view().device};
}

absl::StatusOr<Buffer> MemoryOf(DeviceLane* lane, size_t size) {
  if (lane == nullptr) return Buffer(size);
  return lane->MakeMemory(size);
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
  tensor->config_ = &config;
  for (const Chunk& chunk : layout.chunks) {
    ASSIGN_OR_RETURN(ChunkCodec codec,
                     ChunkCodec::Make(layout, chunk, config, spec.dtype));
    tensor->chunks_.push_back(std::move(codec));
  }
  if (std::any_of(layout.codecs.begin(), layout.codecs.end(), NeedsResidual)) {
    ASSIGN_OR_RETURN(tensor->residual_,
                     MemoryOf(config.lane, 4 * spec.num_elems));
  }
  RETURN_IF_ERROR(tensor->MakeMemory());
  return tensor;
}

absl::Status TensorCodec::MakeMemory() {
  size_t codes_bytes = kResultsAt + sizeof(EncodeResult) * chunks_.size();
  size_t answers_bytes = 0;
  std::vector<ChunkMemory> memory(chunks_.size());
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const Chunk& chunk = chunks_[i].chunk();
    memory[i].block = this;
    if (residual_.size() > 0) {
      memory[i].residual = PartOf(residual_.view(), chunk, Dtype::kFloat32);
    }
    memory[i].frame.size = chunks_[i].codings().MaxFrameBytes();
    memory[i].answer.size = chunks_[i].max_reply_bytes();
    codes_bytes = Aligned(codes_bytes) + memory[i].frame.size;
    answers_bytes = Aligned(answers_bytes) + memory[i].answer.size;
  }
  if (lane() != nullptr) {
    ASSIGN_OR_RETURN(codes_, MemoryOf(lane(), codes_bytes));
    ASSIGN_OR_RETURN(answers_, MemoryOf(lane(), answers_bytes));
    host_codes_ = lane()->MakeHostMemory(codes_bytes);
  }
  size_t codes_at = kResultsAt + sizeof(EncodeResult) * chunks_.size();
  size_t answers_at = 0;
  for (size_t i = 0; i < chunks_.size() && lane() != nullptr; ++i) {
    const size_t result_at = kResultsAt + i * sizeof(EncodeResult);
    memory[i].result = Slice(codes_, result_at, sizeof(EncodeResult));
    memory[i].host_result = Slice(host_codes_, result_at, sizeof(EncodeResult));
    codes_at = Aligned(codes_at);
    answers_at = Aligned(answers_at);
    const size_t frame_bytes = memory[i].frame.size;
    memory[i].frame = Slice(codes_, codes_at, frame_bytes);
    memory[i].host_frame = Slice(host_codes_, codes_at, frame_bytes);
    memory[i].answer = Slice(answers_, answers_at, memory[i].answer.size);
    codes_at += frame_bytes;
    answers_at += memory[i].answer.size;
  }
  for (size_t i = 0; i < chunks_.size(); ++i) {
    chunks_[i].SetMemory(memory[i]);
    if (lane() != nullptr) on_device_.emplace_back(&chunks_[i]);
  }
  return absl::OkStatus();
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

Bytes TensorCodec::WishedResidual(const Coding& coding) const {
  return coding.codec->traits().auto_of_residual ? residual_.view() : Bytes();
}

ChunkWish TensorCodec::WishOf(CodecMode mode, double mean_square,
                              const Coding& coding) {
  const double per_rms = ThresholdPerRms(
      coding.setting.threshold, coding.codec->traits().auto_threshold_per_rms);
  return {.mode = mode, .scale = ProposeScale(mean_square, per_rms)};
}

ChunkWish TensorCodec::Wish(ConstBytes grad) const {
  const CodecMode wish = wish_;
  const Coding& coding = ScaledCoding(wish);
  if (!coding.uses_scale) return {.mode = wish};
  const kernels::KernelTable& kernels = kernels::CpuKernels();
  std::shared_ptr<Buffer> floats;
  if (spec_.dtype != Dtype::kFloat32) {
    floats = config_->buffers->Get(4 * spec_.num_elems);
    Widen(kernels, grad, spec_.dtype, spec_.num_elems, floats->as<float>(), {});
    grad = floats->view();
  }
  double mean_square = 0;
  kernels.sampled_power(Floats(grad), Floats(WishedResidual(coding)),
                        spec_.num_elems, &mean_square, {});
  return WishOf(wish, mean_square, coding);
}

absl::Status TensorCodec::BeginWish(ConstBytes grad) {
  begun_wish_ = wish_;
  const Coding& coding = ScaledCoding(begun_wish_);
  if (!coding.uses_scale) return absl::OkStatus();
  const kernels::KernelTable& kernels = lane()->kernels();
  std::shared_ptr<Buffer> floats;
  if (spec_.dtype != Dtype::kFloat32) {
    const size_t bytes = 4 * spec_.num_elems;
    floats = lane()->device_buffers().Get(bytes);
    if (floats->size() < bytes) return lane()->NoMemory(bytes);
    Widen(kernels, Reach(grad), spec_.dtype, spec_.num_elems,
          Floats(Reach(floats->view())), lane()->stream());
    grad = floats->view();
  }
  const Bytes power = Slice(codes_, kPowerAt, sizeof(double));
  kernels.sampled_power(Floats(Reach(grad)),
                        Floats(Reach(WishedResidual(coding))), spec_.num_elems,
                        reinterpret_cast<double*>(Reach(power).data),
                        lane()->stream());
  lane()->Down(Slice(host_codes_, kPowerAt, sizeof(double)), power, this);
  return absl::OkStatus();
}

ChunkWish TensorCodec::EndWish() const {
  const Coding& coding = ScaledCoding(begun_wish_);
  if (!coding.uses_scale) return {.mode = begun_wish_};
  const auto* const mean_square =
      reinterpret_cast<const double*>(host_codes_.data() + kPowerAt);
  return WishOf(begun_wish_, *mean_square, coding);
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
    report.reply = ReportedReply(coding.format);
    report.push_bytes += coding.codec->max_encoded_bytes();
    report.gave_up |= gave_up;
    report.is_dense |= codings.has_dense() && IsDense(codings.At(rounds).mode);
    sums.Add(chunk.guard().sums());
  }
  Fill(sums, report);
  return report;
}

}  // namespace telegrad
