#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/status_macros.h"
#include "kvstore/dist/server.h"
#include "kvstore/dist/small_jobs.h"

namespace telegrad {
namespace {

constexpr size_t kMaxDuplicates = 64;  // of one worker, while they arrive

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

absl::StatusOr<ChunkRounds*> DistServer::FindChunk(const FrameHeader& header) {
  if (header.key >= chunks_.size() ||
      header.chunk >= chunks_[header.key].size() ||
      chunks_[header.key][header.chunk] == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "key ", header.key, " chunk ", header.chunk, " is not served here"));
  }
  return chunks_[header.key][header.chunk].get();
}

absl::StatusOr<Bytes> DistServer::BeginMessage(Session& session,
                                               const FrameHeader& header) {
  RETURN_IF_ERROR(CheckRoute(session, header));
  if (header.type == FrameType::kProbe) return BeginProbe(session, header);
  if (*session.num_probes == 0) session.probe_buffer = Buffer();
  ASSIGN_OR_RETURN(ChunkRounds * chunk, FindChunk(header));
  switch (header.type) {
    case FrameType::kPush: {
      ASSIGN_OR_RETURN(const ChunkRounds::Verdict verdict,
                       chunk->Begin(session.worker, header));
      if (verdict == ChunkRounds::Verdict::kAccept) {
        return chunk->PushTarget(session.worker);
      }
      if (session.discards.size() >= kMaxDuplicates) {
        return absl::ResourceExhaustedError(absl::StrCat(
            kMaxDuplicates, " duplicates of pushes are on their way"));
      }
      session.discards.emplace_back(header.payload_bytes);
      return session.discards.back().view();
    }
    case FrameType::kInit: {
      if (session.worker != 0 || !config_.has_values) {
        return absl::InvalidArgumentError(absl::StrCat(
            "initial value for key ", header.key, " was not expected"));
      }
      return chunk->BeginValue(header.payload_bytes);
    }
    case FrameType::kPull:
    case FrameType::kPropose:
      if (header.payload_bytes == 0) return Bytes();
      break;
    default:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("frame of type ", static_cast<int>(header.type), " with ",
                   header.payload_bytes, " bytes is not for a server"));
}

absl::Status DistServer::HandleMessage(Session& session,
                                       const FrameHeader& header,
                                       ConstBytes header_bytes, Bytes payload) {
  if (header.type == FrameType::kProbe) {
    AnswerProbe(session, header);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(ChunkRounds * chunk, FindChunk(header));
  if (header.type == FrameType::kPush) {
    const auto duplicate = std::find_if(
        session.discards.begin(), session.discards.end(),
        [&](const Buffer& buffer) { return buffer.data() == payload.data; });
    if (duplicate != session.discards.end()) {
      session.discards.erase(duplicate);
      ++num_duplicates_;
      return absl::OkStatus();
    }
    FrameHeaderBytes copy;
    std::copy_n(header_bytes.data, copy.size(), copy.begin());
    Hand(*pool_, -static_cast<int>(header.key), payload.size,
         [this, worker = session.worker, header, copy, payload, chunk] {
           CheckPush(worker, header, copy, payload, *chunk);
         });
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckFramePayload(header_bytes, payload));
  switch (header.type) {
    case FrameType::kInit:
      return HandleInit(session, *chunk);
    case FrameType::kPull:
      return HandlePull(session, header, *chunk);
    default:
      return HandlePropose(session, header, *chunk);
  }
}

absl::Status DistServer::HandleInit(Session& session, ChunkRounds& chunk) {
  chunk.FinishValue();
  SendToWorker(session.worker, chunk, FrameType::kAck, {});
  AnswerPulls(chunk);
  return absl::OkStatus();
}

absl::Status DistServer::HandlePull(Session& session, const FrameHeader& header,
                                    ChunkRounds& chunk) {
  // A worker has one operation per key, so no round can end between.
  if (header.step != chunk.step() ||
      (header.step == 0 && !config_.has_values)) {
    return absl::InvalidArgumentError(
        absl::StrCat("pull of key ", header.key, " after ", header.step,
                     " rounds, of which there were ", chunk.step()));
  }
  for (const WaitingPull& pull : waiting_pulls_) {
    if (pull.chunk == &chunk && pull.worker == session.worker) {
      return absl::InvalidArgumentError(
          absl::StrCat("a second pull of key ", header.key, " chunk ",
                       header.chunk, " before the answer"));
    }
  }
  waiting_pulls_.push_back({session.worker, header.step, &chunk});
  AnswerPulls(chunk);
  return absl::OkStatus();
}

void DistServer::AnswerPulls(ChunkRounds& chunk) {
  const RoundResult* current = chunk.current();
  if (current == nullptr) return;
  std::erase_if(waiting_pulls_, [&](const WaitingPull& pull) {
    if (pull.chunk != &chunk || pull.step != chunk.step()) return false;
    SendToWorker(pull.worker, chunk, FrameType::kValue, *current);
    return true;
  });
}

absl::Status DistServer::HandlePropose(Session& session,
                                       const FrameHeader& header,
                                       ChunkRounds& chunk) {
  ASSIGN_OR_RETURN(const bool is_agreed,
                   chunk.Propose(session.worker, header.proposed_scale));
  if (!is_agreed) return absl::OkStatus();
  const RoundResult agreed{.scale = chunk.AgreedScale(),
                           .agreed = chunk.AgreedScale()};
  for (int worker = 0; worker < num_workers_; ++worker) {
    SendToWorker(worker, chunk, FrameType::kAgree, agreed);
  }
  return absl::OkStatus();
}

// On the pool: the payload is whole, its codes are codes.
void DistServer::CheckPush(int worker, const FrameHeader& header,
                           const FrameHeaderBytes& header_bytes, Bytes payload,
                           ChunkRounds& chunk) {
  absl::Status status =
      CheckFramePayload({header_bytes.data(), header_bytes.size()}, payload);
  if (status.ok()) status = chunk.codec().Validate(payload);
  Post([this, worker, header, status = std::move(status), &chunk] {
    if (!status.ok()) {
      return Fail(absl::Status(
          status.code(),
          absl::StrCat("worker/", worker, ": push of key ", header.key,
                       " chunk ", header.chunk, ": ", status.message())));
    }
    if (!chunk.Arrive(worker, header)) return;
    Hand(*pool_, -static_cast<int>(header.key), 4 * chunk.plan().num_elems,
         [this, &chunk, is_far = HasFarWorkers()] { SumRound(chunk, is_far); });
  });
}

bool DistServer::HasFarWorkers() const {
  return std::any_of(worker_sessions_.begin(), worker_sessions_.end(),
                     [&](const Session* session) {
                       return session != nullptr &&
                              !transport_->IsInMemory(session->endpoint);
                     });
}

// Alone with the chunk: all slots have arrived.
void DistServer::SumRound(ChunkRounds& chunk, bool is_far) {
  auto result = std::make_shared<absl::StatusOr<RoundResult>>(chunk.Sum());
  if (is_far && result->ok()) {
    const ConstBytes payload = (*result)->payload;
    (*result)->payload_crc32c = Crc32c(payload.data, payload.size);
  }
  Post([this, &chunk, result] {
    if (!result->ok()) return Fail(result->status());
    FinishRound(chunk, **std::move(result));
  });
}

void DistServer::FinishRound(ChunkRounds& chunk, RoundResult result) {
  for (int worker = 0; worker < num_workers_; ++worker) {
    SendToWorker(
        worker, chunk,
        chunk.wants_reply(worker) ? FrameType::kReply : FrameType::kAck,
        result);
  }
  chunk.Finish(std::move(result));
  if (chunk.plan().key == 0 && chunk.plan().index == 0) {
    control_->SetStep(static_cast<int64_t>(chunk.step()));
  }
  AnswerPulls(chunk);
}

void DistServer::SendToWorker(int worker, const ChunkRounds& chunk,
                              FrameType type, const RoundResult& result) {
  Session* session = worker_sessions_[static_cast<size_t>(worker)];
  if (session == nullptr) return;  // gone: the scheduler will tell
  const bool is_bare = type == FrameType::kAck || type == FrameType::kAgree;
  const ConstBytes payload = is_bare ? ConstBytes() : result.payload;
  const auto checksum = is_bare ? std::nullopt : result.payload_crc32c;
  const CodecTraits& traits = chunk.codec().traits();
  const FrameHeader header{
      .type = type,
      .flags = transport_->IsInMemory(session->endpoint) ? kFlagInMemory
                                                         : uint16_t{0},
      .epoch = epoch_,
      .step = chunk.step(),
      .sequence = next_sequence_++,
      .key = chunk.plan().key,
      .chunk = chunk.plan().index,
      .payload_bytes = static_cast<uint32_t>(payload.size),
      .source = static_cast<uint16_t>(rank_),
      .destination = static_cast<uint16_t>(worker),
      .contributors = static_cast<uint16_t>(num_workers_),
      .scale = result.scale,
      .codec = static_cast<uint8_t>(traits.id),
      .codec_version = traits.wire_version,
      .reply_mode = static_cast<uint8_t>(result.format),
      .packing = chunk.codec().packing(),
      .stage = result.stage,
      .proposed_stage = result.agreed_stage,
      .proposed_scale = result.agreed,
  };
  session->sender->Enqueue({.header = SerializeFrame(header, payload, checksum),
                            .payload = payload,
                            .keep_alive = result.buffer,
                            .priority = -static_cast<int>(chunk.plan().key)});
}

}  // namespace telegrad
