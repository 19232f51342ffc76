#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kernels/dispatch.h"
#include "kvstore/dist/worker.h"

namespace telegrad {
namespace {

const float* Floats(ConstBytes bytes) {
  return reinterpret_cast<const float*>(bytes.data);
}

}  // namespace

absl::StatusOr<ConstBytes> DistWorker::EncodePayload(WorkerTensor& tensor,
                                                     WorkerChunk& chunk) {
  const WorkerOp& op = *chunk.op;
  const ConstBytes grad(op.grad.data + 4 * chunk.plan.begin,
                        4 * chunk.plan.num_elems);
  const ChunkStage stage = chunk.stages.At(op.step);
  const ChunkCoding& coding = chunk.stages.Of(stage);
  const PreparedCodec& codec = *coding.codec;
  if (codec.traits().lossless) return DensePayload(tensor, chunk, grad);
  if (stage != chunk.encoded_in) BeginCodec(coding, stage, chunk);
  const bool propagates =
      config_.compression.nonfinite == NonFinitePolicy::kPropagate;
  const float threshold = codec.traits().needs_threshold
                              ? coding.Threshold(chunk.scales[op.step & 1])
                              : 0;
  const EncodeParams params{
      .threshold = threshold,
      .nonfinite = propagates ? NonFinite::kPropagate : NonFinite::kZero,
      .stream = StreamOf(chunk.plan),
      .step = op.step,
      .source = static_cast<uint64_t>(rank_)};
  const float* residual =
      chunk.state.residual.size > 0 ? Floats(chunk.state.residual) : nullptr;
  // Neighbours have different steps, so that none looks at all chunks.
  const uint64_t place = uint64_t{chunk.plan.key} + chunk.plan.index;
  chunk.guard.Before(op.step + place, Floats(grad), residual);
  EncodeResult result;
  RETURN_IF_ERROR(
      codec.Encode(grad, chunk.state, params, chunk.frame.view(), &result, {}));
  chunk.has_residual |= residual != nullptr;
  const ConstBytes payload(chunk.frame.data(), result.encoded_bytes);
  RETURN_IF_ERROR(AskGuard(codec, grad, payload, threshold, chunk));
  if (result.stats.num_nonfinite > 0) {
    RETURN_IF_ERROR(HandleNonFinite(tensor, chunk, result.stats));
  }
  return payload;
}

// Where the residual does not tell what was sent, the codes are decoded.
absl::Status DistWorker::AskGuard(const PreparedCodec& codec, ConstBytes grad,
                                  ConstBytes payload, float threshold,
                                  WorkerChunk& chunk) {
  std::shared_ptr<Buffer> decoded;
  if (chunk.guard.needs_decoded()) {
    decoded = decoded_.Get(largest_chunk_bytes_);
    RETURN_IF_ERROR(codec.Decode(payload, threshold,
                                 Bytes(decoded->data(), grad.size), {}));
  }
  chunk.guard.After(Floats(grad), Floats(chunk.state.residual), threshold,
                    decoded == nullptr ? nullptr : decoded->as<float>());
  if (chunk.guard.gave_up() && config_.compression.has_guard) {
    chunk.vetoed.set(static_cast<size_t>(chunk.encoded_in));
  }
  return absl::OkStatus();
}

// Nothing of another codec's state is of use but the residual, which lies in
// the tensor and counts as before.
void DistWorker::BeginCodec(const ChunkCoding& coding, ChunkStage stage,
                            WorkerChunk& chunk) {
  chunk.encoded_in = stage;
  chunk.state = {};
  if (coding.codec->traits().needs_residual) {
    chunk.state.residual = chunk.residual;
  }
  chunk.guard = Guard(chunk.plan.num_elems, coding.codec->traits(),
                      coding.setting.options);
}

// The gradient from where it lies, unless something must be changed: elements
// that are not finite count as 0, and what a codec left behind goes along.
absl::StatusOr<ConstBytes> DistWorker::DensePayload(WorkerTensor& tensor,
                                                    WorkerChunk& chunk,
                                                    ConstBytes grad) {
  EncodeStats stats;
  if (config_.compression.nonfinite != NonFinitePolicy::kPropagate) {
    kernels::CpuKernels().count_nonfinite(Floats(grad), chunk.plan.num_elems,
                                          &stats, {});
  }
  if (stats.num_nonfinite > 0) {
    RETURN_IF_ERROR(HandleNonFinite(tensor, chunk, stats));
  }
  const bool has_residual = std::exchange(chunk.has_residual, false);
  if (stats.num_nonfinite == 0 && !has_residual) return grad;
  chunk.dense = Buffer(grad.size);
  float* to = chunk.dense.as<float>();
  const float* from = Floats(grad);
  for (size_t i = 0; i < chunk.plan.num_elems; ++i) {
    to[i] = stats.num_nonfinite == 0 || std::isfinite(from[i]) ? from[i] : 0.0f;
  }
  if (has_residual) {
    auto* residual = reinterpret_cast<float*>(chunk.residual.data);
    for (size_t i = 0; i < chunk.plan.num_elems; ++i) {
      to[i] += residual[i];
      residual[i] = 0;
    }
  }
  return ConstBytes(chunk.dense.view());
}

absl::Status DistWorker::HandleNonFinite(WorkerTensor& tensor,
                                         WorkerChunk& chunk,
                                         const EncodeStats& stats) {
  tensor.num_nonfinite += static_cast<int64_t>(stats.num_nonfinite);
  if (config_.compression.nonfinite == NonFinitePolicy::kZero) {
    num_nonfinite_ += static_cast<int64_t>(stats.num_nonfinite);
    return absl::OkStatus();
  }
  // The whole tensor is looked at again, for a report that does not depend on
  // which chunk was first.
  EncodeStats whole;
  kernels::CpuKernels().count_nonfinite(
      reinterpret_cast<const float*>(chunk.op->grad.data),
      tensor.spec.num_elems, &whole, {});
  if (whole.num_nonfinite == 0) {  // gradient plus residual overflowed
    whole = stats;
    whole.first_nonfinite += chunk.plan.begin;
  }
  absl::Status status = WithExitCode(
      ExitCode::kNumericFault,
      absl::DataLossError(absl::StrFormat(
          "worker/%d: gradient of %s holds %d NaN or infinite elements, the "
          "first at index %d, step %d",
          rank_, tensor.spec.name, whole.num_nonfinite, whole.first_nonfinite,
          chunk.op->step)));
  status.SetPayload(
      "telegrad/details",
      absl::Cord(absl::StrFormat(
          R"({"worker":%d,"tensor":"%s","index":%d,"count":%d})", rank_,
          tensor.spec.name, whole.first_nonfinite, whole.num_nonfinite)));
  return status;
}

absl::Status DistWorker::DecodePayload(WorkerTensor& tensor,
                                       WorkerChunk& chunk) {
  const WorkerOp& op = *chunk.op;
  const ConstBytes header_bytes(chunk.reply_header.data(), kFrameHeaderBytes);
  ASSIGN_OR_RETURN(const FrameHeader header, ParseFrameHeader(header_bytes));
  if (header.type == FrameType::kAck) {
    RETURN_IF_ERROR(CheckFramePayload(header_bytes, {}));
  } else {
    RETURN_IF_ERROR(DecodeReply(chunk, header, header_bytes));
  }
  // What was agreed in this round is in force two rounds later.
  if (op.kind == OpKind::kPush || op.kind == OpKind::kPushPull) {
    if (tensor.uses_scale) chunk.scales[op.step & 1] = header.proposed_scale;
    chunk.stages.Agree(op.step, header.proposed_stage);
  }
  return absl::OkStatus();
}

absl::Status DistWorker::DecodeReply(WorkerChunk& chunk,
                                     const FrameHeader& header,
                                     ConstBytes header_bytes) {
  const Bytes out(chunk.op->out.data + 4 * chunk.plan.begin,
                  4 * chunk.plan.num_elems);
  const auto format = static_cast<ReplyFormat>(header.reply_mode);
  if (format == ReplyFormat::kDense) {
    return CheckFramePayload(header_bytes, out);
  }
  const ConstBytes payload(chunk.reply.data(), chunk.reply_bytes);
  RETURN_IF_ERROR(CheckFramePayload(header_bytes, payload));
  const ChunkStage stage = ReplyStage(chunk, header);
  const ChunkCoding& coding = chunk.stages.Of(stage);
  const PreparedCodec& codec = *coding.codec;
  const float threshold = coding.Threshold(header.scale);
  const auto contributors = static_cast<uint32_t>(num_workers_);
  if (format == ReplyFormat::kSums) {
    if (stage != chunk.encoded_in) {
      return absl::InvalidArgumentError(absl::StrCat(
          "key ", header.key, " chunk ", header.chunk, ": sums of stage ",
          static_cast<int>(stage), ", but stage ",
          static_cast<int>(chunk.encoded_in), " was pushed last"));
    }
    RETURN_IF_ERROR(codec.ValidateSum(payload, contributors));
    RETURN_IF_ERROR(codec.DecodeSum(payload, contributors, threshold, out, {}));
    return codec.Learn(payload, contributors, chunk.state, {});
  }
  return codec.Decode(payload, codec.ReencodeThreshold(threshold, contributors),
                      out, {});
}

}  // namespace telegrad
