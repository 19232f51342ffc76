#include "kvstore/collective/mesh.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"

namespace telegrad::collective {
namespace {

// Messages; a rank is a few collectives ahead.
constexpr size_t kMaxInbox = 1024;
// Who have not said their rank, beside all ranks: these may come at once.
constexpr size_t kMaxStrangers = 64;
constexpr Duration kAbortGrace = std::chrono::seconds(1);

}  // namespace

absl::Status Mesh::CheckPeer(int rank) const {
  const absl::Status& gone = ranks_.gone(rank);
  if (gone.ok()) return gone;
  return WithExitCode(
      absl::IsDataLoss(gone) ? ExitCode::kIntegrity : ExitCode::kPeerDied,
      absl::UnavailableError(absl::StrCat(agreement_.Now(), ": rank ", rank,
                                          " is lost: ", gone.message())));
}

absl::Status Mesh::TimedOut(const std::string& awaited) {
  return absl::DeadlineExceededError(absl::StrCat(
      agreement_.Now(), ": rank ", rank(), " received nothing for ",
      ToSeconds(options_.timeout), " s while it waited for ", awaited));
}

TransportInfo Mesh::info() const {
  if (context_ != nullptr) return context_->info();
  return {options_.transport.name, "closed"};
}

absl::Status Mesh::Begin(const Signature& signature) {
  RETURN_IF_ERROR(agreement_.broken());
  agreement_.Begin(signature);
  // What was heard before there was something to compare it with.
  for (int peer = 0; peer < world_size(); ++peer) {
    if (inboxes_[peer].arrived.empty()) continue;
    const Header& header = inboxes_[peer].arrived.front().header;
    if (header.sequence > agreement_.sequence()) continue;  // ahead
    RETURN_IF_ERROR(agreement_.Compare(peer, header));
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
  agreement_.Break(std::move(why));
  sink_ = nullptr;
  if (context_ == nullptr) return agreement_.broken();
  SendAbort();
  Close();
  return agreement_.broken();
}

void Mesh::SendAbort() {
  const auto code = static_cast<uint32_t>(ExitCodeOf(agreement_.broken()));
  const auto owned =
      std::make_shared<const std::string>(agreement_.AbortText());
  for (int peer = 0; peer < world_size(); ++peer) {
    if (peer == rank() || !ranks_.gone(peer).ok()) continue;
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
  RETURN_IF_ERROR(CheckPeer(to));
  const auto header =
      Encode({.kind = kind,
              .rank = static_cast<uint32_t>(rank()),
              .index = index,
              .sequence =
                  kind == MessageKind::kHello ? digest_ : agreement_.sequence(),
              .signature = agreement_.signature()});
  const absl::Status sent = context_->Send(
      ranks_.endpoint(to), {header.data(), header.size()}, payload,
      [this, done = std::move(done)](const absl::Status& status) {
        ++num_events_;
        --num_pending_;
        if (done) done(status);
      });
  if (!sent.ok()) {
    ranks_.SetGone(to, sent);
    return CheckPeer(to);
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

absl::StatusOr<Piece> Mesh::TakeNext(int from) {
  std::deque<Message>& arrived = inboxes_[from].arrived;
  RETURN_IF_ERROR(
      Wait([&] { return !arrived.empty() || !ranks_.gone(from).ok(); },
           [from] { return absl::StrCat("rank ", from); }));
  if (arrived.empty()) return CheckPeer(from);
  Message message = std::move(arrived.front());
  arrived.pop_front();
  RETURN_IF_ERROR(agreement_.Compare(from, message.header));
  if (message.header.kind != MessageKind::kEager) {
    return absl::InternalError(absl::StrCat(agreement_.Now(), ": rank ", from,
                                            " was ready out of order"));
  }
  return Piece{.index = message.header.index,
               .bytes = message.bytes,
               .payload = std::move(message.payload)};
}

absl::StatusOr<Buffer> Mesh::Take(int from, uint32_t index, size_t bytes) {
  ASSIGN_OR_RETURN(Piece came, TakeNext(from));
  if (came.index != index || came.bytes != bytes) {
    return absl::InternalError(absl::StrCat(
        agreement_.Now(), ": rank ", from, " sent piece ", came.index, " of ",
        came.bytes, " bytes, piece ", index, " of ", bytes, " is due"));
  }
  return std::move(came.payload);
}

absl::StatusOr<bool> Mesh::IsReady(int from) {
  std::deque<Message>& arrived = inboxes_[from].arrived;
  if (arrived.empty()) {
    RETURN_IF_ERROR(CheckPeer(from));
    return false;
  }
  const Header& header = arrived.front().header;
  RETURN_IF_ERROR(agreement_.Compare(from, header));
  if (header.kind != MessageKind::kReady) {
    return absl::InternalError(absl::StrCat(agreement_.Now(), ": rank ", from,
                                            " sent a piece out of order"));
  }
  arrived.pop_front();
  return true;
}

// It is heard when it says its rank, if somebody is still to come.
void Mesh::OnAccept(EndpointId endpoint) {
  const auto cut = [this](EndpointId id) { context_->Close(id); };
  if (addresses_.empty() ||
      !strangers_.MakeRoom(kMaxStrangers + inboxes_.size(), cut)) {
    return cut(endpoint);
  }
  strangers_.Add(endpoint);
}

absl::StatusOr<Bytes> Mesh::OnHeader(EndpointId from, ConstBytes header,
                                     size_t payload_bytes) {
  ++num_events_;
  ASSIGN_OR_RETURN(const Header heard, Decode(header));
  if (heard.kind == MessageKind::kHello) {
    if (payload_bytes > 0) return absl::InvalidArgumentError("hello too long");
    if (heard.sequence != digest_) {
      return absl::InvalidArgumentError("hello of another group");
    }
    RETURN_IF_ERROR(ranks_.Greet(from, heard.rank));
    strangers_.Remove(from);
    const auto named = static_cast<int>(heard.rank);
    if (named > rank()) {
      RETURN_IF_ERROR(Post(named, MessageKind::kHello, 0, {}, nullptr));
    }
    return Bytes();
  }
  const int peer = ranks_.Find(from);
  if (peer < 0) {
    return absl::InvalidArgumentError("endpoint has not said its rank");
  }
  absl::StatusOr<Bytes> place = ReceivePeer(peer, heard, payload_bytes);
  // This closes the endpoint; for the group that is an error of ours.
  if (!place.ok()) agreement_.Break(place.status());
  return place;
}

absl::StatusOr<Bytes> Mesh::ReceivePeer(int from, const Header& header,
                                        size_t bytes) {
  if (header.kind == MessageKind::kData) {
    if (sink_ != nullptr && agreement_.Includes(header)) {
      return sink_->OnDataHeader(from, header.index, bytes);
    }
    if (agreement_.broken().ok() && agreement_.Compare(from, header).ok()) {
      agreement_.Break(absl::InternalError(absl::StrCat(
          agreement_.Now(), ": rank ", from, " sent data unasked")));
    }
    // The endpoint stays open, so that the other side hears why this one ends.
    if (bytes > options_.chunk_bytes) return agreement_.broken();
    if (discarded_.size() == 0) discarded_ = Buffer(options_.chunk_bytes);
    return Bytes(discarded_.data(), bytes);
  }
  if (bytes > kMaxEagerBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(agreement_.Now(), ": rank ", from, " sent ", bytes,
                     " bytes unasked, at most ", kMaxEagerBytes));
  }
  Inbox& inbox = inboxes_[from];
  if (inbox.announced.size() + inbox.arrived.size() >= kMaxInbox) {
    return absl::ResourceExhaustedError(
        absl::StrCat(agreement_.Now(), ": rank ", from, " is more than ",
                     kMaxInbox, " messages ahead"));
  }
  if (header.kind != MessageKind::kAbort &&
      header.sequence <= agreement_.sequence()) {
    (void)agreement_.Compare(from, header);  // else it is heard at once
  }
  Message& message =
      inbox.announced.emplace_back(Message{.header = header, .bytes = bytes});
  if (bytes == 0) return Bytes();
  message.payload = pool_.Get(bytes);
  return message.payload.view();
}

void Mesh::OnMessage(EndpointId from, ConstBytes header, Bytes) {
  ++num_events_;
  const int peer = ranks_.Find(from);
  if (peer < 0) return;
  const absl::StatusOr<Header> heard = Decode(header);
  if (!heard.ok() || heard->kind == MessageKind::kHello) return;
  if (heard->kind == MessageKind::kData) {
    if (sink_ != nullptr && agreement_.broken().ok()) sink_->OnData(peer);
    return;
  }
  Inbox& inbox = inboxes_[peer];
  if (inbox.announced.empty()) return;
  Message message = std::move(inbox.announced.front());
  inbox.announced.pop_front();
  if (message.header.kind != MessageKind::kAbort) {
    inbox.arrived.push_back(std::move(message));
    return;
  }
  agreement_.BreakAsSaid(
      message.header.index,
      {reinterpret_cast<const char*>(message.payload.data()), message.bytes});
}

void Mesh::OnClosed(EndpointId endpoint, const absl::Status& why) {
  ++num_events_;
  strangers_.Remove(endpoint);
  const int peer = ranks_.Remove(endpoint, why);
  if (peer >= 0) inboxes_[peer].announced.clear();
}

// Afterwards nobody reads or writes the callers' memory any more.
void Mesh::Close() {
  if (context_ == nullptr) return;
  keeper_.reset();
  for (const EndpointId endpoint : ranks_.open()) context_->Close(endpoint);
  const TimePoint deadline = Clock::now() + 2 * kCloseGrace;
  while (!ranks_.open().empty() && Clock::now() < deadline) {
    context_->Progress(deadline);
  }
  context_.reset();
}

Mesh::~Mesh() { Close(); }

}  // namespace telegrad::collective
