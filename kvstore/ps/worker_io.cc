#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/engine/floats.h"
#include "kvstore/ps/worker.h"
#include "kvstore/ps/worker_rows.h"

namespace telegrad {
namespace {

bool IsAnswer(FrameType type) {
  return type == FrameType::kReply || type == FrameType::kValue ||
         type == FrameType::kAck || type == FrameType::kAgree;
}

FrameType AnswerTo(OpKind kind) {
  switch (kind) {
    case OpKind::kPull:
    case OpKind::kTakeValue:
      return FrameType::kValue;
    case OpKind::kPushPull:
      return FrameType::kReply;
    case OpKind::kGiveValue:
    case OpKind::kPush:
      return FrameType::kAck;
  }
  return FrameType::kAck;
}

absl::Status CheckStaleness(int64_t ahead, int64_t most) {
  if (most == kAnyStaleness || ahead <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "answer ", ahead, " steps ahead of the slowest; at most ", most));
}

}  // namespace

absl::StatusOr<WorkerChunk*> DistWorker::FindChunk(int server,
                                                   const FrameHeader& header) {
  if (!IsAnswer(header.type) || header.epoch != group_.membership().epoch ||
      header.source != server || header.destination != rank_ ||
      header.key >= tensors_.size() ||
      header.chunk >= tensors_[header.key].chunks.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame type ", static_cast<int>(header.type), " key ",
                     header.key, " chunk ", header.chunk, " epoch ",
                     header.epoch, " from ", header.source, " to ",
                     header.destination, " is not for worker/", rank_));
  }
  WorkerChunk* chunk = tensors_[header.key].chunks[header.chunk].get();
  const ChunkPhase expected = header.type == FrameType::kAgree
                                  ? ChunkPhase::kProposing
                                  : ChunkPhase::kSent;
  if (chunk->phase.load() != expected || chunk->plan().server != server ||
      header.step != chunk->op->step ||
      (expected == ChunkPhase::kSent &&
       header.type != AnswerTo(chunk->op->kind))) {
    return absl::InvalidArgumentError(
        absl::StrCat("key ", header.key, " chunk ", header.chunk, " step ",
                     header.step, ": nothing of the kind was asked for"));
  }
  return chunk;
}

absl::StatusOr<Bytes> DistWorker::ReplyTarget(WorkerChunk& chunk,
                                              const FrameHeader& header) {
  const WorkerOp& op = *chunk.op;
  ReplyRecord reply = ReplyOf(header);
  // A pull fetches the last round's result, whose mode the header tells, or
  // what was broadcast since.
  const bool is_pull =
      op.kind == OpKind::kPull || op.kind == OpKind::kTakeValue;
  if (!is_pull) reply.settings.mode = chunk.codec->At(op.step).mode;
  const bool is_value =
      op.kind == OpKind::kTakeValue ||
      (op.kind == OpKind::kPull && reply.format == ReplyFormat::kDense);
  const bool is_bare =
      header.type == FrameType::kAgree || header.type == FrameType::kAck;
  WorkerRows* const rows = is_pull ? op.rows.get() : nullptr;
  if (rows != nullptr) {
    return rows->Target(engine_.num_contributors, chunk, header, reply);
  }
  absl::Status status =
      is_bare ? chunk.codec->CheckBareReply(reply)
              : chunk.codec->CheckReply(reply, header.payload_bytes, is_value);
  const bool is_push = op.kind == OpKind::kPush || op.kind == OpKind::kPushPull;
  if (status.ok() && is_bare && header.payload_bytes > 0) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "answer of ", header.payload_bytes, " bytes; none were expected"));
  } else if (status.ok() && traits_.is_async && is_push) {
    status = CheckStaleness(header.contributors, config_.max_staleness);
  } else if (status.ok() && !is_bare &&
             header.contributors != engine_.num_contributors) {
    status = absl::InvalidArgumentError(
        absl::StrCat("answer of ", header.contributors, " contributors; ",
                     engine_.num_contributors, " were expected"));
  }
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("key ", header.key, " chunk ", header.chunk, " step ",
                     header.step, ": ", status.message()));
  }
  chunk.answer = header.type;
  chunk.record = reply;
  chunk.reply_payload = {};
  if (is_bare) return Bytes();
  chunk.memory = chunk.op->memory.Begin();
  chunk.has_target = true;
  Bytes target = chunk.reply.view();
  if (reply.format == ReplyFormat::kDense) {
    const Dtype dtype = chunk.codec->dtype();
    if (chunk.tensor->device == nullptr && dtype == Dtype::kFloat32) {
      target = PartOf(chunk.memory.out, chunk.plan(), dtype);
    } else {
      chunk.value =
          chunk.tensor->codec->buffers().Get(chunk.codec->value_bytes());
      target = chunk.value->view();
    }
  }
  target.size = header.payload_bytes;
  chunk.reply_payload = target;
  return target;
}

void DistWorker::OnAnswer(const FrameHeader& header, ConstBytes bytes,
                          Bytes payload) {
  WorkerChunk& chunk = *tensors_[header.key].chunks[header.chunk];
  if (counts_traffic_) {
    ++num_frames_;
    pull_wire_bytes_ += static_cast<int64_t>(bytes.size + payload.size);
    if (header.type == FrameType::kReply || header.type == FrameType::kValue) {
      pull_raw_bytes_ += static_cast<int64_t>(chunk.op->rows == nullptr
                                                  ? chunk.codec->value_bytes()
                                                  : payload.size);
    }
  }
  if (payload.size > 0) links_.busy().End();
  NoteStage(options_.timeline, *chunk.op, chunk,
            header.type == FrameType::kAgree ? "agree on a scale"
                                             : "network and server",
            chunk.framed_at);
  const OpKind kind = chunk.op->kind;
  if (header.type != FrameType::kAgree &&
      (kind == OpKind::kPush || kind == OpKind::kPushPull)) {
    if (traits_.is_async) staleness_.Add(header.contributors);
    if (counts_traffic_) {
      answer_times_.Add(static_cast<size_t>(chunk.plan().server),
                        chunk.plan().num_elems, Clock::now() - chunk.sent_at);
    }
  }
  std::copy(bytes.data, bytes.data + bytes.size, chunk.reply_header.begin());
  if (header.type == FrameType::kAgree) {
    chunk.codec->AgreeFirst(header.scale);
    chunk.phase = ChunkPhase::kEncoding;
  } else {
    chunk.phase = ChunkPhase::kDecoding;
  }
  PostChunk(chunk);
}

}  // namespace telegrad
