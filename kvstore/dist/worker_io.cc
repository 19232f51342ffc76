#include "absl/strings/str_cat.h"
#include "base/cpu_time.h"
#include "base/log.h"
#include "base/short_slices.h"
#include "base/status_macros.h"
#include "kvstore/dist/worker.h"

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
      return FrameType::kValue;
    case OpKind::kPushPull:
      return FrameType::kReply;
    case OpKind::kInit:
    case OpKind::kPush:
      return FrameType::kAck;
  }
  return FrameType::kAck;
}

}  // namespace

void DistWorker::Post(std::function<void()> job) {
  {
    MutexLock lock(&mutex_);
    posted_.push_back(std::move(job));
    if (posted_.size() > 1) return;  // the first one wakes
  }
  transport_->Wake();
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
  std::vector<std::shared_ptr<WorkerOp>> active;
  std::shared_ptr<Measurement> measured;
  absl::Status why;
  {
    MutexLock lock(&mutex_);
    while (num_jobs_ > 0) {
      jobs_changed_.WaitUntil(&mutex_, Clock::now() + std::chrono::seconds(1));
    }
    posted_.clear();
    why = failure_;
    measured = measurement_;
    for (const auto& tensor : tensors_) {
      if (tensor->active != nullptr) active.push_back(tensor->active);
    }
  }
  for (const auto& op : active) op->ticket->Finish(why);
  if (measured != nullptr) measured->ticket->Finish(why);
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
      absl::IsDataLoss(target.status()) ? ExitCode::kIntegrity
                                        : ExitCode::kMismatch,
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
  ASSIGN_OR_RETURN(WorkerChunk * chunk, FindChunk(server, header));
  ASSIGN_OR_RETURN(const Bytes target, ReplyTarget(*chunk, header));
  chunk->phase = ChunkPhase::kReceiving;  // a second answer is refused
  return target;
}

absl::StatusOr<WorkerChunk*> DistWorker::FindChunk(int server,
                                                   const FrameHeader& header) {
  if (!IsAnswer(header.type) || header.epoch != epoch_ ||
      header.source != server || header.destination != rank_ ||
      header.key >= tensors_.size() ||
      header.chunk >= tensors_[header.key]->chunks.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame type ", static_cast<int>(header.type), " key ",
                     header.key, " chunk ", header.chunk, " epoch ",
                     header.epoch, " from ", header.source, " to ",
                     header.destination, " is not for worker/", rank_));
  }
  WorkerChunk* chunk = tensors_[header.key]->chunks[header.chunk].get();
  const ChunkPhase expected = header.type == FrameType::kAgree
                                  ? ChunkPhase::kProposing
                                  : ChunkPhase::kSent;
  if (chunk->phase.load() != expected || chunk->plan.server != server ||
      header.step != chunk->op->step ||
      (expected == ChunkPhase::kSent &&
       header.type != AnswerTo(chunk->op->kind))) {
    return absl::InvalidArgumentError(
        absl::StrCat("key ", header.key, " chunk ", header.chunk, " step ",
                     header.step, ": nothing of the kind was asked for"));
  }
  return chunk;
}

// A pull fetches the last round's result, whose stage the header tells.
ChunkStage DistWorker::ReplyStage(const WorkerChunk& chunk,
                                  const FrameHeader& header) {
  return chunk.op->kind == OpKind::kPull ? header.stage
                                         : chunk.stages.At(chunk.op->step);
}

absl::StatusOr<Bytes> DistWorker::ReplyTarget(WorkerChunk& chunk,
                                              const FrameHeader& header) {
  const WorkerOp& op = *chunk.op;
  const bool is_bare =
      header.type == FrameType::kAgree || header.type == FrameType::kAck;
  if (!chunk.stages.Knows(header.stage) ||
      !chunk.stages.Knows(header.proposed_stage)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "key ", header.key, " chunk ", header.chunk, ": answer with stages ",
        static_cast<int>(header.stage), " and ",
        static_cast<int>(header.proposed_stage), " of a chunk with ",
        chunk.stages.codings().size(), " codecs"));
  }
  const ChunkCoding& coding = chunk.stages.Of(ReplyStage(chunk, header));
  // Before the first round a pull fetches the initial value, dense.
  const bool is_dense = coding.format == ReplyFormat::kDense ||
                        (op.kind == OpKind::kPull && op.step == 0);
  size_t expected = 0;
  if (!is_bare) {
    expected = is_dense
                   ? 4 * chunk.plan.num_elems
                   : ReplyBytes(*coding.codec, coding.format, num_workers_);
    if (!is_dense && coding.format == ReplyFormat::kCodes &&
        !coding.codec->traits().constant_width && header.payload_bytes > 0) {
      expected = std::min<size_t>(expected, header.payload_bytes);
    }
  }
  const auto mode =
      static_cast<uint8_t>(is_dense ? ReplyFormat::kDense : coding.format);
  if (header.payload_bytes != expected ||
      (!is_bare &&
       (header.reply_mode != mode || header.contributors != num_workers_))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "key ", header.key, " chunk ", header.chunk, " step ", header.step,
        ": answer of ", header.payload_bytes, " bytes, format ",
        header.reply_mode, ", ", header.contributors, " contributors; ",
        expected, " bytes, format ", mode, ", ", num_workers_,
        " were expected"));
  }
  if (is_bare) return Bytes();
  if (!is_dense) {
    chunk.reply_bytes = expected;
    return Bytes(chunk.reply.data(), expected);
  }
  return Bytes(op.out.data + 4 * chunk.plan.begin, expected);
}

void DistWorker::OnMessage(EndpointId from, ConstBytes bytes, Bytes payload) {
  const auto found = server_of_.find(from);
  const absl::StatusOr<FrameHeader> header = ParseFrameHeader(bytes);
  if (found == server_of_.end() || !header.ok()) return;  // judged before
  ServerLink& link = links_[static_cast<size_t>(found->second)];
  if (!link.is_ready) return OnHandshake(link, *header, payload);
  if (header->type == FrameType::kEcho) return OnEcho(found->second);
  WorkerTensor& tensor = *tensors_[header->key];
  WorkerChunk& chunk = *tensor.chunks[header->chunk];
  if (counts_traffic_) {
    ++num_frames_;
    pull_wire_bytes_ += static_cast<int64_t>(bytes.size + payload.size);
    if (header->type == FrameType::kReply ||
        header->type == FrameType::kValue) {
      pull_raw_bytes_ += static_cast<int64_t>(4 * chunk.plan.num_elems);
    }
  }
  std::copy(bytes.data, bytes.data + bytes.size, chunk.reply_header.begin());
  const int priority = chunk.op->priority;
  const size_t num_bytes = 4 * chunk.plan.num_elems;
  if (header->type == FrameType::kAgree) {
    chunk.scales = {header->scale, header->scale};
    chunk.phase = ChunkPhase::kEncoding;
    PostJob(priority, num_bytes,
            [this, &tensor, &chunk] { EncodeChunk(tensor, chunk); });
    return;
  }
  chunk.phase = ChunkPhase::kDecoding;
  PostJob(priority, num_bytes,
          [this, &tensor, &chunk] { DecodeChunk(tensor, chunk); });
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
  control_->SuspectPeer({Role::kServer, server}, why.message());
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
