#include "kvstore/dist/worker_tensor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

const char* KindName(OpKind kind) {
  switch (kind) {
    case OpKind::kInit:
      return "init";
    case OpKind::kPull:
      return "pull";
    case OpKind::kPush:
      return "push";
    case OpKind::kPushPull:
      return "push-pull";
  }
  return "operation";
}

const char* PhaseName(ChunkPhase phase) {
  switch (phase) {
    case ChunkPhase::kIdle:
      return "is done";
    case ChunkPhase::kEncoding:
      return "is being encoded for";
    case ChunkPhase::kProposing:
      return "waits for the scale from";
    case ChunkPhase::kSent:
      return "waits for an answer of";
    case ChunkPhase::kReceiving:
      return "is being received from";
    case ChunkPhase::kDecoding:
      return "is being decoded from";
  }
  return "?";
}

// As large as the codecs need at most.
void MakeBuffers(int num_workers, WorkerChunk& chunk) {
  size_t frame_bytes = 0;
  size_t reply_bytes = 0;
  const auto make_room = [&](const PreparedCodec& codec, ReplyFormat format) {
    // A lossless codec sends the gradient from where it lies.
    if (!codec.traits().lossless) {
      frame_bytes = std::max(frame_bytes, codec.max_encoded_bytes());
    }
    if (format != ReplyFormat::kDense) {
      reply_bytes =
          std::max(reply_bytes, ReplyBytes(codec, format, num_workers));
    }
  };
  for (const ChunkCoding& coding : chunk.stages.codings()) {
    make_room(*coding.codec, coding.format);
    if (coding.other != nullptr) make_room(*coding.other, coding.format);
  }
  if (frame_bytes > 0) chunk.frame = Buffer(frame_bytes);
  if (reply_bytes > 0) chunk.reply = Buffer(reply_bytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerTensor>> MakeWorkerTensor(
    const TensorSpec& spec, const TensorLayout& plan,
    const CompressionConfig& compression, const OptimizerConfig& optimizer,
    int num_workers) {
  auto tensor = std::make_unique<WorkerTensor>();
  tensor->spec = spec;
  tensor->setting = plan.setting;
  tensor->has_rule = plan.has_rule;
  tensor->reason = plan.reason;
  if (compression.starts_dense) tensor->wish = ChunkStage::kPaused;
  for (const CodecSetting& each : plan.codecs) {
    if (each.codec->traits().needs_residual && tensor->residual.size() == 0) {
      tensor->residual = Buffer(4 * spec.num_elems);
    }
  }
  for (const Chunk& chunk_plan : plan.chunks) {
    auto chunk = std::make_unique<WorkerChunk>();
    chunk->plan = chunk_plan;
    ASSIGN_OR_RETURN(chunk->stages, Stages::Make(plan, chunk_plan.num_elems,
                                                 compression, optimizer));
    if (tensor->residual.size() > 0) {
      chunk->residual = Bytes(tensor->residual.data() + 4 * chunk_plan.begin,
                              4 * chunk_plan.num_elems);
    }
    tensor->uses_scale = chunk->stages.uses_scale();
    MakeBuffers(num_workers, *chunk);
    tensor->chunks.push_back(std::move(chunk));
  }
  return tensor;
}

TensorReport ReportOf(const WorkerTensor& tensor) {
  static constexpr const char* kFormats[] = {"dense", "sum", "codes"};
  TensorReport report;
  report.name = tensor.spec.name;
  report.num_elems = tensor.spec.num_elems;
  report.setting = tensor.setting;
  report.has_rule = tensor.has_rule;
  report.reason = tensor.reason;
  report.num_nonfinite = tensor.num_nonfinite;
  Guard::Sums sums;
  for (const auto& chunk : tensor.chunks) {
    const Stages& stages = chunk->stages;
    const bool gave_up = stages.has_dense() &&
                         stages.AgreedAt(tensor.rounds) == ChunkStage::kDense;
    // The codec that is in force or may be, or that harmed: the caller's wish,
    // else its own.
    const ChunkStage wish = gave_up ? chunk->encoded_in : tensor.wish.load();
    const ChunkCoding& coding =
        stages.Of(IsDenseStage(wish) ? ChunkStage::kCodec : wish);
    report.codec = coding.codec->traits().name;
    for (const ChunkCoding& each : stages.codings()) {
      if (!each.setting.is_packing_open) continue;
      report.packing = each.other != nullptr        ? "open"
                       : each.codec->packing() == 1 ? "radix"
                                                    : "plain";
    }
    report.reply = kFormats[static_cast<size_t>(coding.format)];
    report.push_bytes += coding.codec->max_encoded_bytes();
    if (stages.has_dense()) {
      report.is_dense |= IsDenseStage(stages.At(tensor.rounds));
      report.gave_up |= gave_up;
    }
    sums.Add(chunk->guard.sums());
  }
  Fill(sums, report);
  return report;
}

std::string DescribeOp(const WorkerTensor& tensor, const WorkerOp& op) {
  std::string text =
      absl::StrCat(KindName(op.kind), " of tensor ", tensor.spec.name,
                   ", step ", op.step, ", did not end in time");
  for (const auto& chunk : tensor.chunks) {
    const ChunkPhase phase = chunk->phase.load();
    if (phase == ChunkPhase::kIdle) continue;
    return absl::StrCat(text, ": chunk ", chunk->plan.index, " ",
                        PhaseName(phase), " server/", chunk->plan.server);
  }
  return text;
}

}  // namespace telegrad
