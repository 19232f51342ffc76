#include "kvstore/collective/courier.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/crc32c.h"
#include "base/exit_code.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "kvstore/collective/agreement.h"
#include "kvstore/collective/arguments.h"

namespace telegrad::collective {
namespace {

// Larger messages wait until the other side receives.
constexpr size_t kMaxWholeBytes = size_t{16} << 10;
// What waits for a receive from one rank: whole messages, and announced ones,
// for each of which a thread waits there.
constexpr size_t kMaxUntaken = 64;
constexpr size_t kMaxAnnounced = 4096;
constexpr size_t kMaxTextBytes = 1024;
constexpr size_t kMaxUnknown = 64;  // strangers, beside all ranks
constexpr size_t kPiecesOnTheWay = 8;
// What was sent last may come behind the news that its sender is gone.
constexpr Duration kLateGrace = std::chrono::seconds(1);
constexpr Duration kPatrol = std::chrono::milliseconds(500);

absl::Status Lost(const std::string& what, int rank, const absl::Status& why) {
  return WithExitCode(ExitCode::kPeerDied,
                      absl::UnavailableError(absl::StrCat(
                          what, ": rank ", rank, " is lost: ", why.message())));
}

std::string Counted(uint64_t count, Dtype type) {
  return absl::StrCat(count, " ", ToString(type));
}

std::string Describe(bool is_send, size_t count, Dtype type, int peer,
                     uint32_t tag) {
  return absl::StrCat(is_send ? "send of " : "receive of ",
                      Counted(count, type), is_send ? " to " : " from ",
                      peer < 0 ? "any rank" : absl::StrCat("rank ", peer),
                      ", tag ", tag);
}

}  // namespace

Courier::Courier(const GroupOptions& options)
    : options_(options),
      timeout_(options.timeout),
      peers_(static_cast<size_t>(options.world_size)) {}

absl::StatusOr<std::unique_ptr<Courier>> Courier::Make(
    const GroupOptions& options) {
  std::unique_ptr<Courier> courier(new Courier(options));
  TransportOptions transport = options.transport;
  transport.sends_wait = true;  // Progress comes next
  ASSIGN_OR_RETURN(courier->context_, MakeTransport(transport, courier.get()));
  ASSIGN_OR_RETURN(courier->address_, courier->context_->Listen());
  return courier;
}

void Courier::Start(std::vector<std::string> addresses) {
  addresses_ = std::move(addresses);
  const std::string all = absl::StrJoin(addresses_, "\n");
  digest_ = (uint64_t{Crc32c(all.data(), all.size())} << 32) |
            Crc32c(all.data(), all.size(), 2);
  thread_ = StartThread([this] { Run(); });
}

Courier::~Courier() {
  {
    MutexLock lock(&mutex_);
    is_ending_ = true;
    while (!calls_.empty()) {
      Finish(*calls_.front(), absl::CancelledError("the group was closed"));
    }
    const TimePoint deadline = Clock::now() + kCloseGrace;
    while (num_waiting_ > 0 && Clock::now() < deadline) {
      changed_.WaitUntil(&mutex_, deadline);
    }
  }
  if (context_ == nullptr) return;
  if (thread_.joinable()) {
    context_->Wake();
    thread_.join();
  }
  std::vector<EndpointId> open;
  {
    MutexLock lock(&mutex_);
    for (const auto& [endpoint, link] : links_) open.push_back(endpoint);
  }
  for (const EndpointId endpoint : open) context_->Close(endpoint);
  const auto is_open = [this] {
    MutexLock lock(&mutex_);
    return !links_.empty();
  };
  const TimePoint deadline = Clock::now() + 2 * kCloseGrace;
  while (is_open() && Clock::now() < deadline) context_->Progress(deadline);
  context_.reset();
}

void Courier::set_timeout(Duration timeout) {
  MutexLock lock(&mutex_);
  timeout_ = timeout;
}

absl::Status Courier::CheckPeer(int rank, bool may_be_any) const {
  if (may_be_any && rank == kAnyRank) return absl::OkStatus();
  if (rank >= 0 && rank < options_.world_size && rank != options_.rank) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("point to point: rank ", rank,
                                                 " of ", options_.world_size,
                                                 " from rank ", options_.rank));
}

absl::Status Courier::Send(const void* data, size_t count, Dtype type, int to,
                           uint32_t tag) {
  RETURN_IF_ERROR(CheckPeer(to, /*may_be_any=*/false));
  RETURN_IF_ERROR(CheckMemory(data, count, 1, type));
  Call call;
  call.is_send = true;
  call.data = static_cast<std::byte*>(const_cast<void*>(data));
  call.count = count;
  call.type = type;
  call.peer = to;
  call.tag = tag;
  return Await(call);
}

absl::StatusOr<int> Courier::Receive(void* data, size_t count, Dtype type,
                                     int from, uint32_t tag) {
  RETURN_IF_ERROR(CheckPeer(from, /*may_be_any=*/true));
  RETURN_IF_ERROR(CheckMemory(data, count, 1, type));
  Call call;
  call.data = static_cast<std::byte*>(data);
  call.count = count;
  call.type = type;
  call.peer = from;
  call.tag = tag;
  RETURN_IF_ERROR(Await(call));
  return call.peer;
}

absl::Status Courier::Await(Call& call) {
  MutexLock lock(&mutex_);
  if (is_ending_) return absl::CancelledError("the group was closed");
  ++num_waiting_;
  call.moved = Clock::now();
  calls_.push_back(&call);
  context_->Wake();
  while (!call.is_done) {
    if (Clock::now() < call.moved + timeout_) {
      changed_.WaitUntil(&mutex_, call.moved + timeout_);
      continue;
    }
    std::string text = absl::StrCat(
        Describe(call.is_send, call.count, call.type, call.peer, call.tag),
        ": nothing moved for ", ToSeconds(timeout_), " s");
    for (int rank = 0; rank < options_.world_size; ++rank) {
      if (IsLost(rank)) absl::StrAppend(&text, "; rank ", rank, " is lost");
    }
    if (call.id != 0) {  // the other side need not wait
      farewells_.push_back(
          {call.peer, call.is_send, call.id,
           absl::StrCat("rank ", options_.rank, " gave up: ", text)});
      context_->Wake();
    }
    Finish(call, absl::DeadlineExceededError(text));
  }
  if (--num_waiting_ == 0) changed_.NotifyAll();
  return call.status;
}

void Courier::Run() {
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (is_ending_) return;
      std::vector<Call*> fresh;
      for (Call* const call : calls_) {
        if (!call->has_begun) fresh.push_back(call);
      }
      for (Call* const call : fresh) Begin(*call);
      for (const Farewell& farewell : std::exchange(farewells_, {})) {
        SayFarewell(farewell);
      }
      FinishLost();
      strangers_.CutLate(kGreetGrace,
                         [this](EndpointId id) { context_->Close(id); });
    }
    context_->Progress(Clock::now() + kPatrol);
  }
}

void Courier::Begin(Call& call) {
  call.has_begun = true;
  if (!call.is_send) return BeginReceive(call);
  Reach(call.peer);
  Peer& peer = peers_[call.peer];
  if (!peer.gone.ok()) {
    return Finish(
        call, Lost(Describe(true, call.count, call.type, call.peer, call.tag),
                   call.peer, peer.gone));
  }
  call.id = next_id_++;
  call.is_whole =
      call.bytes() <= kMaxWholeBytes && peer.num_untaken < kMaxUntaken;
  if (!call.is_whole) return Say(peer.ours, MessageKind::kEager, call, 0, {});
  ++peer.num_untaken;
  Say(peer.ours, MessageKind::kEager, call, 1, {call.data, call.bytes()},
      call.id);
}

// It connects so that it hears when the other one is gone.
void Courier::BeginReceive(Call& call) {
  for (auto it = arrived_.begin(); it != arrived_.end(); ++it) {
    const int from = static_cast<int>(it->header.rank);
    if (it->header.signature.tag != call.tag ||
        (call.peer != kAnyRank && call.peer != from)) {
      continue;
    }
    Message message = std::move(*it);
    arrived_.erase(it);
    --peers_[from].num_kept;
    return Deliver(call, std::move(message));
  }
  for (int rank = 0; rank < options_.world_size; ++rank) {
    const bool is_meant = call.peer == kAnyRank || call.peer == rank;
    if (is_meant && rank != options_.rank) Reach(rank);
  }
}

void Courier::Reach(int rank) {
  Peer& peer = peers_[rank];
  if (peer.ours != 0 || !peer.gone.ok()) return;
  const auto endpoint = context_->Connect(addresses_[rank]);
  if (!endpoint.ok()) {
    peer.gone = endpoint.status();
    peer.gone_at = Clock::now();
    return;
  }
  peer.ours = *endpoint;
  links_[*endpoint] = {.peer = rank, .is_ours = true};
  Call hello;
  hello.id = digest_;
  Say(peer.ours, MessageKind::kHello, hello, 0, {});
}

// `payload` is copied.
void Courier::Say(EndpointId to, MessageKind kind, const Call& call,
                  uint32_t index, ConstBytes payload, uint64_t sent_id) {
  if (to == 0) return;
  const auto header = Encode({.kind = kind,
                              .rank = static_cast<uint32_t>(options_.rank),
                              .index = index,
                              .sequence = call.id,
                              .signature = {.operation = Operation::kSend,
                                            .type = call.type,
                                            .tag = call.tag,
                                            .count = call.count}});
  const auto owned = std::make_shared<Buffer>();
  if (payload.size > 0) {
    *owned = pool_.Get(payload.size);
    std::memcpy(owned->data(), payload.data, payload.size);
  }
  const int peer = call.peer;
  // Where it is closed, OnClosed comes.
  (void)context_->Send(to, {header.data(), header.size()},
                       {owned->data(), payload.size},
                       [this, owned, peer, sent_id](const absl::Status& sent) {
                         MutexLock lock(&mutex_);
                         pool_.Put(std::move(*owned));
                         if (sent.ok() && sent_id != 0) OnSent(peer, sent_id);
                       });
}

void Courier::SayFarewell(const Farewell& farewell) {
  const Peer& peer = peers_[farewell.peer];
  Call call;
  call.peer = farewell.peer;
  call.id = farewell.id;
  const std::string text = farewell.text.substr(0, kMaxTextBytes);
  Say(farewell.is_ours ? peer.ours : peer.theirs, MessageKind::kAbort, call,
      static_cast<uint32_t>(ExitCode::kTimeout), {text.data(), text.size()});
}

void Courier::OnSent(int peer, uint64_t id) {
  Call* const call = Find(/*is_send=*/true, peer, id);
  if (call == nullptr) return;
  call->moved = Clock::now();
  if (call->is_whole) return Finish(*call, absl::OkStatus());
  ++call->num_done;
  Pump(*call);
}

void Courier::Pump(Call& call) {
  const size_t bytes = call.bytes();
  const size_t most = options_.chunk_bytes;
  while (call.num_begun * most < bytes &&
         call.num_begun - call.num_done < kPiecesOnTheWay) {
    const size_t begin = call.num_begun * most;
    Say(peers_[call.peer].ours, MessageKind::kData, call,
        static_cast<uint32_t>(call.num_begun),
        {call.data + begin, std::min(most, bytes - begin)}, call.id);
    ++call.num_begun;
  }
  if (call.num_done * most >= bytes) Finish(call, absl::OkStatus());
}

void Courier::OnAccept(EndpointId endpoint) {
  MutexLock lock(&mutex_);
  const auto cut = [this](EndpointId id) { context_->Close(id); };
  if (!strangers_.MakeRoom(kMaxUnknown + peers_.size(), cut)) {
    return cut(endpoint);
  }
  strangers_.Add(endpoint);
}

absl::StatusOr<Bytes> Courier::OnHeader(EndpointId from, ConstBytes header,
                                        size_t payload_bytes) {
  MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const Header heard, Decode(header));
  if (heard.signature.operation != Operation::kSend) {
    return absl::InvalidArgumentError("no message between two ranks");
  }
  const auto found = links_.find(from);
  if (found == links_.end()) {
    if (heard.kind != MessageKind::kHello || heard.sequence != digest_ ||
        payload_bytes > 0 || heard.rank >= peers_.size() ||
        static_cast<int>(heard.rank) == options_.rank ||
        peers_[heard.rank].theirs != 0) {
      return absl::InvalidArgumentError("hello of another group");
    }
    strangers_.Remove(from);
    peers_[heard.rank].theirs = from;
    links_[from] = {.peer = static_cast<int>(heard.rank)};
    return Bytes();
  }
  Link& link = found->second;
  RETURN_IF_ERROR(CheckMessage(link, heard, payload_bytes));
  Message& message = link.announced.emplace_back(
      Message{.header = heard, .bytes = payload_bytes});
  message.header.rank = static_cast<uint32_t>(link.peer);
  if (payload_bytes == 0) return Bytes();
  message.payload = pool_.Get(payload_bytes);
  return message.payload.view();
}

absl::Status Courier::CheckMessage(const Link& link, const Header& header,
                                   size_t bytes) const {
  const Signature& s = header.signature;
  const size_t size = SizeOf(s.type);
  bool is_right = false;
  if (header.kind == MessageKind::kAbort) is_right = bytes <= kMaxTextBytes;
  if (link.is_ours && header.kind == MessageKind::kReady) is_right = bytes == 0;
  if (!link.is_ours && header.kind == MessageKind::kData) {
    is_right = bytes <= options_.chunk_bytes;
  }
  if (!link.is_ours && header.kind == MessageKind::kEager) {
    const bool is_whole = header.index == 1;
    is_right = s.count <= SIZE_MAX / 2 / size &&
               bytes == (is_whole ? s.count * size : 0) &&
               bytes <= kMaxWholeBytes &&
               peers_[link.peer].num_kept + link.announced.size() <
                   kMaxUntaken + kMaxAnnounced;
  }
  if (is_right && header.sequence != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a message of ", bytes, " bytes that is out of place"));
}

void Courier::OnMessage(EndpointId from, ConstBytes, Bytes) {
  MutexLock lock(&mutex_);
  const auto found = links_.find(from);
  if (found == links_.end() || found->second.announced.empty()) return;
  Link& link = found->second;
  Message message = std::move(link.announced.front());
  link.announced.pop_front();
  if (link.is_ours) {
    HandleAnswer(link.peer, message);
  } else {
    Handle(link.peer, std::move(message));
  }
}

// What has no call was given up here, or has long left.
void Courier::HandleAnswer(int peer, const Message& message) {
  Call* const call = Find(/*is_send=*/true, peer, message.header.sequence);
  size_t& num_untaken = peers_[peer].num_untaken;
  if ((call == nullptr || call->is_whole) && num_untaken > 0) --num_untaken;
  if (call == nullptr) return;
  call->moved = Clock::now();
  if (message.header.kind == MessageKind::kAbort) {
    return Finish(
        *call,
        StatusAsSaid(message.header.index,
                     {reinterpret_cast<const char*>(message.payload.data()),
                      message.bytes}));
  }
  if (call->is_whole) return Finish(*call, absl::OkStatus());
  if (call->num_begun == 0) Pump(*call);
}

void Courier::Handle(int peer, Message message) {
  const Header& header = message.header;
  if (header.kind == MessageKind::kData) {
    HandlePiece(peer, message);
    return pool_.Put(std::move(message.payload));
  }
  if (header.kind == MessageKind::kAbort) {
    Call* const call = Find(/*is_send=*/false, peer, header.sequence);
    if (call != nullptr) {
      Finish(*call, StatusAsSaid(header.index, {reinterpret_cast<const char*>(
                                                    message.payload.data()),
                                                message.bytes}));
    }
    peers_[peer].num_kept -= arrived_.remove_if([&](const Message& one) {
      return static_cast<int>(one.header.rank) == peer &&
             one.header.sequence == header.sequence;
    });
    return;
  }
  for (Call* const call : calls_) {
    if (!call->is_send && call->has_begun && call->id == 0 &&
        call->tag == header.signature.tag &&
        (call->peer == kAnyRank || call->peer == peer)) {
      return Deliver(*call, std::move(message));
    }
  }
  ++peers_[peer].num_kept;
  arrived_.push_back(std::move(message));
}

void Courier::HandlePiece(int peer, const Message& message) {
  Call* const call = Find(/*is_send=*/false, peer, message.header.sequence);
  if (call == nullptr) return;  // given up
  const size_t begin = call->num_done * options_.chunk_bytes;
  if (message.header.index != call->num_done || begin >= call->bytes() ||
      message.bytes != std::min(options_.chunk_bytes, call->bytes() - begin)) {
    return Finish(*call, absl::InternalError(absl::StrCat(
                             "receive: rank ", peer, " sent piece ",
                             message.header.index, " of ", message.bytes,
                             " bytes, piece ", call->num_done, " is due")));
  }
  std::memcpy(call->data + begin, message.payload.data(), message.bytes);
  call->moved = Clock::now();
  ++call->num_done;
  if (call->num_done * options_.chunk_bytes >= call->bytes()) {
    Finish(*call, absl::OkStatus());
  }
}

void Courier::Deliver(Call& call, Message message) {
  const Signature& s = message.header.signature;
  call.peer = static_cast<int>(message.header.rank);
  call.id = message.header.sequence;
  call.moved = Clock::now();
  const EndpointId back = peers_[call.peer].theirs;
  if (s.type != call.type || s.count != call.count) {
    const std::string text =
        absl::StrCat("rank ", call.peer, " sends ", Counted(s.count, s.type),
                     " to rank ", options_.rank, ", which receives ",
                     Counted(call.count, call.type), ", tag ", call.tag);
    const auto code = static_cast<uint32_t>(ExitCode::kMismatch);
    Say(back, MessageKind::kAbort, call, code, {text.data(), text.size()});
    return Finish(call, StatusAsSaid(code, text));
  }
  Say(back, MessageKind::kReady, call, 0, {});
  if (message.header.index == 0 && call.bytes() > 0) return;
  if (message.bytes > 0) {
    std::memcpy(call.data, message.payload.data(), message.bytes);
  }
  pool_.Put(std::move(message.payload));
  Finish(call, absl::OkStatus());
}

void Courier::OnClosed(EndpointId endpoint, const absl::Status& why) {
  MutexLock lock(&mutex_);
  strangers_.Remove(endpoint);
  const auto found = links_.find(endpoint);
  if (found == links_.end()) return;
  const Link link = std::move(found->second);
  links_.erase(found);
  Peer& peer = peers_[link.peer];
  if (link.is_ours) {
    peer.ours = 0;
    peer.gone = why.ok() ? absl::UnavailableError("closed") : why;
    peer.gone_at = Clock::now();
  } else {
    peer.theirs = 0;
    // What was only announced does not come any more.
    peer.num_kept -= arrived_.remove_if([&link](const Message& one) {
      return static_cast<int>(one.header.rank) == link.peer &&
             one.header.index == 0;
    });
  }
  const std::list<Call*> calls = calls_;
  for (Call* const call : calls) {
    if (call->id != 0 && call->peer == link.peer &&
        call->is_send == link.is_ours) {
      Finish(*call, Lost(Describe(call->is_send, call->count, call->type,
                                  call->peer, call->tag),
                         link.peer,
                         why.ok() ? absl::UnavailableError("closed") : why));
    }
  }
}

Courier::Call* Courier::Find(bool is_send, int peer, uint64_t id) {
  for (Call* const call : calls_) {
    if (call->is_send == is_send && call->peer == peer && call->id == id) {
      return call;
    }
  }
  return nullptr;
}

void Courier::Finish(Call& call, absl::Status status) {
  call.status = std::move(status);
  call.is_done = true;
  calls_.remove(&call);
  changed_.NotifyAll();
}

bool Courier::IsLost(int rank) const {
  const Peer& peer = peers_[rank];
  return !peer.gone.ok() && peer.theirs == 0 &&
         Clock::now() - peer.gone_at > kLateGrace;
}

// Receives that no one can answer any more.
void Courier::FinishLost() {
  const std::list<Call*> calls = calls_;
  for (Call* const call : calls) {
    if (call->is_send || call->id != 0) continue;
    int lost = call->peer;
    for (int rank = 0; call->peer == kAnyRank && rank < options_.world_size;
         ++rank) {
      if (rank == options_.rank) continue;
      if (!IsLost(rank)) {
        lost = kAnyRank;
        break;
      }
      lost = rank;
    }
    if (lost == kAnyRank || !IsLost(lost)) continue;
    Finish(*call,
           Lost(Describe(false, call->count, call->type, call->peer, call->tag),
                lost, peers_[lost].gone));
  }
}

}  // namespace telegrad::collective
