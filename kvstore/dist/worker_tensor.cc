#include "kvstore/dist/worker_tensor.h"

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

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerTensor>> MakeWorkerTensor(
    const TensorSpec& spec, const TensorLayout& plan,
    const CompressionConfig& compression, const OptimizerConfig& optimizer,
    int num_workers) {
  auto tensor = std::make_unique<WorkerTensor>();
  const CodecTraits& traits = plan.codec->traits();
  tensor->spec = spec;
  tensor->codec = plan.codec;
  tensor->reason = plan.reason;
  tensor->is_compressed = !compression.starts_dense;
  tensor->threshold = plan.threshold;
  tensor->uses_scale = UsesScale(traits, plan.threshold);
  tensor->fixed_threshold =
      FixedThreshold(plan.threshold, compression.batch_size);
  if (traits.needs_residual) tensor->residual = Buffer(4 * spec.num_elems);
  for (const Chunk& chunk_plan : plan.chunks) {
    auto chunk = std::make_unique<WorkerChunk>();
    chunk->plan = chunk_plan;
    ASSIGN_OR_RETURN(chunk->stages, Stages::Make(plan, chunk_plan.num_elems,
                                                 compression, optimizer));
    const ChunkCoding& own = chunk->stages.own();
    chunk->guard = Guard(chunk_plan.num_elems, plan.options);
    if (traits.needs_residual) {
      chunk->state.residual =
          Bytes(tensor->residual.data() + 4 * chunk_plan.begin,
                4 * chunk_plan.num_elems);
    }
    // A lossless codec sends the gradient from where it lies.
    if (!traits.lossless) {
      chunk->frame = Buffer(own.codec->max_encoded_bytes());
    }
    if (own.format != ReplyFormat::kDense) {
      chunk->reply = Buffer(ReplyBytes(*own.codec, own.format, num_workers));
    }
    tensor->chunks.push_back(std::move(chunk));
  }
  return tensor;
}

TensorReport ReportOf(const WorkerTensor& tensor) {
  static constexpr const char* kFormats[] = {"dense", "sum", "codes"};
  TensorReport report;
  report.name = tensor.spec.name;
  report.num_elems = tensor.spec.num_elems;
  report.codec = tensor.codec->traits().name;
  report.reason = tensor.reason;
  report.num_nonfinite = tensor.num_nonfinite;
  Guard::Sums sums;
  for (const auto& chunk : tensor.chunks) {
    const ChunkCoding& own = chunk->stages.own();
    report.reply = kFormats[static_cast<size_t>(own.format)];
    report.push_bytes += own.codec->max_encoded_bytes();
    const Stages& stages = chunk->stages;
    if (stages.has_dense()) {
      report.is_dense |= stages.At(tensor.rounds) != ChunkStage::kCodec;
      report.gave_up |= stages.AgreedAt(tensor.rounds) == ChunkStage::kDense;
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
