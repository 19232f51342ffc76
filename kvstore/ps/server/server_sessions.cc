#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kvstore/ps/server/server.h"

namespace telegrad {
namespace {

// Connections without a proven identity, beside those of workers that are not
// there yet: all of them come at once.
constexpr size_t kMaxStrangers = 64;

}  // namespace

void DistServer::OnAccept(EndpointId endpoint) {
  const auto missing = static_cast<size_t>(
      std::ranges::count(worker_sessions_, static_cast<Session*>(nullptr)));
  const auto cut = [this](EndpointId id) { transport_->Close(id); };
  if (!strangers_.MakeRoom(kMaxStrangers + missing, cut)) return cut(endpoint);
  strangers_.Add(endpoint);
  Session& session = sessions_[endpoint];
  session.endpoint = endpoint;
  session.handshake = std::make_unique<HandshakeServer>(
      options_.job.secret, options_.job.job_id, NodeId{Role::kServer, rank_});
  session.sender = std::make_unique<FrameSender>(transport_.get(), endpoint,
                                                 kSendWindowBytes, &leaving_);
}

void DistServer::OnClosed(EndpointId endpoint, const absl::Status& why) {
  const auto found = sessions_.find(endpoint);
  if (found == sessions_.end()) return;
  strangers_.Remove(endpoint);
  const int worker = found->second.worker;
  if (worker >= 0) {
    worker_sessions_[static_cast<size_t>(worker)] = nullptr;
    if (absl::IsDataLoss(why)) {
      Fail(absl::DataLossError(
          absl::StrCat(ToString(IdOf(worker)), ": ", why.message())));
    }
    lost_.push_back({IdOf(worker), Clock::now(), std::string(why.message())});
    if (worker < num_workers_) tensors_->OnLeft(worker, *this);
  }
  sessions_.erase(found);
}

absl::StatusOr<Bytes> DistServer::OnHeader(EndpointId from, ConstBytes bytes,
                                           size_t payload_bytes) {
  const auto found = sessions_.find(from);
  if (found == sessions_.end()) {
    return absl::FailedPreconditionError("a refused connection");
  }
  Session& session = found->second;
  absl::StatusOr<Bytes> target = JudgeHeader(session, bytes, payload_bytes);
  if (!target.ok() && session.worker >= 0) {
    Fail(absl::Status(target.status().code(),
                      absl::StrCat(ToString(IdOf(session.worker)), ": ",
                                   target.status().message())));
  }
  return target;
}

absl::StatusOr<Bytes> DistServer::JudgeHeader(Session& session,
                                              ConstBytes bytes,
                                              size_t payload_bytes) {
  ASSIGN_OR_RETURN(const FrameHeader header, ParseFrameHeader(bytes));
  if (header.payload_bytes != payload_bytes) {
    return absl::DataLossError(absl::StrCat("frame of ", payload_bytes,
                                            " bytes, header says ",
                                            header.payload_bytes));
  }
  if (session.worker >= 0) return BeginMessage(session, header);
  // One at a time: the buffer of the first is not to be replaced.
  if (payload_bytes > kMaxHandshakeBytes || session.is_receiving) {
    return absl::InvalidArgumentError("not a handshake");
  }
  session.is_receiving = true;
  session.handshake_buffer = Buffer(kMaxHandshakeBytes);
  return session.handshake_buffer.view();
}

void DistServer::OnMessage(EndpointId from, ConstBytes bytes, Bytes payload) {
  const auto found = sessions_.find(from);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  const FrameHeader header = ReadFrameHeader(bytes);
  if (session.worker < 0) {
    session.is_receiving = false;
    absl::Status status = CheckFramePayload(bytes, payload);
    if (status.ok()) {
      status =
          OnHandshake(session, header,
                      {reinterpret_cast<char*>(payload.data), payload.size});
    }
    if (!status.ok()) {
      metrics_.CountRefusedConnection();
      LogWarning("refused a connection: ", status.message());
      transport_->Close(from);
    }
    return;
  }
  NoteFrame(recorder_, static_cast<size_t>(session.worker), header, false);
  const absl::Status status = HandleMessage(session, header, bytes, payload);
  if (!status.ok()) {
    Fail(absl::Status(
        status.code(),
        absl::StrCat(ToString(IdOf(session.worker)), ": ", status.message())));
  }
}

absl::Status DistServer::OnHandshake(Session& session,
                                     const FrameHeader& header,
                                     absl::string_view message) {
  if (header.type == FrameType::kHello && !session.has_challenged) {
    ASSIGN_OR_RETURN(const std::string challenge,
                     session.handshake->OnHello(message));
    session.has_challenged = true;
    Tell(session, FrameType::kChallenge, challenge);
    return absl::OkStatus();
  }
  if (header.type == FrameType::kProof && session.has_challenged) {
    ASSIGN_OR_RETURN(const Identity peer, session.handshake->OnProof(message));
    return Admit(session, peer);
  }
  return absl::InvalidArgumentError("handshake messages out of order");
}

absl::Status DistServer::Admit(Session& session, const Identity& peer) {
  const int worker = peer.node.rank;
  if (peer.node.role != Role::kWorker || worker < 0 ||
      worker >= static_cast<int>(ranks_.size()) || peer.epoch != epoch_ ||
      worker_sessions_[static_cast<size_t>(worker)] != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(ToString(peer.node), " of epoch ", peer.epoch,
                     " is not a worker of this job, or is there already"));
  }
  strangers_.Remove(session.endpoint);
  session.worker = worker;
  session.handshake = nullptr;
  worker_sessions_[static_cast<size_t>(worker)] = &session;
  session.is_unchecked = path_.IsUnchecked(*transport_, session.endpoint);
  if (!session.is_unchecked || transport_->IsSealed(session.endpoint)) {
    has_far_workers_ = true;
  }
  Tell(session, FrameType::kReady, "");
  return absl::OkStatus();
}

}  // namespace telegrad
