#include "kvstore/ps/worker/chunk_pipeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kvstore/engine/codec/checks.h"
#include "kvstore/engine/codec/floats.h"
#include "kvstore/engine/rows/row_codec.h"
#include "kvstore/engine/rows/rows.h"
#include "kvstore/job/flight/flight_log.h"
#include "kvstore/job/path/job_options.h"
#include "kvstore/ps/wire/small_jobs.h"
#include "kvstore/ps/worker/worker_device.h"
#include "kvstore/ps/worker/worker_rows.h"

namespace telegrad {
namespace {

std::shared_ptr<WorkerOp> MakeOp(WorkerTensor& tensor, OpKind kind, Key key,
                                 const TensorView* grad,
                                 const TensorView* out) {
  const size_t num_chunks = tensor.chunks.size();
  std::shared_ptr<WorkerOp> op;
  if (tensor.device != nullptr && num_chunks > 0) {
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

uint16_t FlagsOf(const WorkerOp& op) {
  if (op.kind == OpKind::kTakeValue) return kFlagNextValue;
  const bool is_push = op.kind == OpKind::kPush;
  if (!is_push && op.kind != OpKind::kPushPull) return 0;
  return static_cast<uint16_t>((is_push ? kFlagNoReply : 0) |
                               (op.takes_all ? kFlagTakesAll : 0));
}

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

// Where an answer that has a payload goes.
Bytes PlaceOf(WorkerChunk& chunk, const ReplyRecord& reply) {
  const bool is_on_host = chunk.tensor->device == nullptr;
  if (reply.format != ReplyFormat::kDense) {
    return is_on_host ? chunk.reply.view() : chunk.on_device().TargetOf(reply);
  }
  const Dtype dtype = chunk.codec->dtype();
  if (is_on_host && dtype == Dtype::kFloat32) {
    return PartOf(chunk.memory.out, chunk.plan(), dtype);
  }
  chunk.value = chunk.tensor->codec->buffers().Get(chunk.codec->value_bytes());
  return chunk.value->view();
}

absl::Status CheckStaleness(int64_t ahead, int64_t most) {
  if (most == kAnyStaleness || ahead <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "answer ", ahead, " steps ahead of the slowest; at most ", most));
}

}  // namespace

ChunkPipeline::ChunkPipeline(const StoreOptions& options,
                             const StoreTraits& traits, WorkerGroup& group,
                             WorkerFailure& failure, ServerLinks& links,
                             const EngineConfig& engine,
                             const TensorTable& tensors,
                             std::shared_ptr<FlightRecorder> recorder)
    : options_(options),
      traits_(traits),
      group_(group),
      failure_(failure),
      links_(links),
      engine_(engine),
      tensors_(tensors),
      recorder_(std::move(recorder)) {}

void ChunkPipeline::Open() {
  answer_times_.Resize(links_.size());
  pool_ = std::make_unique<ThreadPool>(options_.num_threads);
}

StoreStats ChunkPipeline::stats() const {
  const Traffic::Sums pushed = pushed_.sums();
  const Traffic::Sums pulled = pulled_.sums();
  return {.push_raw_bytes = pushed.raw_bytes,
          .push_wire_bytes = pushed.wire_bytes,
          .pull_raw_bytes = pulled.raw_bytes,
          .pull_wire_bytes = pulled.wire_bytes,
          .num_nonfinite = num_nonfinite_,
          .num_frames = num_frames_,
          .max_staleness = staleness_.most(),
          .mean_staleness = staleness_.mean(),
          .num_late = staleness_.num_late(),
          .codec_s = codec_time_.seconds(),
          .answer_s = answer_times_.means()};
}

Ticket ChunkPipeline::Start(OpKind kind, Key key, TensorViews grads,
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
  op->takes_all = switches_.takes_all;
  op->ticket->describe = [&tensor, weak = std::weak_ptr(op)] {
    const auto live = weak.lock();
    return live ? DescribeOp(tensor, *live) : std::string("operation ended");
  };
  op->ticket->release = [this, &tensor, weak = std::weak_ptr(op)] {
    if (const auto live = weak.lock()) Release(tensor, *live);
  };
  if (tensor.device != nullptr) {
    const std::shared_ptr<WorkerOp> before = tensor.turns.active();
    if (before != nullptr) AwaitQueued(before->ticket);
  }
  status = tensor.turns.Begin(tensor.spec(), op, failure_);
  if (!status.ok()) return FinishedTicket(status);
  if (tensor.chunks.empty()) {
    tensor.turns.End(*op);
    return FinishedTicket(absl::OkStatus());
  }
  if (recorder_) recorder_->Begin(FlightOpOf(tensor, *op, traits_.is_async));
  StartChunks(tensor, op);
  return Ticket(op->ticket);
}

void ChunkPipeline::StartChunks(WorkerTensor& tensor,
                                const std::shared_ptr<WorkerOp>& op) {
  for (auto& chunk : tensor.chunks) {
    chunk->op = op;
    chunk->phase = ChunkPhase::kEncoding;
  }
  const bool has_result =
      op->kind != OpKind::kPush && op->kind != OpKind::kGiveValue;
  if (tensor.device != nullptr && has_result) {
    tensor.device->Expect(tensor.chunks.size());
  }
  switch (op->kind) {
    case OpKind::kPull:
      if (op->rows != nullptr) return op->rows->Pull(*this, tensor);
      [[fallthrough]];
    case OpKind::kTakeValue:
      for (auto& chunk : tensor.chunks) {
        SendFrame(*chunk, FrameType::kPull, {}, ChunkPhase::kSent);
      }
      return;
    case OpKind::kGiveValue:
      if (tensor.device != nullptr) return tensor.device->GiveValue(tensor, op);
      for (auto& chunk : tensor.chunks) {
        chunk->memory = op->memory.Begin();
        SendFrame(*chunk, FrameType::kInit, ValueOf(*chunk), ChunkPhase::kSent);
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

bool ChunkPipeline::CountJob() {
  MutexLock lock(&mutex_);
  if (failure_.is_set()) return false;
  ++num_jobs_;
  return true;
}

void ChunkPipeline::EndJob() {
  MutexLock lock(&mutex_);
  if (--num_jobs_ == 0) jobs_changed_.NotifyAll();
}

void ChunkPipeline::PostChunk(WorkerChunk& chunk) {
  if (!CountJob()) return;
  Hand(*pool_, chunk.op->priority, chunk.codec->value_bytes(),
       [this, &chunk] { RunChunk(chunk); });
}

// After a failure jobs end at once: what they work on may be gone.
void ChunkPipeline::RunChunk(WorkerChunk& chunk) {
  if (!failure_.is_set()) {
    chunk.phase.load() == ChunkPhase::kDecoding ? DecodeChunk(chunk)
                                                : EncodeChunk(chunk);
  }
  EndJob();
}

// The wish is the whole tensor's, before any chunk of it is encoded.
void ChunkPipeline::StartPush(WorkerTensor& tensor, WorkerOp& op) {
  if (op.rows == nullptr) {
    const BorrowedMemory::Use memory = op.memory.Begin();
    op.wish = tensor.codec->Wish(memory.in);
    op.memory.End(memory.is_borrowed);
  }
  for (auto& chunk : tensor.chunks) {
    if (chunk->codec->NeedsScale(op.step)) {
      SendFrame(*chunk, FrameType::kPropose, {}, ChunkPhase::kProposing);
    } else {
      PostChunk(*chunk);
    }
  }
}

void ChunkPipeline::SendFrame(WorkerChunk& chunk, FrameType type,
                              ConstBytes payload, ChunkPhase next) {
  const WorkerOp& op = *chunk.op;
  const Chunk& plan = chunk.plan();
  FrameHeader header = links_.Addressed(
      plan.server, {.type = type,
                    .flags = FlagsOf(op),
                    .priority = op.priority,
                    .key = op.key,
                    .chunk = plan.index,
                    .payload_bytes = static_cast<uint32_t>(payload.size),
                    .contributors = 1});
  if (links_.is_unchecked(plan.server)) header.flags |= kFlagUnchecked;
  PushRecord record = chunk.codec->Push(op.step, op.wish);
  const auto& row_codec = chunk.tensor->codec->row_codec();
  if (type == FrameType::kPushRows && row_codec.has_value()) {
    record.format = FormatOfRows(*row_codec);
  }
  Write(record, header);
  if (switches_.counts_traffic) {
    ++num_frames_;
    size_t raw_bytes = 0;
    if (header.type == FrameType::kPush) {
      raw_bytes = chunk.codec->value_bytes();
    } else if (header.type == FrameType::kPushRows) {
      raw_bytes = op.rows->RawBytes(chunk);
    }
    pushed_.Add(header.codec, raw_bytes, kFrameHeaderBytes + payload.size);
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

void ChunkPipeline::OnSent(WorkerChunk& chunk) {
  WorkerOp& op = *chunk.sending;  // lives: this part of it has not ended
  NoteStage(options_.timeline, op, chunk, "send", chunk.framed_at);
  op.memory.End(chunk.sends_borrowed);
  FinishPart(*chunk.tensor, op);
}

void ChunkPipeline::EncodeChunk(WorkerChunk& chunk) {
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
    return device == nullptr
               ? chunk.codec->Encode(op.step,
                                     static_cast<uint64_t>(group_.rank()), grad)
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
  // What was encoded elsewhere is all that the transport needs: nothing of the
  // caller's.
  if (!status.ok() || encoded->payload.data != grad.data) {
    op.memory.End(chunk.memory.is_borrowed);
    chunk.memory.is_borrowed = false;
  }
  if (!status.ok()) return failure_.FailJob(status);
  SendFrame(chunk, FrameType::kPush, encoded->payload, ChunkPhase::kSent);
}

void ChunkPipeline::DecodeChunk(WorkerChunk& chunk) {
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

absl::Status ChunkPipeline::DecodePayload(WorkerChunk& chunk) {
  const ThreadSeconds::Scope timed(codec_time_);
  const bool is_on_host = chunk.reply_payload.device == Device{};
  if (is_on_host) {
    RETURN_IF_ERROR(CheckFramePayload(
        {chunk.reply_header.data(), chunk.reply_header.size()},
        chunk.reply_payload));
  }
  if (chunk.answer != FrameType::kAck && chunk.op->rows != nullptr) {
    chunk.op->rows->Place(chunk);
  } else if (chunk.answer != FrameType::kAck && is_on_host) {
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

void ChunkPipeline::FinishChunk(WorkerChunk& chunk) {
  const std::shared_ptr<WorkerOp> op = std::move(chunk.op);
  if (chunk.has_target) op->memory.End(chunk.memory.is_borrowed);
  chunk.has_target = false;
  chunk.value = nullptr;
  chunk.phase = ChunkPhase::kIdle;
  FinishPart(*chunk.tensor, *op);
}

// A chunk was answered, or its frame has left. The last part ends the ticket.
void ChunkPipeline::FinishPart(WorkerTensor& tensor, WorkerOp& op) {
  if (op.parts_left.fetch_sub(1) != 1) return;
  if (op.kind == OpKind::kPull && op.rows != nullptr) op.rows->Give(tensor, op);
  const std::shared_ptr<Ticket::State> ticket = op.ticket;
  if (switches_.counts_traffic) times_.Add(op, 4 * tensor.spec().num_elems);
  if (recorder_) recorder_->End(op.key);
  const auto ended = tensor.turns.End(op);  // lives until here
  ticket->Finish(absl::OkStatus());
}

absl::StatusOr<Bytes> ChunkPipeline::OnHeader(int server,
                                              const FrameHeader& header) {
  ASSIGN_OR_RETURN(WorkerChunk* const chunk, FindChunk(server, header));
  ASSIGN_OR_RETURN(const Bytes target, ReplyTarget(*chunk, header));
  chunk->phase = ChunkPhase::kReceiving;  // a second answer is refused
  if (header.payload_bytes > 0) links_.busy().Begin();
  return target;
}

absl::StatusOr<WorkerChunk*> ChunkPipeline::FindChunk(
    int server, const FrameHeader& header) const {
  if (!IsAnswer(header.type) || header.epoch != group_.membership().epoch ||
      header.source != server || header.destination != group_.rank() ||
      header.key >= tensors_.size() ||
      header.chunk >= tensors_[header.key].chunks.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame type ", static_cast<int>(header.type), " key ",
                     header.key, " chunk ", header.chunk, " epoch ",
                     header.epoch, " from ", header.source, " to ",
                     header.destination, " is not for worker/", group_.rank()));
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

absl::StatusOr<Bytes> ChunkPipeline::ReplyTarget(WorkerChunk& chunk,
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
  const bool drops = options_.drop_slowest > 0;
  if (status.ok() && is_bare && header.payload_bytes > 0) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "answer of ", header.payload_bytes, " bytes; none were expected"));
  } else if (status.ok() && traits_.is_async && is_push &&
             header.type != FrameType::kAgree) {
    status = CheckStaleness(header.contributors, options_.max_staleness);
  } else if (status.ok() && !is_bare && !(drops && is_push) &&
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
  Bytes target = PlaceOf(chunk, reply);
  target.size = header.payload_bytes;
  chunk.reply_payload = target;
  return target;
}

void ChunkPipeline::OnAnswer(const FrameHeader& header, ConstBytes bytes,
                             Bytes payload) {
  WorkerChunk& chunk = *tensors_[header.key].chunks[header.chunk];
  if (switches_.counts_traffic) {
    ++num_frames_;
    const bool has_result =
        header.type == FrameType::kReply || header.type == FrameType::kValue;
    const size_t raw_bytes =
        chunk.op->rows == nullptr ? chunk.codec->value_bytes() : payload.size;
    pulled_.Add(CodecOfResult(header), has_result ? raw_bytes : 0,
                bytes.size + payload.size);
  }
  if (payload.size > 0) links_.busy().End();
  NoteStage(options_.timeline, *chunk.op, chunk,
            header.type == FrameType::kAgree ? "agree on a scale"
                                             : "network and server",
            chunk.framed_at);
  const OpKind kind = chunk.op->kind;
  if (header.type != FrameType::kAgree &&
      (kind == OpKind::kPush || kind == OpKind::kPushPull)) {
    const uint16_t late = header.contributors;
    const bool drops = options_.drop_slowest > 0;
    if (drops) chunk.num_rounds = header.step + std::max<uint16_t>(1, late);
    if (traits_.is_async || drops) staleness_.Add(late);
    if (switches_.counts_traffic) {
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

// Where the memory is still in use by then, the connections are cut. Of a store
// that fails meanwhile no use ends, but the ticket, when nobody uses it.
void ChunkPipeline::Release(WorkerTensor& tensor, WorkerOp& op) {
  constexpr auto kTick = std::chrono::milliseconds(1);
  if (const auto& flight = group_.options().flight) flight->WriteOnce();
  const TimePoint deadline = Clock::now() + kCancelGrace;
  while (!op.memory.Release(Clock::now()) && Clock::now() < deadline) {
    if (Ticket(op.ticket).WaitUntil(Clock::now() + kTick)) return;
  }
  if (op.memory.Release(Clock::now())) return;
  failure_.FailJob(WithExitCode(
      ExitCode::kTimeout,
      absl::DeadlineExceededError(absl::StrCat(
          DescribeOp(tensor, op), ", nor when it was cancelled"))));
  while (!Ticket(op.ticket).WaitUntil(Clock::now() + kCancelGrace)) {
    LogWarning("still in use: ", DescribeOp(tensor, op));
  }
}

void ChunkPipeline::End(const absl::Status& why) {
  {
    MutexLock lock(&mutex_);
    // Jobs compute and block on nothing.
    while (num_jobs_ > 0) {
      jobs_changed_.WaitUntil(&mutex_, Clock::now() + std::chrono::seconds(1));
    }
  }
  for (size_t key = 0; key < tensors_.size(); ++key) {
    if (const auto op = tensors_[key].turns.active()) op->ticket->Finish(why);
  }
}

}  // namespace telegrad
