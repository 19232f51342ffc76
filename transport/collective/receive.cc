#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "transport/collective/mesh.h"

// What a mesh hears.
namespace telegrad::collective {
namespace {

constexpr size_t kMaxInbox =
    1024;  // messages; a rank is a few collectives ahead

bool IsExitCode(uint32_t code) {
  return code > 0 && code < 128 &&
         absl::string_view(ExitReason(static_cast<ExitCode>(code))) !=
             "unknown";
}

}  // namespace

// False after it broke the group because `from` is elsewhere than this rank.
bool Mesh::IsOfThisCollective(int from, const Header& header) {
  if (header.sequence == sequence_ && header.signature == signature_) {
    return true;
  }
  Break(WithExitCode(ExitCode::kMismatch,
                     absl::FailedPreconditionError(absl::StrCat(
                         "collectives differ: rank ", rank(), " is in ", Now(),
                         ", rank ", from, " in collective ", header.sequence,
                         " (", Describe(header.signature), ")"))));
  return false;
}

absl::StatusOr<Bytes> Mesh::OnHeader(EndpointId from, ConstBytes header,
                                     size_t payload_bytes) {
  ++num_events_;
  ASSIGN_OR_RETURN(const Header heard, Decode(header));
  if (heard.kind == MessageKind::kHello) {
    if (payload_bytes > 0) return absl::InvalidArgumentError("hello too long");
    RETURN_IF_ERROR(ReceiveHello(from, heard));
    return Bytes();
  }
  const auto found = rank_of_.find(from);
  if (found == rank_of_.end()) {
    return absl::InvalidArgumentError("endpoint has not said its rank");
  }
  absl::StatusOr<Bytes> place =
      ReceivePeer(found->second, heard, payload_bytes);
  // This closes the endpoint; for the group that is an error of ours.
  if (!place.ok()) Break(place.status());
  return place;
}

absl::StatusOr<Bytes> Mesh::ReceivePeer(int from, const Header& header,
                                        size_t bytes) {
  Peer& peer = peers_[from];
  if (header.kind == MessageKind::kData && sink_ != nullptr &&
      header.sequence == sequence_ && header.signature == signature_) {
    return sink_->OnDataHeader(from, header.index, bytes);
  }
  if (bytes > kMaxEagerBytes && header.kind != MessageKind::kData) {
    return absl::ResourceExhaustedError(
        absl::StrCat(Now(), ": rank ", from, " sent ", bytes,
                     " bytes unasked, at most ", kMaxEagerBytes));
  }
  if (header.kind == MessageKind::kData) {
    if (broken_.ok() && IsOfThisCollective(from, header)) {
      Break(absl::InternalError(
          absl::StrCat(Now(), ": rank ", from, " sent data unasked")));
    }
    return Discard(bytes);
  }
  if (peer.announced.size() + peer.inbox.size() >= kMaxInbox) {
    return absl::ResourceExhaustedError(
        absl::StrCat(Now(), ": rank ", from, " is more than ", kMaxInbox,
                     " messages ahead"));
  }
  if (header.kind != MessageKind::kAbort && header.sequence <= sequence_) {
    (void)IsOfThisCollective(from, header);  // else it is heard at once
  }
  Message& message =
      peer.announced.emplace_back(Message{.header = header, .bytes = bytes});
  if (bytes == 0) return Bytes();
  message.payload = pool_.Get(bytes);
  return message.payload.view();
}

// The endpoint stays open, so that the other side hears why this one ends.
absl::StatusOr<Bytes> Mesh::Discard(size_t bytes) {
  if (bytes > options_.chunk_bytes) return broken_;
  if (discarded_.size() == 0) discarded_ = Buffer(options_.chunk_bytes);
  return Bytes(discarded_.data(), bytes);
}

void Mesh::OnMessage(EndpointId from, ConstBytes header, Bytes) {
  ++num_events_;
  const auto found = rank_of_.find(from);
  if (found == rank_of_.end()) return;
  Peer& peer = peers_[found->second];
  const absl::StatusOr<Header> heard = Decode(header);
  if (!heard.ok() || heard->kind == MessageKind::kHello) return;
  if (heard->kind == MessageKind::kData) {
    if (sink_ != nullptr && broken_.ok()) sink_->OnData(found->second);
    return;
  }
  if (peer.announced.empty()) return;
  Message message = std::move(peer.announced.front());
  peer.announced.pop_front();
  if (message.header.kind == MessageKind::kAbort) {
    return ReceiveAbort(message);
  }
  peer.inbox.push_back(std::move(message));
}

void Mesh::ReceiveAbort(const Message& message) {
  const absl::string_view said(
      reinterpret_cast<const char*>(message.payload.data()), message.bytes);
  const ExitCode code = IsExitCode(message.header.index)
                            ? static_cast<ExitCode>(message.header.index)
                            : ExitCode::kInternal;
  absl::Status status = absl::AbortedError(said);
  if (code == ExitCode::kPeerDied) status = absl::UnavailableError(said);
  if (code == ExitCode::kMismatch) status = absl::FailedPreconditionError(said);
  if (code == ExitCode::kTimeout) status = absl::DeadlineExceededError(said);
  Break(WithExitCode(code, std::move(status)));
  abort_text_ = std::string(said);
}

void Mesh::OnClosed(EndpointId endpoint, const absl::Status& why) {
  ++num_events_;
  const auto found = rank_of_.find(endpoint);
  if (found == rank_of_.end()) return;
  Peer& peer = peers_[found->second];
  rank_of_.erase(found);
  peer.gone = why.ok() ? absl::UnavailableError("closed") : why;
  peer.announced.clear();
}

}  // namespace telegrad::collective
