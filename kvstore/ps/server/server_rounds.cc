#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/small_job.h"
#include "base/status_macros.h"
#include "kvstore/ps/server/server.h"

namespace telegrad {
namespace {

constexpr size_t kMaxDuplicates = 64;  // one worker's, while they arrive

// What worker 0 tells, in the session's own buffer.
bool IsDeclaration(FrameType type) {
  return type == FrameType::kDeclare || type == FrameType::kRates ||
         type == FrameType::kSetState;
}

bool IsReading(const FrameHeader& header) {
  return header.type == FrameType::kPullRows ||
         (header.type == FrameType::kPull &&
          (header.flags & kFlagNextValue) == 0);
}

// The payload is whole, its codes are codes, and the round is summed if that
// was the last.
absl::StatusOr<bool> TakePush(const ArrivedPush& push, bool needs_checksum) {
  RETURN_IF_ERROR(CheckFramePayload({push.header.data(), push.header.size()},
                                    push.payload));
  Aggregator& aggregator = *push.chunk->aggregator;
  if (push.dense.size > 0) {
    RETURN_IF_ERROR(push.chunk->rows.Spread(push.payload, push.dense));
  }
  return aggregator.OnPushed(push.worker, needs_checksum);
}

}  // namespace

absl::Status DistServer::CheckRoute(const Session& session,
                                    const FrameHeader& header) const {
  if (header.epoch != epoch_ || header.source != session.worker ||
      header.destination != rank_) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame of epoch ", header.epoch, " from ", header.source,
                     " to ", header.destination, " in epoch ", epoch_));
  }
  return absl::OkStatus();
}

absl::StatusOr<Bytes> DistServer::BeginMessage(Session& session,
                                               const FrameHeader& header) {
  RETURN_IF_ERROR(CheckRoute(session, header));
  if (session.worker >= num_workers_ && !IsReading(header)) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame of type ", static_cast<int>(header.type),
                     " of a worker for which another one pushes"));
  }
  if (IsDeclaration(header.type)) return BeginDeclaration(session, header);
  ASSIGN_OR_RETURN(ServedChunk* const chunk, tensors_->Find(header));
  switch (header.type) {
    case FrameType::kPush:
    case FrameType::kPushRows:
      return BeginPush(session, header, *chunk);
    case FrameType::kPullRows:
      return chunk->rows.BeginPull(session.worker, header);
    case FrameType::kInit:
      return chunk->aggregator->BeginValue(header.step, header.payload_bytes);
    case FrameType::kPull:
    case FrameType::kPropose:
    case FrameType::kAskState:
      if (header.payload_bytes == 0) return Bytes();
      break;
    default:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("frame of type ", static_cast<int>(header.type), " with ",
                   header.payload_bytes, " bytes is not for a server"));
}

absl::StatusOr<Bytes> DistServer::BeginPush(Session& session,
                                            const FrameHeader& header,
                                            ServedChunk& chunk) {
  ASSIGN_OR_RETURN(PushHeader push, PushOf(header));
  const bool is_rows = header.type == FrameType::kPushRows;
  if (is_rows) RETURN_IF_ERROR(chunk.rows.Admit(header, push));
  ASSIGN_OR_RETURN(const Aggregator::Admission admission,
                   chunk.aggregator->Admit(session.worker, push));
  if (!admission.is_duplicate) {
    ArrivedPush& arrived = chunk.pushes[static_cast<size_t>(session.worker)];
    arrived.dense = {};
    arrived.round = push.step;
    arrived.began = timeline_.Begin();
    if (!is_rows) return admission.target;
    arrived.dense = admission.target;
    ASSIGN_OR_RETURN(arrived.arriving, Buffer::Create(header.payload_bytes));
    return arrived.arriving.view();
  }
  if (session.discards.size() >= kMaxDuplicates) {
    return absl::InvalidArgumentError(
        absl::StrCat(kMaxDuplicates, " duplicates of pushes are on their way"));
  }
  session.discards.emplace_back(header.payload_bytes);
  return session.discards.back().view();
}

absl::Status DistServer::HandleMessage(Session& session,
                                       const FrameHeader& header,
                                       ConstBytes header_bytes, Bytes payload) {
  if (header.type == FrameType::kPush || header.type == FrameType::kPushRows) {
    ASSIGN_OR_RETURN(ServedChunk* const chunk, tensors_->Find(header));
    HandlePush(session, header, header_bytes, payload, *chunk);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckFramePayload(header_bytes, payload));
  if (IsDeclaration(header.type)) {
    return HandleDeclaration(session, header, payload);
  }
  ASSIGN_OR_RETURN(ServedChunk* const chunk, tensors_->Find(header));
  Aggregator& aggregator = *chunk->aggregator;
  switch (header.type) {
    case FrameType::kInit:
      return aggregator.OnValue(session.worker, header.priority, *this);
    case FrameType::kPull:
      return aggregator.OnPull(
          session.worker,
          {.step = header.step,
           .wants_broadcast = (header.flags & kFlagNextValue) != 0,
           .priority = header.priority},
          *this);
    case FrameType::kAskState:
      return AnswerState(session, header);
    case FrameType::kPullRows:
      RETURN_IF_ERROR(chunk->rows.EndPull(session.worker, payload));
      return aggregator.OnPull(
          session.worker, {.step = header.step, .priority = header.priority},
          *this);
    default: {
      ASSIGN_OR_RETURN(const PushHeader propose, PushOf(header));
      return aggregator.OnPropose(session.worker, propose, *this);
    }
  }
}

// Checked on the pool, where the thread that checks the last push sums, too;
// what is small, here.
void DistServer::HandlePush(Session& session, const FrameHeader& header,
                            ConstBytes header_bytes, Bytes payload,
                            ServedChunk& chunk) {
  const auto duplicate = std::find_if(
      session.discards.begin(), session.discards.end(),
      [&](const Buffer& buffer) { return buffer.data() == payload.data; });
  if (duplicate != session.discards.end()) {
    session.discards.erase(duplicate);
    return metrics_.CountDuplicate();
  }
  ArrivedPush& push = chunk.pushes[static_cast<size_t>(session.worker)];
  std::copy_n(header_bytes.data, push.header.size(), push.header.begin());
  push.payload = payload;
  timeline_.End(chunk.aggregator->chunk(), push.round, "receive", push.began);
  ++chunk.num_arrived;
  metrics_.CountPush(header,
                     header.type == FrameType::kPush
                         ? 4 * chunk.aggregator->chunk().num_elems
                         : payload.size,
                     chunk, tensors_->IsLast(chunk));
  const size_t num_bytes = tensors_->MaySum(chunk)
                               ? 4 * chunk.aggregator->chunk().num_elems
                               : payload.size;
  if (num_bytes <= kSmallJobBytes) {
    const absl::StatusOr<bool> is_due = CheckPush(push);
    if (!is_due.ok()) return FailPush(push, is_due.status());
    if (*is_due) Complete(chunk);
    return;
  }
  // Two pointers fit into a std::function without memory of its own.
  pool_->Post(header.priority, [this, &push] {
    const absl::StatusOr<bool> is_due = CheckPush(push);
    if (!is_due.ok()) {
      Post([this, &push, why = is_due.status()] { FailPush(push, why); });
    } else if (*is_due) {
      Post([this, &chunk = *push.chunk] { Complete(chunk); });
    }
  });
}

// Whether answers are due. Once it is taken, `push` may be the next round's.
absl::StatusOr<bool> DistServer::CheckPush(const ArrivedPush& push) {
  const Chunk& chunk = push.chunk->aggregator->chunk();
  const uint64_t round = push.round;
  const TimePoint begin = timeline_.Begin();
  const absl::StatusOr<bool> is_due = TakePush(push, has_far_workers_);
  timeline_.End(chunk, round, is_due.ok() && *is_due ? "sum" : "check", begin);
  return is_due;
}

void DistServer::FailPush(const ArrivedPush& push, const absl::Status& why) {
  const Chunk& chunk = push.chunk->aggregator->chunk();
  Fail(absl::Status(
      why.code(),
      absl::StrCat(ToString(IdOf(push.worker)), ": push of key ", chunk.key,
                   " chunk ", chunk.index, ": ", why.message())));
}

void DistServer::Complete(ServedChunk& chunk) {
  Aggregator& aggregator = *chunk.aggregator;
  metrics_.CountSum(chunk);
  chunk.num_arrived -= static_cast<int>(aggregator.Complete(*this));
  if (aggregator.chunk().key == 0 && aggregator.chunk().index == 0) {
    control_->SetStep(static_cast<int64_t>(aggregator.num_rounds()));
  }
}

void DistServer::Send(const Chunk& chunk, const PayloadFormat& format,
                      const Answer& answer) {
  const bool ends_round =
      !answer.is_given &&
      (answer.type == FrameType::kReply || answer.type == FrameType::kAck);
  if (ledger_.is_open() && ends_round && answer.worker == 0) {
    ledger_.Add(tensors_->names()[chunk.key], chunk, format, answer);
  }
  Session* session = worker_sessions_[static_cast<size_t>(answer.worker)];
  if (session == nullptr) return;  // gone: the scheduler will tell
  if (answer.is_late) metrics_.CountLate(answer.worker);
  const bool is_bare =
      answer.type == FrameType::kAck || answer.type == FrameType::kAgree;
  const RoundResult& result = answer.result;
  ConstBytes payload = is_bare ? ConstBytes() : result.chunk.payload;
  std::shared_ptr<Buffer> owner = result.chunk.buffer;
  std::optional<uint32_t> payload_crc32c = result.payload_crc32c;
  if (answer.type == FrameType::kValue) {
    if (std::shared_ptr<Buffer> rows =
            tensors_->At(chunk).rows.Collect(answer.worker, payload)) {
      payload = rows->view();
      owner = std::move(rows);
      payload_crc32c.reset();
    }
  }
  FrameHeader header{
      .type = answer.type,
      .flags = session->is_unchecked ? kFlagUnchecked : uint16_t{0},
      .epoch = epoch_,
      .step = answer.step,
      .priority = answer.priority,
      .key = chunk.key,
      .chunk = chunk.index,
      .payload_bytes = static_cast<uint32_t>(payload.size),
      .source = static_cast<uint16_t>(rank_),
      .destination = static_cast<uint16_t>(answer.worker),
      .contributors = answer.contributors};
  Write(format, header);
  Write(result.chunk.record, header);
  const bool is_dense = CodecOfResult(header) == 0;  // with rows, some of them
  metrics_.CountAnswer(header, is_bare    ? 0
                               : is_dense ? payload.size
                                          : 4 * chunk.num_elems);
  session->sender->Enqueue(
      {.header = SerializeFrame(header, payload,
                                is_bare ? std::nullopt : payload_crc32c),
       .payload = payload,
       .keep_alive = std::move(owner),
       .priority = answer.priority,
       .on_sent = timeline_.EndsWhenSent(chunk, answer.step)});
}

}  // namespace telegrad
