#include "kvstore/ps/worker/worker_tensor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/engine/codec/checks.h"
#include "kvstore/engine/rows/rows.h"

namespace telegrad {
namespace {

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

const char* Name(OpKind kind) {
  switch (kind) {
    case OpKind::kGiveValue:
    case OpKind::kTakeValue:
      return "broadcast";
    case OpKind::kPull:
      return "pull";
    case OpKind::kPush:
      return "push";
    case OpKind::kPushPull:
      return "push-pull";
  }
  return "operation";
}

absl::Status WorkerTurns::Begin(const TensorSpec& spec,
                                std::shared_ptr<WorkerOp> op,
                                const WorkerFailure& failure) {
  MutexLock lock(&mutex_);
  if (failure.is_set()) return failure.status();
  RETURN_IF_ERROR(CheckTurn(spec, op->kind == OpKind::kPull && !has_value_,
                            active_ != nullptr));
  op->step = IsBroadcast(op->kind) ? broadcasts_ : rounds_;
  active_ = std::move(op);
  return absl::OkStatus();
}

std::shared_ptr<WorkerOp> WorkerTurns::End(const WorkerOp& op) {
  MutexLock lock(&mutex_);
  if (IsBroadcast(op.kind)) {
    ++broadcasts_;
  } else if (op.kind != OpKind::kPull) {
    ++rounds_;
  }
  has_value_ = true;
  return active_.get() == &op ? std::move(active_) : nullptr;
}

absl::Status WorkerTurns::CheckIdle(absl::string_view what,
                                    const TensorSpec& spec) const {
  if (active() == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(what, " within a round of tensor ", spec.name));
}

// Whatever is sent of a chunk goes in one frame.
absl::Status CheckFrames(const TensorSpec& spec, const ChunkCodec& codec) {
  const size_t of_rows =
      spec.row_elems == 0
          ? 0
          : MaxRowBytes(codec.chunk(), spec.row_elems, /*has_values=*/true);
  const size_t most = std::max(
      {codec.codings().MaxFrameBytes(), codec.max_reply_bytes(), of_rows});
  if (most <= kMaxPayloadBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor ", spec.name, ": chunks of ", codec.chunk().num_elems,
      " elements, of which up to ", most, " bytes are sent; at most ",
      kMaxPayloadBytes, ": take smaller chunks"));
}

absl::StatusOr<std::unique_ptr<WorkerTensor>> MakeWorkerTensor(
    const TensorSpec& spec, const TensorLayout& layout,
    const EngineConfig& config) {
  auto tensor = std::make_unique<WorkerTensor>();
  ASSIGN_OR_RETURN(tensor->codec, TensorCodec::Make(spec, layout, config));
  for (ChunkCodec& codec : tensor->codec->chunks()) {
    RETURN_IF_ERROR(CheckFrames(spec, codec));
    auto chunk = std::make_unique<WorkerChunk>();
    chunk->tensor = tensor.get();
    chunk->codec = &codec;
    if (config.lane == nullptr) chunk->reply = Buffer(codec.max_reply_bytes());
    tensor->chunks.push_back(std::move(chunk));
  }
  return tensor;
}

FlightRecorder::Op FlightOpOf(const WorkerTensor& tensor, const WorkerOp& op,
                              bool is_async) {
  using Among = FlightRecorder::Among;
  const bool is_alone = op.kind == OpKind::kPull || is_async;
  const Among among = IsBroadcast(op.kind) ? Among::kBroadcast
                      : is_alone           ? Among::kAlone
                                           : Among::kRound;
  return {.what = Name(op.kind),
          .among = among,
          .dtype = tensor.spec().dtype,
          .key = op.key,
          .step = op.step,
          .num_elems = tensor.spec().num_elems};
}

std::string DescribeOp(const WorkerTensor& tensor, const WorkerOp& op) {
  std::string text =
      absl::StrCat(Name(op.kind), " of tensor ", tensor.spec().name, ", step ",
                   op.step, ", did not end in time");
  for (const auto& chunk : tensor.chunks) {
    const ChunkPhase phase = chunk->phase.load();
    if (phase == ChunkPhase::kIdle) continue;
    return absl::StrCat(text, ": chunk ", chunk->plan().index, " ",
                        PhaseName(phase), " server/", chunk->plan().server);
  }
  return text;
}

}  // namespace telegrad
