#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/engine/checks.h"
#include "kvstore/engine/floats.h"
#include "kvstore/engine/rows.h"
#include "kvstore/ps/small_jobs.h"
#include "kvstore/ps/worker.h"
#include "kvstore/ps/worker_rows.h"

namespace telegrad {

namespace {

std::shared_ptr<WorkerOp> MakeOp(WorkerTensor& tensor, OpKind kind, Key key,
                                 const TensorView* grad,
                                 const TensorView* out) {
  const size_t num_chunks = tensor.chunks.size();
  std::shared_ptr<WorkerOp> op;
  if (tensor.device != nullptr) {
    op = tensor.device->MakeOp(kind, key, grad, out);
    op->answers_left = num_chunks;
  } else {
    op = std::make_shared<WorkerOp>(
        kind, key, grad != nullptr ? ConstBytes(grad->bytes) : ConstBytes(),
        out != nullptr ? out->bytes : Bytes());
  }
  op->parts_left = num_chunks;
  op->ticket = std::make_shared<Ticket::State>();
  if (op->lane != nullptr && out != nullptr) {
    op->ticket->wait_on = [lane = op->lane,
                           result = op->result](Stream stream) {
      return lane->WaitOn(stream, result);
    };
  }
  return op;
}

// An operation of which the end is queued on the device is over in a moment.
void AwaitQueued(const WorkerTensor& tensor) {
  const std::shared_ptr<WorkerOp> before = tensor.turns.active();
  if (before == nullptr || !before->ticket->is_queued()) return;
  Ticket(before->ticket).WaitUntil(Clock::now() + kCancelGrace);
}

}  // namespace

Ticket DistWorker::Start(OpKind kind, Key key, TensorViews grads,
                         TensorViews outs, int priority) {
  absl::Status status = CheckKey(key, tensors_.size());
  if (!status.ok()) return FinishedTicket(status);
  WorkerTensor& tensor = tensors_[key];
  const bool has_grad = kind != OpKind::kPull && kind != OpKind::kTakeValue;
  const bool has_out = kind != OpKind::kPush && kind != OpKind::kGiveValue;
  const bool has_rows = (kind == OpKind::kPush && HasRows(grads)) ||
                        (kind == OpKind::kPull && HasRows(outs));
  if (has_rows) {
    status = CheckRowViews(tensor.spec(), has_grad ? grads : outs, 1);
  } else {
    if (has_grad) status = CheckViews(tensor.spec(), grads, 1);
    if (has_out) status.Update(CheckViews(tensor.spec(), outs, 1));
  }
  if (!status.ok()) return FinishedTicket(status);
  const TensorView* const grad = has_grad ? &grads[0] : nullptr;
  const TensorView* const out = has_out ? &outs[0] : nullptr;
  auto op = MakeOp(tensor, kind, key, grad, out);
  if (has_rows) {
    status = WorkerRows::Take(*this, tensor, has_grad ? *grad : *out, *op);
    if (!status.ok()) return FinishedTicket(status);
  }
  op->priority = priority;
  op->ticket->describe = [&tensor, weak = std::weak_ptr(op)] {
    const auto live = weak.lock();
    return live ? DescribeOp(tensor, *live) : std::string("operation ended");
  };
  op->ticket->release = [this, &tensor, weak = std::weak_ptr(op)] {
    if (const auto live = weak.lock()) Release(tensor, *live);
  };
  if (tensor.device != nullptr) AwaitQueued(tensor);
  status = tensor.turns.Begin(tensor.spec(), op, failure_);
  if (!status.ok()) return FinishedTicket(status);
  StartChunks(tensor, op);
  return Ticket(op->ticket);
}

namespace {

// What the caller gives, as float32.
ConstBytes ValueOf(WorkerChunk& chunk) {
  const ChunkCodec& codec = *chunk.codec;
  const ConstBytes given = PartOf(chunk.memory.in, chunk.plan(), codec.dtype());
  if (codec.dtype() == Dtype::kFloat32) return given;
  chunk.value = chunk.tensor->codec->buffers().Get(codec.value_bytes());
  Widen(kernels::CpuKernels(), given, codec.dtype(), chunk.plan().num_elems,
        chunk.value->as<float>(), {});
  return chunk.value->view();
}

}  // namespace

void DistWorker::StartChunks(WorkerTensor& tensor,
                             const std::shared_ptr<WorkerOp>& op) {
  for (auto& chunk : tensor.chunks) {
    chunk->op = op;
    chunk->phase = ChunkPhase::kEncoding;
  }
  switch (op->kind) {
    case OpKind::kPull:
      if (op->rows != nullptr) return op->rows->Pull(*this, tensor);
      [[fallthrough]];
    case OpKind::kTakeValue:
      for (auto& chunk : tensor.chunks) {
        SendFrame(*chunk, MakeHeader(*chunk, FrameType::kPull), {},
                  ChunkPhase::kSent);
      }
      return;
    case OpKind::kGiveValue:
      if (tensor.device != nullptr) return tensor.device->GiveValue(tensor, op);
      for (auto& chunk : tensor.chunks) {
        chunk->memory = op->memory.Begin();
        SendFrame(*chunk, MakeHeader(*chunk, FrameType::kInit), ValueOf(*chunk),
                  ChunkPhase::kSent);
      }
      return;
    case OpKind::kPush:
    case OpKind::kPushPull:
      if (tensor.device != nullptr) return tensor.device->Push(tensor, op);
      if (!CountJob()) return;
      Hand(*pool_, op->priority, 4 * tensor.spec().num_elems,
           [this, &tensor, op] {
             if (!failure_.is_set()) StartPush(tensor, *op);
             EndJob();
           });
      return;
  }
}

bool DistWorker::CountJob() {
  MutexLock lock(&mutex_);
  if (failure_.is_set()) return false;
  ++num_jobs_;
  return true;
}

void DistWorker::EndJob() {
  MutexLock lock(&mutex_);
  if (--num_jobs_ == 0) jobs_changed_.NotifyAll();
}

void DistWorker::PostChunk(WorkerChunk& chunk) {
  if (!CountJob()) return;
  Hand(*pool_, chunk.op->priority, chunk.codec->value_bytes(),
       [this, &chunk] { RunChunk(chunk); });
}

// After a failure jobs end at once: what they work on may be gone.
void DistWorker::RunChunk(WorkerChunk& chunk) {
  if (!failure_.is_set()) {
    chunk.phase.load() == ChunkPhase::kDecoding ? DecodeChunk(chunk)
                                                : EncodeChunk(chunk);
  }
  EndJob();
}

// The wish is the whole tensor's, before any chunk of it is encoded.
void DistWorker::StartPush(WorkerTensor& tensor, WorkerOp& op) {
  if (op.rows == nullptr) {
    const BorrowedMemory::Use memory = op.memory.Begin();
    op.wish = tensor.codec->Wish(memory.in);
    op.memory.End(memory.is_borrowed);
  }
  for (auto& chunk : tensor.chunks) {
    if (chunk->codec->NeedsScale(op.step)) {
      SendFrame(*chunk, MakeHeader(*chunk, FrameType::kPropose), {},
                ChunkPhase::kProposing);
    } else {
      PostChunk(*chunk);
    }
  }
}

namespace {

uint16_t FlagsOf(OpKind kind) {
  switch (kind) {
    case OpKind::kPush:
      return kFlagNoReply;
    case OpKind::kTakeValue:
      return kFlagNextValue;
    default:
      return 0;
  }
}

}  // namespace

FrameHeader DistWorker::MakeHeader(const WorkerChunk& chunk,
                                   FrameType type) const {
  const WorkerOp& op = *chunk.op;
  FrameHeader header = links_.HeaderTo(chunk.plan().server, type);
  header.flags = FlagsOf(op.kind);
  header.priority = op.priority;
  header.key = op.key;
  header.chunk = chunk.plan().index;
  header.contributors = 1;
  Write(chunk.codec->Push(op.step, op.wish), header);
  return header;
}

// The chunk is the io thread's as soon as it is in phase `next`.
void DistWorker::SendFrame(WorkerChunk& chunk, FrameHeader header,
                           ConstBytes payload, ChunkPhase next) {
  header.payload_bytes = static_cast<uint32_t>(payload.size);
  if (links_.is_in_memory(chunk.plan().server)) header.flags |= kFlagInMemory;
  if (counts_traffic_) {
    ++num_frames_;
    push_wire_bytes_ += static_cast<int64_t>(kFrameHeaderBytes + payload.size);
    if (header.type == FrameType::kPush) {
      push_raw_bytes_ += static_cast<int64_t>(chunk.codec->value_bytes());
    } else if (header.type == FrameType::kPushRows) {
      push_raw_bytes_ += static_cast<int64_t>(payload.size);
    }
  }
  chunk.outgoing = {.header = SerializeFrame(header, payload),
                    .payload = payload,
                    .keep_alive = chunk.op,
                    .priority = chunk.op->priority};
  if (payload.size > 0) {
    // The operation holds the payload's memory until it was sent, too.
    chunk.op->parts_left.fetch_add(1);
    chunk.sending = chunk.op.get();
    chunk.sends_borrowed = chunk.memory.is_borrowed;
    chunk.outgoing.on_sent = [this, &chunk] { OnSent(chunk); };
  }
  chunk.framed_at = Clock::now();
  chunk.phase = next;
  links_.Post([this, &chunk] {
    chunk.sent_at = Clock::now();
    links_.Send(chunk.plan().server, std::move(chunk.outgoing));
  });
}

void DistWorker::OnSent(WorkerChunk& chunk) {
  WorkerOp& op = *chunk.sending;  // lives: this part of it has not ended
  NoteStage(options_.timeline, op, chunk, "send", chunk.framed_at);
  op.memory.End(chunk.sends_borrowed);
  FinishPart(*chunk.tensor, op);
}

void DistWorker::EncodeChunk(WorkerChunk& chunk) {
  WorkerOp& op = *chunk.op;
  WorkerDevice* const device = chunk.tensor->device;
  if (device != nullptr && !std::exchange(chunk.is_begun, false)) {
    return device->Agreed(chunk);
  }
  if (op.rows != nullptr) return op.rows->Push(*this, chunk);
  NoteStage(options_.timeline, op, chunk, "queued", op.started);
  const TimePoint begin = Clock::now();
  if (device == nullptr) chunk.memory = op.memory.Begin();
  const ConstBytes grad =
      PartOf(chunk.memory.in, chunk.plan(), chunk.codec->dtype());
  const absl::StatusOr<EncodedChunk> encoded = [&] {
    const ThreadSeconds::Scope timed(codec_time_);
    return device == nullptr ? chunk.codec->Encode(
                                   op.step, static_cast<uint64_t>(rank_), grad)
                             : chunk.on_device().EndEncode();
  }();
  absl::Status status = encoded.status();
  if (status.ok() && encoded->num_nonfinite > 0) {
    chunk.tensor->codec->CountNonFinite(encoded->num_nonfinite);
    if (encoded->is_refused) {
      status = NonFiniteError(ToString(group_.id()), group_.id().rank,
                              chunk.tensor->spec(), op.step, chunk.memory.in,
                              op.lane, chunk.plan(), *encoded);
    } else {
      num_nonfinite_ += static_cast<int64_t>(encoded->num_nonfinite);
    }
  }
  NoteStage(options_.timeline, op, chunk, "encode", begin);
  // Of what was encoded elsewhere the transport needs nothing of the caller's.
  if (!status.ok() || encoded->payload.data != grad.data) {
    op.memory.End(chunk.memory.is_borrowed);
    chunk.memory.is_borrowed = false;
  }
  if (!status.ok()) return failure_.FailJob(status);
  SendFrame(chunk, MakeHeader(chunk, FrameType::kPush), encoded->payload,
            ChunkPhase::kSent);
}

void DistWorker::DecodeChunk(WorkerChunk& chunk) {
  const TimePoint begin = Clock::now();
  const absl::Status status = DecodePayload(chunk);
  NoteStage(options_.timeline, *chunk.op, chunk, "decode", begin);
  const bool has_result = chunk.answer != FrameType::kAck;
  WorkerDevice* const device = chunk.tensor->device;
  if (status.ok()) {
    return has_result && device != nullptr ? device->Decode(chunk)
                                           : FinishChunk(chunk);
  }
  failure_.FailJob(WithExitCode(
      ExitCodeOf(status),
      absl::Status(
          status.code(),
          absl::StrCat("answer of server/", chunk.plan().server, ", tensor ",
                       chunk.tensor->spec().name, ", chunk ",
                       chunk.plan().index, ": ", status.message()))));
}

absl::Status DistWorker::DecodePayload(WorkerChunk& chunk) {
  const ThreadSeconds::Scope timed(codec_time_);
  RETURN_IF_ERROR(
      CheckFramePayload({chunk.reply_header.data(), chunk.reply_header.size()},
                        chunk.reply_payload));
  if (chunk.answer != FrameType::kAck && chunk.op->rows != nullptr) {
    chunk.op->rows->Place(chunk);
  } else if (chunk.answer != FrameType::kAck) {
    if (chunk.tensor->device != nullptr) {
      RETURN_IF_ERROR(
          chunk.codec->CheckPayload(chunk.record, chunk.reply_payload));
    } else {
      const Bytes out =
          PartOf(chunk.memory.out, chunk.plan(), chunk.codec->dtype());
      RETURN_IF_ERROR(
          chunk.codec->Decode(chunk.record, chunk.reply_payload, out));
    }
  }
  const OpKind kind = chunk.op->kind;
  if (kind == OpKind::kPush || kind == OpKind::kPushPull) {
    chunk.codec->Agree(chunk.record.agreed);
  }
  return absl::OkStatus();
}

void DistWorker::FinishChunk(WorkerChunk& chunk) {
  const std::shared_ptr<WorkerOp> op = std::move(chunk.op);
  if (chunk.has_target) op->memory.End(chunk.memory.is_borrowed);
  chunk.has_target = false;
  chunk.value = nullptr;
  chunk.phase = ChunkPhase::kIdle;
  FinishPart(*chunk.tensor, *op);
}

// A chunk was answered, or its frame has left. The last part ends the ticket.
void DistWorker::FinishPart(WorkerTensor& tensor, WorkerOp& op) {
  if (op.parts_left.fetch_sub(1) != 1) return;
  if (op.kind == OpKind::kPull && op.rows != nullptr) op.rows->Give(tensor, op);
  const std::shared_ptr<Ticket::State> ticket = op.ticket;
  const auto ended = tensor.turns.End(op);  // lives until here
  ticket->Finish(absl::OkStatus());
}

}  // namespace telegrad
