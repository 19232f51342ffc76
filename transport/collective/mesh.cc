#include "transport/collective/mesh.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"

namespace telegrad::collective {
namespace {

constexpr size_t kMaxAbortBytes = 1024;
constexpr Duration kAbortGrace = std::chrono::seconds(1);

}  // namespace

std::string Mesh::Now() const {
  return absl::StrCat("collective ", sequence_, " (", Describe(signature_),
                      ")");
}

void Mesh::Break(absl::Status why) {
  if (broken_.ok()) broken_ = std::move(why);
}

absl::Status Mesh::Lost(int rank) const {
  return WithExitCode(
      ExitCode::kPeerDied,
      absl::UnavailableError(absl::StrCat(
          Now(), ": rank ", rank, " is lost: ", peers_[rank].gone.message())));
}

absl::Status Mesh::CheckPeer(int rank) const {
  return peers_[rank].gone.ok() ? absl::OkStatus() : Lost(rank);
}

absl::Status Mesh::TimedOut(const std::string& awaited) {
  return absl::DeadlineExceededError(absl::StrCat(
      Now(), ": rank ", rank(), " heard nothing for ",
      ToSeconds(options_.timeout), " s while it waited for ", awaited));
}

TransportInfo Mesh::info() const {
  if (context_ != nullptr) return context_->info();
  return {options_.transport.name, "closed"};
}

absl::Status Mesh::Begin(const Signature& signature) {
  if (!broken_.ok()) return broken_;
  ++sequence_;
  signature_ = signature;
  // What was heard before there was something to compare it with.
  for (int peer = 0; peer < world_size(); ++peer) {
    if (peers_[peer].inbox.empty()) continue;
    const Header& header = peers_[peer].inbox.front().header;
    if (header.sequence > sequence_) continue;  // ahead
    if (!IsOfThisCollective(peer, header)) return broken_;
  }
  return absl::OkStatus();
}

// The caller may not come back for long, and transports move large messages
// only while both sides make progress.
absl::Status Mesh::End() {
  return Wait(
      [this] { return num_pending_ == 0; },
      [this] { return absl::StrCat(num_pending_, " messages to be taken"); });
}

absl::Status Mesh::Fail(absl::Status why) {
  Break(std::move(why));
  sink_ = nullptr;
  if (context_ == nullptr) return broken_;
  SendAbort();
  Close();
  return broken_;
}

// Also what was heard from another rank: whoever sees this rank close its
// connections has to know why.
void Mesh::SendAbort() {
  std::string text = abort_text_;
  if (text.empty()) {
    text = absl::StrCat("rank ", rank(), " gave up: ", broken_.message());
  }
  text.resize(std::min(text.size(), kMaxAbortBytes));
  const auto code = static_cast<uint32_t>(ExitCodeOf(broken_));
  const auto owned = std::make_shared<const std::string>(std::move(text));
  for (int peer = 0; peer < world_size(); ++peer) {
    if (peer == rank() || !peers_[peer].gone.ok()) continue;
    // One that cannot be told notices by itself.
    (void)Post(peer, MessageKind::kAbort, code, {owned->data(), owned->size()},
               [owned](const absl::Status&) {});
  }
  const TimePoint deadline = Clock::now() + kAbortGrace;
  while (num_pending_ > 0 && Clock::now() < deadline) {
    context_->Progress(deadline);
  }
}

absl::Status Mesh::Post(int to, MessageKind kind, uint32_t index,
                        ConstBytes payload, SendDone done) {
  if (!peers_[to].gone.ok()) return Lost(to);
  const auto header =
      Encode({.kind = kind,
              .rank = static_cast<uint32_t>(rank()),
              .index = index,
              .sequence = kind == MessageKind::kHello ? digest_ : sequence_,
              .signature = signature_});
  const absl::Status sent = context_->Send(
      peers_[to].endpoint, {header.data(), header.size()}, payload,
      [this, done = std::move(done)](const absl::Status& status) {
        ++num_events_;
        --num_pending_;
        if (done) done(status);
      });
  if (!sent.ok()) {
    peers_[to].gone = sent;
    return Lost(to);
  }
  ++num_pending_;
  ++traffic_.num_messages;
  traffic_.payload_bytes += static_cast<int64_t>(payload.size);
  traffic_.header_bytes += static_cast<int64_t>(header.size());
  return absl::OkStatus();
}

absl::Status Mesh::SendEager(int to, uint32_t index, ConstBytes payload) {
  if (payload.size == 0) {
    return Post(to, MessageKind::kEager, index, {}, nullptr);
  }
  Buffer copy = pool_.Get(payload.size);
  std::copy_n(payload.data, payload.size, copy.data());
  const ConstBytes view(copy.data(), payload.size);
  // std::function wants what it holds to be copyable.
  const auto owned = std::make_shared<Buffer>(std::move(copy));
  return Post(
      to, MessageKind::kEager, index, view,
      [this, owned](const absl::Status&) { pool_.Put(std::move(*owned)); });
}

absl::Status Mesh::SendReady(int to) {
  return Post(to, MessageKind::kReady, 0, {}, nullptr);
}

absl::Status Mesh::SendData(int to, uint32_t index, ConstBytes payload,
                            SendDone done) {
  return Post(to, MessageKind::kData, index, payload, std::move(done));
}

absl::StatusOr<Buffer> Mesh::Take(int from, uint32_t index, size_t bytes) {
  Peer& peer = peers_[from];
  RETURN_IF_ERROR(
      Wait([&peer] { return !peer.inbox.empty() || !peer.gone.ok(); },
           [from] { return absl::StrCat("rank ", from); }));
  if (peer.inbox.empty()) return Lost(from);
  Message message = std::move(peer.inbox.front());
  peer.inbox.pop_front();
  if (!IsOfThisCollective(from, message.header)) return broken_;
  if (message.header.kind != MessageKind::kEager ||
      message.header.index != index || message.bytes != bytes) {
    return absl::InternalError(absl::StrCat(
        Now(), ": rank ", from, " sent piece ", message.header.index, " of ",
        message.bytes, " bytes, piece ", index, " of ", bytes, " is due"));
  }
  return std::move(message.payload);
}

absl::StatusOr<bool> Mesh::IsReady(int from) {
  Peer& peer = peers_[from];
  if (peer.inbox.empty()) {
    RETURN_IF_ERROR(CheckPeer(from));
    return false;
  }
  const Header header = peer.inbox.front().header;
  if (!IsOfThisCollective(from, header)) return broken_;
  if (header.kind != MessageKind::kReady) {
    return absl::InternalError(
        absl::StrCat(Now(), ": rank ", from, " sent a piece out of order"));
  }
  peer.inbox.pop_front();
  return true;
}

// Afterwards nobody reads or writes the callers' memory any more.
void Mesh::Close() {
  if (context_ == nullptr) return;
  keeper_.reset();
  std::vector<EndpointId> open;
  for (const auto& [endpoint, peer] : rank_of_) open.push_back(endpoint);
  for (EndpointId endpoint : open) context_->Close(endpoint);
  const TimePoint deadline = Clock::now() + 2 * kCloseGrace;
  while (!rank_of_.empty() && Clock::now() < deadline) {
    context_->Progress(deadline);
  }
  context_.reset();
}

Mesh::~Mesh() { Close(); }

}  // namespace telegrad::collective
