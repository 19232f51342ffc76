#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kernels/dispatch.h"
#include "kvstore/dist/small_jobs.h"
#include "kvstore/dist/worker.h"

namespace telegrad {

Ticket DistWorker::Start(OpKind kind, Key key, ConstBytes grad, Bytes out,
                         int priority) {
  if (key >= tensors_.size()) {
    return FinishedTicket(absl::InvalidArgumentError(
        absl::StrCat("key ", key, " of ", tensors_.size())));
  }
  WorkerTensor& tensor = *tensors_[key];
  const size_t bytes = 4 * tensor.spec.num_elems;
  const bool has_grad = kind != OpKind::kPull;
  const bool has_out = kind == OpKind::kPull || kind == OpKind::kPushPull;
  if ((has_grad && grad.size != bytes) || (has_out && out.size != bytes)) {
    return FinishedTicket(absl::InvalidArgumentError(absl::StrCat(
        "tensor ", tensor.spec.name, " has ", bytes, " bytes; gradient of ",
        grad.size, ", output of ", out.size)));
  }
  auto op = std::make_shared<WorkerOp>();
  op->kind = kind;
  op->key = key;
  op->grad = grad;
  op->out = out;
  op->priority = priority;
  op->parts_left = tensor.chunks.size();
  op->ticket = std::make_shared<Ticket::State>();
  op->ticket->describe = [&tensor, weak = std::weak_ptr(op)] {
    const auto live = weak.lock();
    return live ? DescribeOp(tensor, *live) : std::string("operation ended");
  };
  {
    MutexLock lock(&mutex_);
    if (!failure_.ok()) return FinishedTicket(failure_);
    if (kind == OpKind::kPull && tensor.rounds == 0 && !config_.has_values) {
      return FinishedTicket(absl::FailedPreconditionError(
          absl::StrCat("pull of tensor ", tensor.spec.name,
                       ", which has no value before its first push")));
    }
    if (!is_open_ || tensor.active != nullptr) {
      return FinishedTicket(absl::FailedPreconditionError(
          is_open_ ? absl::StrCat("tensor ", tensor.spec.name,
                                  " has an operation already")
                   : "the store is not open"));
    }
    op->step = tensor.rounds;
    tensor.active = op;
  }
  StartChunks(tensor, op);
  return Ticket(op->ticket);
}

void DistWorker::StartChunks(WorkerTensor& tensor,
                             const std::shared_ptr<WorkerOp>& op) {
  for (auto& chunk : tensor.chunks) {
    chunk->op = op;
    chunk->phase = ChunkPhase::kEncoding;
  }
  switch (op->kind) {
    case OpKind::kPull:
      for (auto& chunk : tensor.chunks) {
        SendControl(tensor, *chunk, FrameType::kPull, ChunkPhase::kSent);
      }
      return;
    case OpKind::kInit:
      for (auto& chunk : tensor.chunks) {
        const ConstBytes value(op->grad.data + 4 * chunk->plan.begin,
                               4 * chunk->plan.num_elems);
        SendFrame(tensor, *chunk, MakeHeader(*chunk, FrameType::kInit), value,
                  ChunkPhase::kSent);
      }
      return;
    case OpKind::kPush:
    case OpKind::kPushPull:
      PostJob(op->priority, 4 * tensor.spec.num_elems,
              [this, &tensor, op] { StartPush(tensor, op); });
      return;
  }
}

// After a failure jobs end at once: what they work on may be gone.
void DistWorker::PostJob(int priority, size_t bytes,
                         std::function<void()> job) {
  {
    MutexLock lock(&mutex_);
    if (!failure_.ok()) return;
    ++num_jobs_;
  }
  Hand(*pool_, priority, bytes, [this, job = std::move(job)] {
    if (!has_failed_) job();
    MutexLock lock(&mutex_);
    if (--num_jobs_ == 0) jobs_changed_.NotifyAll();
  });
}

namespace {

// The codec for which a scale is proposed: the wished one if it uses any.
const ChunkCoding& ScaledCoding(const WorkerTensor& tensor) {
  const Stages& stages = tensor.chunks[0]->stages;
  const ChunkStage wish = tensor.wish;
  const ChunkCoding& wished =
      stages.Of(IsDenseStage(wish) ? ChunkStage::kCodec : wish);
  if (wished.uses_scale) return wished;
  for (const ChunkCoding& coding : stages.codings()) {
    if (coding.uses_scale) return coding;
  }
  return wished;
}

}  // namespace

// Proposes a scale from the whole tensor before any chunk of it is encoded.
void DistWorker::StartPush(WorkerTensor& tensor,
                           const std::shared_ptr<WorkerOp>& op) {
  // For the codec that is wished: both come into force at once.
  const ChunkCoding& coding = ScaledCoding(tensor);
  if (coding.uses_scale) {
    const CodecTraits& traits = coding.codec->traits();
    const bool adds_residual =
        traits.auto_of_residual && tensor.residual.size() > 0;
    double mean_square = 0;
    kernels::CpuKernels().sampled_power(
        reinterpret_cast<const float*>(op->grad.data),
        adds_residual ? tensor.residual.as<float>() : nullptr,
        tensor.spec.num_elems, &mean_square, {});
    op->proposal = ProposeScale(mean_square,
                                ThresholdPerRms(coding.setting.threshold,
                                                traits.auto_threshold_per_rms));
  }
  for (auto& chunk : tensor.chunks) {
    if (tensor.uses_scale && chunk->scales[op->step & 1] == kNoScale) {
      SendControl(tensor, *chunk, FrameType::kPropose, ChunkPhase::kProposing);
      continue;
    }
    PostJob(op->priority, 4 * chunk->plan.num_elems,
            [this, &tensor, one = chunk.get()] { EncodeChunk(tensor, *one); });
  }
}

ChunkStage DistWorker::StageWish(const WorkerChunk& chunk) const {
  const ChunkStage wish = tensors_[chunk.op->key]->wish;
  return chunk.vetoed[static_cast<size_t>(wish)] ? ChunkStage::kDense : wish;
}

FrameHeader DistWorker::MakeHeader(const WorkerChunk& chunk,
                                   FrameType type) const {
  const WorkerOp& op = *chunk.op;
  const ChunkStage stage = chunk.stages.At(op.step);
  const ChunkCoding& coding = chunk.stages.Of(stage);
  const CodecTraits& traits = coding.codec->traits();
  const WorkerTensor& tensor = *tensors_[op.key];
  return {.type = type,
          .flags = op.kind == OpKind::kPush ? kFlagNoReply : uint16_t{0},
          .epoch = epoch_,
          .step = op.step,
          .key = op.key,
          .chunk = chunk.plan.index,
          .source = static_cast<uint16_t>(rank_),
          .destination = static_cast<uint16_t>(chunk.plan.server),
          .contributors = 1,
          .scale = tensor.uses_scale ? chunk.scales[op.step & 1] : kFixedScale,
          .codec = static_cast<uint8_t>(traits.id),
          .codec_version = traits.wire_version,
          .reply_mode = static_cast<uint8_t>(coding.format),
          .packing = coding.codec->packing(),
          .stage = stage,
          .proposed_stage = StageWish(chunk),
          .proposed_scale = op.proposal};
}

void DistWorker::SendControl(WorkerTensor& tensor, WorkerChunk& chunk,
                             FrameType type, ChunkPhase next) {
  SendFrame(tensor, chunk, MakeHeader(chunk, type), {}, next);
}

// The chunk is the io thread's as soon as it is in phase `next`.
void DistWorker::SendFrame(WorkerTensor& tensor, WorkerChunk& chunk,
                           FrameHeader header, ConstBytes payload,
                           ChunkPhase next) {
  const auto server = static_cast<size_t>(chunk.plan.server);
  header.sequence = next_sequence_++;
  header.payload_bytes = static_cast<uint32_t>(payload.size);
  if (links_[server].is_in_memory) header.flags |= kFlagInMemory;
  if (counts_traffic_) {
    ++num_frames_;
    push_wire_bytes_ += static_cast<int64_t>(kFrameHeaderBytes + payload.size);
    if (header.type == FrameType::kPush) {
      push_raw_bytes_ += static_cast<int64_t>(4 * chunk.plan.num_elems);
    }
  }
  OutgoingFrame frame{.header = SerializeFrame(header, payload),
                      .payload = payload,
                      .keep_alive = chunk.op,
                      .priority = chunk.op->priority};
  if (payload.size > 0) {
    // The operation holds the payload's memory until it was sent, too.
    chunk.op->parts_left.fetch_add(1);
    frame.on_sent = [this, &tensor, op = chunk.op] { FinishPart(tensor, op); };
  }
  chunk.phase = next;
  Post([this, server, frame = std::move(frame)] {
    links_[server].sender->Enqueue(frame);
  });
}

void DistWorker::EncodeChunk(WorkerTensor& tensor, WorkerChunk& chunk) {
  const absl::StatusOr<ConstBytes> payload = EncodePayload(tensor, chunk);
  if (!payload.ok()) return FailJob(payload.status());
  SendFrame(tensor, chunk, MakeHeader(chunk, FrameType::kPush), *payload,
            ChunkPhase::kSent);
}

void DistWorker::DecodeChunk(WorkerTensor& tensor, WorkerChunk& chunk) {
  const absl::Status status = DecodePayload(tensor, chunk);
  if (status.ok()) return FinishChunk(tensor, chunk);
  FailJob(WithExitCode(
      ExitCodeOf(status),
      absl::Status(status.code(),
                   absl::StrCat("answer of server/", chunk.plan.server,
                                ", tensor ", tensor.spec.name, ", chunk ",
                                chunk.plan.index, ": ", status.message()))));
}

void DistWorker::FinishChunk(WorkerTensor& tensor, WorkerChunk& chunk) {
  const std::shared_ptr<WorkerOp> op = std::move(chunk.op);
  chunk.phase = ChunkPhase::kIdle;
  FinishPart(tensor, op);
}

// A chunk was answered, or its frame has left. The last part ends the ticket.
void DistWorker::FinishPart(WorkerTensor& tensor,
                            const std::shared_ptr<WorkerOp>& op) {
  if (op->parts_left.fetch_sub(1) != 1) return;
  {
    MutexLock lock(&mutex_);
    if (op->kind == OpKind::kPush || op->kind == OpKind::kPushPull) {
      ++tensor.rounds;
    }
    if (tensor.active == op) tensor.active = nullptr;
  }
  op->ticket->Finish(absl::OkStatus());
}

}  // namespace telegrad
