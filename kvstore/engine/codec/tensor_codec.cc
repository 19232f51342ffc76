#include "kvstore/engine/codec/tensor_codec.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/dispatch.h"
#include "kvstore/engine/codec/floats.h"

namespace telegrad {
namespace {

static_assert(kMirrorAlignment % 16 == 0, "kernels' widest access");
// Larger chunks that go dense are a copy of their own.
constexpr size_t kMostGathered = size_t{64} << 10;

size_t Aligned(size_t at) {
  return (at + kMirrorAlignment - 1) / kMirrorAlignment * kMirrorAlignment;
}

Bytes Slice(const Buffer& buffer, size_t at, size_t size) {
  return {buffer.data() + at, size, buffer.view().device};
}

absl::StatusOr<Buffer> MemoryOf(DeviceLane* lane, size_t size,
                                bool is_for_cards = false) {
  if (lane == nullptr) return Buffer(size);
  return lane->MakeMemory(size, is_for_cards);
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
  tensor->row_codec_ = layout.rows;
  tensor->setting_ = layout.setting;
  tensor->has_rule_ = layout.has_rule;
  tensor->reason_ = layout.reason;
  if (config.compression.starts_dense) tensor->wish_ = CodecMode::kPaused;
  tensor->config_ = &config;
  tensor->num_codecs_ = layout.codecs.size();
  tensor->codec_ = layout.codecs[0].codec->traits().name;
  if (layout.chunks.empty()) return tensor;
  for (const Chunk& chunk : layout.chunks) {
    ASSIGN_OR_RETURN(ChunkCodec codec,
                     ChunkCodec::Make(layout, chunk, config, spec.dtype));
    tensor->chunks_.push_back(std::move(codec));
  }
  if (std::any_of(layout.codecs.begin(), layout.codecs.end(), NeedsResidual)) {
    ASSIGN_OR_RETURN(tensor->residual_,
                     MemoryOf(config.lane, 4 * spec.num_elems));
  }
  if (config.compression.momentum != PushMomentum::kNone && spec.has_momentum) {
    ASSIGN_OR_RETURN(tensor->momentum_,
                     MemoryOf(config.lane, 4 * spec.num_elems));
  }
  RETURN_IF_ERROR(tensor->MakeMemory());
  return tensor;
}

absl::Status TensorCodec::MakeMemory() {
  if (lane() != nullptr) {
    lane()->batch().Expect(chunks_.size(), spec_.num_elems);
  }
  memory_.resize(chunks_.size());
  for (size_t i = 0; i < chunks_.size(); ++i) {
    ChunkMemory& memory = memory_[i];
    if (residual_.size() > 0) {
      memory.residual =
          PartOf(residual_.view(), chunks_[i].chunk(), Dtype::kFloat32);
    }
    if (momentum_.size() > 0) {
      memory.momentum =
          PartOf(momentum_.view(), chunks_[i].chunk(), Dtype::kFloat32);
    }
    if (lane() != nullptr) {
      on_device_.emplace_back(&chunks_[i]);
    } else {
      chunks_[i].SetMemory(memory);
    }
  }
  return absl::OkStatus();
}

absl::Status TensorCodec::Place(std::span<TensorCodec* const> tensors) {
  std::map<DeviceLane*, std::vector<TensorCodec*>> by_lane;
  for (TensorCodec* const tensor : tensors) {
    if (tensor->lane() == nullptr || tensor->chunks_.empty()) continue;
    by_lane[tensor->lane()].push_back(tensor);
  }
  for (const auto& [lane, own] : by_lane) {
    RETURN_IF_ERROR(PlaceOn(*lane, own));
  }
  return absl::OkStatus();
}

absl::Status TensorCodec::PlaceOn(DeviceLane& lane,
                                  std::span<TensorCodec* const> tensors) {
  RETURN_IF_ERROR(lane.batch().Prepare());
  // Twice: without memory it finds out how much there must be.
  const auto lay_out = [&](const std::shared_ptr<Mirror>& mirror,
                           size_t dense_at) {
    size_t codes_at = 0;
    for (TensorCodec* const tensor : tensors) {
      tensor->LayOut(mirror, codes_at, dense_at);
    }
    return std::pair(codes_at, dense_at);
  };
  const auto lay_out_answers = [&](const std::shared_ptr<Mirror>& mirror) {
    size_t at = 0;
    for (TensorCodec* const tensor : tensors) {
      tensor->LayOutAnswers(mirror, at);
    }
    return at;
  };
  const CardAccess& cards = tensors[0]->config_->cards;
  ASSIGN_OR_RETURN(
      const std::shared_ptr<Mirror> answers,
      Mirror::Make(lane, lay_out_answers(nullptr), cards.receives));
  lay_out_answers(answers);
  const auto [codes_bytes, dense_bytes] = lay_out(nullptr, 0);
  ASSIGN_OR_RETURN(const std::shared_ptr<Mirror> mirror,
                   Mirror::Make(lane, codes_bytes + dense_bytes, cards.sends));
  lay_out(mirror, codes_bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<TensorCodec::Mirror>> TensorCodec::Mirror::Make(
    DeviceLane& lane, size_t bytes, bool is_for_cards) {
  auto mirror = std::make_shared<Mirror>();
  ASSIGN_OR_RETURN(mirror->device, MemoryOf(&lane, bytes, is_for_cards));
  mirror->host = lane.MakeHostMemory(bytes);
  return mirror;
}

void TensorCodec::LayOutAnswers(const std::shared_ptr<Mirror>& mirror,
                                size_t& at) {
  answers_ = mirror;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const size_t size = chunks_[i].max_reply_bytes();
    if (mirror != nullptr && size > 0) {
      memory_[i].answer = Slice(mirror->device, at, size);
      memory_[i].host_answer = Slice(mirror->host, at, size);
    }
    at = Aligned(at + size);
  }
}

void TensorCodec::LayOut(const std::shared_ptr<Mirror>& mirror,
                         size_t& codes_at, size_t& dense_at) {
  const auto take = [&](size_t& at, size_t size, Bytes* device, Bytes* host) {
    if (mirror != nullptr) {
      *device = Slice(mirror->device, at, size);
      *host = Slice(mirror->host, at, size);
    }
    at += size;
  };
  if (uses_scale()) {
    // In front of what is aligned.
    power_at_ = codes_at + kMirrorAlignment - sizeof(double);
    codes_at += kMirrorAlignment;
  }
  for (ChunkMemory& memory : memory_) {
    take(codes_at, sizeof(EncodeResult), &memory.result, &memory.host_result);
  }
  for (size_t i = 0; i < chunks_.size(); ++i) {
    ChunkMemory& memory = memory_[i];
    codes_at = Aligned(codes_at);
    take(codes_at, chunks_[i].codings().MaxFrameBytes(), &memory.frame,
         &memory.host_frame);
    if (chunks_[i].value_bytes() > kMostGathered) continue;
    take(dense_at, chunks_[i].value_bytes(), &memory.dense, &memory.host_dense);
    dense_at = Aligned(dense_at);
  }
  codes_at = Aligned(codes_at);
  if (mirror == nullptr) return;
  mirror_ = mirror;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    memory_[i].block = mirror.get();
    chunks_[i].SetMemory(memory_[i]);
  }
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
  if (SavedChunk::HasMomentum(chunks_[0])) {
    grad = momentum_.view();
  } else if (spec_.dtype != Dtype::kFloat32) {
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
  std::optional<HalfFormat> half;
  if (SavedChunk::HasMomentum(chunks_[0])) {
    grad = momentum_.view();
  } else if (kernels.batch.sampled_power != nullptr) {
    half = HalfFormatOf(spec_.dtype);
  } else if (spec_.dtype != Dtype::kFloat32) {
    const size_t bytes = 4 * spec_.num_elems;
    floats = lane()->device_buffers().Get(bytes);
    if (floats->size() < bytes) return NoDeviceMemory(*lane(), bytes);
    lane()->batch().Keep(floats);
    Widen(kernels, Reach(grad), spec_.dtype, spec_.num_elems,
          Floats(Reach(floats->view())), lane()->stream());
    grad = floats->view();
  }
  const Bytes power = Slice(mirror_->device, power_at_, sizeof(double));
  lane()->batch().Power(
      {.grad = Reach(grad),
       .residual = Reach(ConstBytes(WishedResidual(coding))),
       .mean_square = reinterpret_cast<double*>(Reach(power).data),
       .half = half});
  return absl::OkStatus();
}

void TensorCodec::CopyWish() {
  if (!ScaledCoding(begun_wish_).uses_scale) return;
  lane()->Down(Slice(mirror_->host, power_at_, sizeof(double)),
               Slice(mirror_->device, power_at_, sizeof(double)),
               mirror_.get());
}

ChunkWish TensorCodec::EndWish() const {
  const Coding& coding = ScaledCoding(begun_wish_);
  if (!coding.uses_scale) return {.mode = begun_wish_};
  const auto* const mean_square =
      reinterpret_cast<const double*>(mirror_->host.data() + power_at_);
  return WishOf(begun_wish_, *mean_square, coding);
}

absl::StatusOr<std::string> TensorCodec::Save() const {
  StateWriter writer;
  for (const ChunkCodec& chunk : chunks_) {
    RETURN_IF_ERROR(SavedChunk::Save(chunk, writer));
  }
  return writer.Take();
}

absl::Status TensorCodec::Load(absl::string_view text) {
  StateReader reader(text);
  for (ChunkCodec& chunk : chunks_) {
    RETURN_IF_ERROR(SavedChunk::Load(chunk, reader));
  }
  return reader.Finish();
}

TensorReport TensorCodec::Report(uint64_t rounds) const {
  TensorReport report;
  report.name = spec_.name;
  report.num_elems = spec_.num_elems;
  report.codec = codec_;
  report.reply = ToString(ReplyFormat::kDense);
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
    report.reply = ToString(coding.format);
    report.push_bytes += coding.codec->max_encoded_bytes();
    report.gave_up |= gave_up;
    report.is_dense |= codings.has_dense() && IsDense(codings.At(rounds).mode);
    sums.Add(chunk.guard().sums());
  }
  Fill(sums, report);
  return report;
}

}  // namespace telegrad
