#include "absl/strings/str_cat.h"
#include "base/cpu_time.h"
#include "base/log.h"
#include "base/short_slices.h"
#include "base/status_macros.h"
#include "kvstore/engine/floats.h"
#include "kvstore/ps/worker.h"
#include "kvstore/ps/worker_rows.h"

namespace telegrad {
namespace {

// After the data connection of a server broke, the scheduler's verdict, which
// names the dead, is waited for this long.
constexpr Duration kVerdictGrace = std::chrono::seconds(5);
constexpr Duration kIoTick = std::chrono::milliseconds(100);

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

void DistWorker::Post(std::function<void()> job) {
  MutexLock lock(&mutex_);
  if (!is_open_) return;  // the tickets have ended
  posted_.push_back(std::move(job));
  if (posted_.size() == 1) transport_->Wake();
}

void DistWorker::RunIo() {
  const ShortSlices slices;
  {
    MutexLock lock(&mutex_);
    io_clock_ = OwnCpuClock();
  }
  std::vector<std::function<void()>> jobs;
  while (!has_failed_) {
    {
      MutexLock lock(&mutex_);
      jobs.swap(posted_);
    }
    for (const auto& job : jobs) job();
    jobs.clear();
    transport_->Progress(Clock::now() + kIoTick);
    CheckLostServers();
  }
  EndIo();
  MutexLock lock(&mutex_);
  io_clock_.reset();
  io_cpu_s_ = ThreadCpuSeconds();
}

// Nobody may touch a caller's memory once its ticket has ended: the transport
// lets go first, then the pool.
void DistWorker::EndIo() {
  is_cutting_ = true;
  for (ServerLink& link : links_) transport_->Close(link.endpoint);
  const TimePoint deadline = Clock::now() + kCloseGrace + kIoTick;
  while (!server_of_.empty() && Clock::now() < deadline) {
    transport_->Progress(deadline);
  }
  if (!server_of_.empty()) LogWarning("a connection does not close");
  std::vector<std::shared_ptr<Ticket::State>> active;
  absl::Status why;
  {
    MutexLock lock(&mutex_);
    is_open_ = false;
    posted_.clear();
  }
  // With it goes whatever a connection that does not close would still touch.
  for (ServerLink& link : links_) link.sender.reset();
  transport_.reset();
  {
    MutexLock lock(&mutex_);
    // Jobs compute and block on nothing.
    while (num_jobs_ > 0) {
      jobs_changed_.WaitUntil(&mutex_, Clock::now() + std::chrono::seconds(1));
    }
    why = failure_;
    if (measurement_ != nullptr) active.push_back(measurement_->ticket);
    if (declaration_ != nullptr) active.push_back(declaration_->ticket);
    for (size_t key = 0; key < tensors_.size(); ++key) {
      const std::shared_ptr<WorkerOp>& op = tensors_[key].active;
      if (op != nullptr) active.push_back(op->ticket);
    }
  }
  for (const auto& ticket : active) ticket->Finish(why);
}

void DistWorker::OnAccept(EndpointId endpoint) { transport_->Close(endpoint); }

absl::StatusOr<Bytes> DistWorker::OnHeader(EndpointId from, ConstBytes bytes,
                                           size_t payload_bytes) {
  const auto found = server_of_.find(from);
  if (found == server_of_.end()) {
    return absl::FailedPreconditionError("a refused connection");
  }
  const int server = found->second;
  absl::StatusOr<Bytes> target = JudgeHeader(server, bytes, payload_bytes);
  if (target.ok() || is_cutting_) return target;
  const absl::Status why = WithExitCode(
      ExitCodeOfFrame(target.status()),
      absl::Status(
          target.status().code(),
          absl::StrCat("server/", server, ": ", target.status().message())));
  if (links_[static_cast<size_t>(server)].is_ready) {
    FailJob(why);
  } else {
    connect_status_ = why;
  }
  return target;
}

absl::StatusOr<Bytes> DistWorker::JudgeHeader(int server, ConstBytes bytes,
                                              size_t payload_bytes) {
  ASSIGN_OR_RETURN(const FrameHeader header, ParseFrameHeader(bytes));
  if (header.payload_bytes != payload_bytes) {
    return absl::DataLossError(absl::StrCat("frame of ", payload_bytes,
                                            " bytes, header says ",
                                            header.payload_bytes));
  }
  ServerLink& link = links_[static_cast<size_t>(server)];
  if (!link.is_ready) {
    if (payload_bytes > kMaxHandshakeBytes || link.is_receiving) {
      return absl::InvalidArgumentError("handshake out of order or too long");
    }
    link.is_receiving = true;
    link.handshake_buffer = Buffer(kMaxHandshakeBytes);
    return link.handshake_buffer.view();
  }
  if (header.type == FrameType::kEcho) return BeginEcho(server, header);
  if (header.type == FrameType::kDeclared || header.type == FrameType::kState) {
    return OnDeclared(server, header);
  }
  ASSIGN_OR_RETURN(WorkerChunk * chunk, FindChunk(server, header));
  ASSIGN_OR_RETURN(const Bytes target, ReplyTarget(*chunk, header));
  chunk->phase = ChunkPhase::kReceiving;  // a second answer is refused
  if (payload_bytes > 0) leaving_.busy().Begin();
  return target;
}

absl::StatusOr<WorkerChunk*> DistWorker::FindChunk(int server,
                                                   const FrameHeader& header) {
  if (!IsAnswer(header.type) || header.epoch != epoch_ ||
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

void DistWorker::OnMessage(EndpointId from, ConstBytes bytes, Bytes payload) {
  const auto found = server_of_.find(from);
  if (found == server_of_.end()) return;
  const FrameHeader header = ReadFrameHeader(bytes);  // judged by OnHeader
  ServerLink& link = links_[static_cast<size_t>(found->second)];
  if (!link.is_ready) return OnHandshake(link, header, payload);
  if (header.type == FrameType::kEcho) return OnEcho(found->second);
  if (header.type == FrameType::kDeclared) return;
  if (header.type == FrameType::kState) {
    std::shared_ptr<Declaration> declaration;
    {
      MutexLock lock(&mutex_);
      declaration = declaration_;
    }
    declaration->ticket->Finish(CheckFramePayload(bytes, payload));
    return;
  }
  OnAnswer(header, bytes, payload);
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
  if (payload.size > 0) leaving_.busy().End();
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

void DistWorker::OnHandshake(ServerLink& link, const FrameHeader& header,
                             Bytes payload) {
  link.is_receiving = false;
  if (header.type == FrameType::kReady) {
    link.is_ready = true;
    link.is_in_memory = transport_->IsInMemory(link.endpoint);
    return;
  }
  const absl::string_view message(reinterpret_cast<char*>(payload.data),
                                  payload.size);
  absl::StatusOr<std::string> proof =
      header.type == FrameType::kChallenge
          ? link.handshake->OnChallenge(message)
          : absl::InvalidArgumentError("unexpected handshake message");
  if (!proof.ok()) {
    connect_status_ = proof.status();
    return;
  }
  SendHandshake(link, FrameType::kProof, *proof);
}

void DistWorker::OnClosed(EndpointId endpoint, const absl::Status& why) {
  const auto found = server_of_.find(endpoint);
  if (found == server_of_.end()) return;
  const int server = found->second;
  server_of_.erase(found);
  if (is_cutting_ || has_failed_) return;
  ServerLink& link = links_[static_cast<size_t>(server)];
  group_.SuspectPeer({Role::kServer, server}, why.message());
  if (!link.is_ready) {
    connect_status_ = WithExitCode(
        ExitCode::kServerLost, absl::UnavailableError(absl::StrCat(
                                   "server/", server, ": ", why.message())));
    return;
  }
  link.is_lost = true;
  link.lost_at = Clock::now();
  link.lost_why = why;
}

absl::Status DistWorker::VerdictOr(const absl::Status& lost) {
  const TimePoint until = Clock::now() + kVerdictGrace;
  while (failure().ok() && Clock::now() < until) {
    transport_->Progress(Clock::now() + std::chrono::milliseconds(10));
  }
  const absl::Status verdict = failure();
  return verdict.ok() ? lost : verdict;
}

void DistWorker::CheckLostServers() {
  for (size_t i = 0; i < links_.size(); ++i) {
    ServerLink& link = links_[i];
    if (!link.is_lost || Clock::now() - link.lost_at < kVerdictGrace) continue;
    link.is_lost = false;
    FailJob(WithExitCode(ExitCode::kServerLost,
                         absl::UnavailableError(absl::StrCat(
                             "server/", i, ": ", link.lost_why.message()))));
  }
}

}  // namespace telegrad
