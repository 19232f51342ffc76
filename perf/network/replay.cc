#include "perf/network/replay.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "kernels/dispatch.h"

namespace telegrad::perf {
namespace {

const float* Floats(ConstBytes bytes) {
  return reinterpret_cast<const float*>(bytes.data);
}

}  // namespace

absl::StatusOr<Replay> Replay::Make(const TensorLayout& layout,
                                    const CompressionConfig& compression,
                                    int num_workers) {
  Replay replay;
  replay.has_guard_ = compression.has_guard;
  size_t num_elems = 0;
  for (const Chunk& plan : layout.chunks) num_elems += plan.num_elems;
  const bool has_residual = layout.codecs[0].codec->traits().needs_residual;
  for (int worker = 0; worker < num_workers; ++worker) {
    replay.residuals_.emplace_back(has_residual ? 4 * num_elems : 0);
  }
  for (const Chunk& plan : layout.chunks) {
    RETURN_IF_ERROR(replay.AddChunk(plan, layout, compression));
  }
  return replay;
}

absl::Status Replay::AddChunk(const Chunk& plan, const TensorLayout& layout,
                              const CompressionConfig& compression) {
  ChunkReplay chunk{.plan = plan};
  ASSIGN_OR_RETURN(chunk.stages,
                   Stages::Make(layout, plan.num_elems, compression, {}));
  const ChunkCoding& coding = chunk.stages.Of(ChunkStage::kCodec);
  for (Buffer& residual : residuals_) {
    Encoder& encoder = chunk.encoders.emplace_back();
    encoder.payload =
        Buffer(std::max(coding.codec->max_encoded_bytes(), 4 * plan.num_elems));
    encoder.guard =
        Guard(plan.num_elems, coding.codec->traits(), coding.setting.options);
    if (residual.size() == 0) continue;
    encoder.residual =
        Bytes(residual.data() + 4 * plan.begin, 4 * plan.num_elems);
    encoder.state.residual = encoder.residual;
  }
  chunks_.push_back(std::move(chunk));
  return absl::OkStatus();
}

// The largest that a worker has, from a sample of its whole tensor.
int16_t Replay::ScaleWish(std::span<const ConstBytes> gradients) const {
  const ChunkCoding& coding = chunks_[0].stages.Of(ChunkStage::kCodec);
  const CodecTraits& traits = coding.codec->traits();
  int16_t wish = kNoScale;
  for (size_t worker = 0; worker < gradients.size(); ++worker) {
    const Buffer& residual = residuals_[worker];
    const bool adds_residual = traits.auto_of_residual && residual.size() > 0;
    double mean_square = 0;
    kernels::CpuKernels().sampled_power(
        Floats(gradients[worker]),
        adds_residual ? residual.as<float>() : nullptr,
        gradients[worker].size / 4, &mean_square, {});
    wish = std::max(
        wish, ProposeScale(mean_square,
                           ThresholdPerRms(coding.setting.threshold,
                                           traits.auto_threshold_per_rms)));
  }
  return wish;
}

// What is wished for in a round is in force two rounds later, the first wish
// from the start.
absl::Status Replay::Step(std::span<const ConstBytes> gradients, Bytes sums) {
  const bool uses_scale = chunks_[0].stages.uses_scale();
  const int16_t wish = uses_scale ? ScaleWish(gradients) : kNoScale;
  if (uses_scale && step_ == 0) {
    scales_.fill(wish == kNoScale ? kDefaultScale : wish);
  }
  for (ChunkReplay& chunk : chunks_) {
    RETURN_IF_ERROR(StepChunk(gradients, sums, chunk));
  }
  if (wish != kNoScale) scales_[step_ & 1] = wish;
  ++step_;
  return absl::OkStatus();
}

absl::Status Replay::StepChunk(std::span<const ConstBytes> gradients,
                               Bytes sums, ChunkReplay& chunk) {
  const size_t begin = 4 * chunk.plan.begin;
  const size_t bytes = 4 * chunk.plan.num_elems;
  std::vector<ConstBytes> payloads;
  bool goes_on = true;
  for (size_t worker = 0; worker < gradients.size(); ++worker) {
    ASSIGN_OR_RETURN(
        payloads.emplace_back(),
        Encode({gradients[worker].data + begin, bytes}, worker, chunk));
    goes_on &= !chunk.encoders[worker].has_given_up;
  }
  RETURN_IF_ERROR(Answer(payloads, Bytes(sums.data + begin, bytes), chunk));
  chunk.stages.Agree(
      step_, chunk.stages.Agreement(
                 step_, goes_on ? ChunkStage::kCodec : ChunkStage::kDense));
  return absl::OkStatus();
}

absl::StatusOr<ConstBytes> Replay::Encode(ConstBytes grad, uint64_t worker,
                                          ChunkReplay& chunk) {
  Encoder& encoder = chunk.encoders[worker];
  const ChunkCoding& coding = chunk.stages.Of(chunk.stages.At(step_));
  if (coding.codec->traits().lossless) return EncodeDense(grad, encoder);
  const float threshold =
      coding.codec->traits().needs_threshold ? Threshold(coding) : 0;
  const EncodeParams params{.threshold = threshold,
                            .stream = StreamOf(chunk.plan),
                            .step = step_,
                            .source = worker};
  encoder.guard.Before(step_ + chunk.plan.key + chunk.plan.index, Floats(grad),
                       Floats(encoder.residual));
  EncodeResult result;
  RETURN_IF_ERROR(coding.codec->Encode(grad, encoder.state, params,
                                       encoder.payload.view(), &result, {}));
  encoder.has_residual = encoder.residual.size > 0;
  const ConstBytes payload(encoder.payload.data(), result.encoded_bytes);
  RETURN_IF_ERROR(AskGuard(*coding.codec, threshold, grad, payload, encoder));
  return payload;
}

absl::Status Replay::AskGuard(const PreparedCodec& codec, float threshold,
                              ConstBytes grad, ConstBytes payload,
                              Encoder& encoder) const {
  Buffer decoded;
  if (encoder.guard.needs_decoded()) {
    decoded = Buffer(grad.size);
    RETURN_IF_ERROR(codec.Decode(payload, threshold, decoded.view(), {}));
  }
  encoder.guard.After(Floats(grad), Floats(encoder.residual), threshold,
                      decoded.as<float>());
  encoder.has_given_up = has_guard_ && encoder.guard.gave_up();
  return absl::OkStatus();
}

// What the codec has left behind goes along.
ConstBytes Replay::EncodeDense(ConstBytes grad, Encoder& encoder) {
  if (!std::exchange(encoder.has_residual, false)) return grad;
  auto* const residual = reinterpret_cast<float*>(encoder.residual.data);
  auto* const to = encoder.payload.as<float>();
  for (size_t i = 0; i < grad.size / 4; ++i) {
    to[i] = Floats(grad)[i] + residual[i];
    residual[i] = 0;
  }
  return {encoder.payload.data(), grad.size};
}

absl::Status Replay::Answer(const std::vector<ConstBytes>& payloads, Bytes out,
                            ChunkReplay& chunk) {
  const ChunkCoding& coding = chunk.stages.Of(chunk.stages.At(step_));
  const PreparedCodec& codec = *coding.codec;
  if (codec.traits().lossless) {
    RETURN_IF_ERROR(codec.SumCodes(payloads, out, {}));
    const ChunkCoding& last = chunk.stages.Of(ChunkStage::kCodec);
    return last.codec->ReleaseResidual(
        Threshold(last), last.uses_scale ? scales_[step_ & 1] : int16_t{0},
        chunk.server, out, {});
  }
  const auto num_workers = static_cast<uint32_t>(payloads.size());
  switch (coding.format) {
    case ReplyFormat::kDense:
      return codec.SumDecode(payloads, Threshold(coding), out, {});
    case ReplyFormat::kCodes:
      return AnswerCodes(payloads, out, chunk);
    case ReplyFormat::kSums:
      break;
  }
  Buffer sum(codec.sum_bytes(num_workers));
  RETURN_IF_ERROR(codec.SumCodes(payloads, sum.view(), {}));
  for (Encoder& encoder : chunk.encoders) {
    RETURN_IF_ERROR(codec.Learn(sum.view(), num_workers, encoder.state, {}));
  }
  return codec.DecodeSum(sum.view(), num_workers, Threshold(coding), out, {});
}

absl::Status Replay::AnswerCodes(const std::vector<ConstBytes>& payloads,
                                 Bytes out, ChunkReplay& chunk) {
  const ChunkCoding& coding = chunk.stages.Of(ChunkStage::kCodec);
  const EncodeParams params{.threshold = Threshold(coding),
                            .stream = StreamOf(chunk.plan),
                            .step = step_,
                            .source = kServerSource};
  Buffer reply(coding.codec->max_encoded_bytes());
  size_t bytes = 0;
  RETURN_IF_ERROR(coding.codec->Reencode(
      payloads, params, coding.uses_scale ? scales_[step_ & 1] : int16_t{0},
      chunk.server, reply.view(), &bytes, {}));
  return coding.codec->Decode(
      {reply.data(), bytes},
      coding.codec->ReencodeThreshold(Threshold(coding),
                                      static_cast<uint32_t>(payloads.size())),
      out, {});
}

}  // namespace telegrad::perf
