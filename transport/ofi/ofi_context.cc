#include "transport/ofi/ofi_context.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "transport/ofi/ofi_transport.h"
#include "transport/send_checks.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<TransportContext>> MakeOfiTransport(
    const TransportOptions& options, TransportHandler* handler) {
  return ofi::OfiContext::Make(options, handler);
}

namespace ofi {
namespace {

// What epoll's events are of: these, or an endpoint's id behind them.
constexpr uint64_t kFabricKey = 0;
constexpr uint64_t kListenerKey = 1;
constexpr uint64_t kFirstEndpointKey = 16;

// Unacknowledged keep-alives: the peer's machine is gone.
constexpr Duration kSilenceGrace = std::chrono::seconds(9);
// How long a peer on another thread may take to leave our memory alone.
constexpr Duration kLeaveGrace = std::chrono::milliseconds(100);
constexpr int kMaxPolls = 4;  // polls of the queue, until all else has its turn
// Asking the sockets costs a system call.
constexpr unsigned kPollsPerSocketPoll = 16;
// Naps where libfabric has no file to wait for, or no room to send.
constexpr Duration kFirstNap = std::chrono::microseconds(20);
constexpr Duration kLongestNap = std::chrono::milliseconds(1);

}  // namespace

OfiContext::OfiContext(const TransportOptions& options,
                       TransportHandler* handler,
                       std::unique_ptr<Fabric> fabric)
    : options_(options),
      handler_(handler),
      fabric_(std::move(fabric)),
      lanes_(*fabric_, endpoints_),
      sender_(*fabric_, endpoints_, lanes_),
      receiver_(*fabric_, endpoints_, lanes_, sender_, *handler,
                MaxHeaderBytes(options)) {}

absl::StatusOr<std::unique_ptr<TransportContext>> OfiContext::Make(
    const TransportOptions& options, TransportHandler* handler) {
  RETURN_IF_ERROR(ParseIp(options.bind_address, 0).status());
  ASSIGN_OR_RETURN(auto fabric, Fabric::Make(options));
  std::unique_ptr<OfiContext> context(
      new OfiContext(options, handler, std::move(fabric)));
  RETURN_IF_ERROR(context->Init());
  return context;
}

absl::Status OfiContext::Init() {
  RETURN_IF_ERROR(poller_.Open());
  if (fabric_->wait_fd() < 0) return absl::OkStatus();
  return poller_.Watch(fabric_->wait_fd(), kFabricKey, EPOLLIN);
}

TransportInfo OfiContext::info() const {
  return {"ofi", absl::StrCat(fabric_->Describe(), ", ", endpoints_.size(),
                              " endpoints, ", lanes_.num_lanes(), " lanes, ",
                              sender_.num_large(), " large messages, ",
                              receiver_.num_strays(), " stray records")};
}

absl::StatusOr<std::string> OfiContext::Listen() {
  return acceptor_.Listen(options_.bind_address, poller_, kListenerKey,
                          /*checks_user=*/options_.key == nullptr);
}

absl::StatusOr<EndpointId> OfiContext::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const SocketAddress target, ParseIpPort(address));
  absl::StatusOr<UniqueFd> socket = BeginConnect(target);
  absl::Status refused;
  if (!socket.ok()) {  // heard in Progress: until then the endpoint is open
    refused = socket.status();
    socket = UniqueFd();
  }
  ASSIGN_OR_RETURN(Endpoint * endpoint,
                   AddEndpoint(*std::move(socket), /*is_accepted=*/false));
  endpoint->is_announced = true;
  endpoint->is_connecting = true;
  if (!refused.ok()) {
    endpoints_.Refuse(*endpoint, absl::UnavailableError(refused.message()));
  }
  return endpoint->id;
}

absl::Status OfiContext::Send(EndpointId to, ConstBytes header,
                              ConstBytes payload, SendDone done) {
  Endpoint* endpoint = endpoints_.Find(to);
  if (endpoint == nullptr || endpoint->state != State::kOpen ||
      !endpoint->is_announced) {
    return NotOpen(to);
  }
  RETURN_IF_ERROR(CheckSizes(header, payload, MaxHeaderBytes(options_)));
  ASSIGN_OR_RETURN(Registration registration,
                   sender_.Register(*endpoint, payload));
  sender_.Send(*endpoint, header, payload, std::move(registration),
               std::move(done));
  return absl::OkStatus();
}

absl::StatusOr<Endpoint*> OfiContext::AddEndpoint(UniqueFd socket,
                                                  bool is_accepted) {
  auto endpoint = std::make_unique<Endpoint>();
  endpoint->is_accepted = is_accepted;
  endpoint->proof = Proof(options_.key, /*is_client=*/!is_accepted);
  endpoint->id = endpoints_.NewId();
  if (getrandom(&endpoint->token, sizeof(endpoint->token), 0) !=
      sizeof(endpoint->token)) {
    return absl::InternalError("getrandom gave too little");
  }
  endpoint->socket = std::move(socket);
  endpoint->unsent = endpoint->proof.Begin();
  // Whoever has connected speaks first; a stranger learns nothing from us.
  if (!is_accepted && endpoint->proof.is_done()) SendHello(*endpoint);
  if (endpoint->socket.is_open()) {
    SetControlOptions(endpoint->socket.get(), kSilenceGrace);
    RETURN_IF_ERROR(poller_.Watch(endpoint->socket.get(),
                                  kFirstEndpointKey + endpoint->id,
                                  EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP));
  }
  return endpoints_.Add(std::move(endpoint));
}

void OfiContext::Accept() {
  while (true) {
    UniqueFd socket = acceptor_.Accept();
    if (!socket.is_open()) return;
    if (!endpoints_.MakeRoom()) continue;  // hangs up
    const absl::StatusOr<Endpoint*> added =
        AddEndpoint(std::move(socket), /*is_accepted=*/true);
    if (!added.ok()) {
      LogWarning("transport ofi: accept: ", added.status().message());
    }
  }
}

void OfiContext::HandleSocket(Endpoint& endpoint, uint32_t events) {
  if (!endpoint.socket.is_open()) return;
  if (endpoint.is_connecting && (events & (EPOLLOUT | EPOLLERR)) != 0) {
    const absl::Status connected = ConnectResult(endpoint.socket.get());
    if (!connected.ok()) return endpoints_.Fail(endpoint, connected);
    endpoint.is_connecting = false;
  }
  if (endpoint.is_connecting) return;
  Write(endpoint);
  ReadSocket(endpoint);
}

void OfiContext::SendHello(Endpoint& endpoint) {
  endpoint.unsent += PackHello({.endpoint = endpoint.id,
                                .token = endpoint.token,
                                .fabric = fabric_->identity(),
                                .address = fabric_->address()});
}

void OfiContext::Write(Endpoint& endpoint) {
  while (!endpoint.unsent.empty()) {
    const ssize_t sent = send(endpoint.socket.get(), endpoint.unsent.data(),
                              endpoint.unsent.size(), MSG_NOSIGNAL);
    if (sent < 0) return;  // full, or broken, which reading says
    endpoint.unsent.erase(0, static_cast<size_t>(sent));
  }
}

void OfiContext::ReadSocket(Endpoint& endpoint) {
  std::array<char, kMaxHelloBytes + 1> chunk;
  while (!endpoint.has_ended && endpoint.state != State::kFailed) {
    const ssize_t got =
        recv(endpoint.socket.get(), chunk.data(), chunk.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {
      endpoint.has_ended = true;
      return HandleEnd(endpoint);
    }
    absl::string_view said(chunk.data(), static_cast<size_t>(got));
    if (!endpoint.proof.is_done()) ReceiveProof(endpoint, &said);
    if (said.empty()) continue;
    if (endpoint.has_greeted) {
      return endpoints_.FailProtocol(endpoint, "bytes after the hello");
    }
    endpoint.received.append(said.data(), said.size());
    ReceiveHello(endpoint);
  }
}

void OfiContext::ReceiveProof(Endpoint& endpoint, absl::string_view* said) {
  const absl::StatusOr<std::string> answer = endpoint.proof.Take(said);
  if (!answer.ok()) {
    *said = {};
    return endpoints_.Fail(endpoint, answer.status());
  }
  endpoint.unsent += *answer;
  if (!endpoint.is_accepted && endpoint.proof.is_done()) SendHello(endpoint);
  Write(endpoint);
}

void OfiContext::ReceiveHello(Endpoint& endpoint) {
  auto hello = ParseHello(endpoint.received);
  if (!hello.ok())
    return endpoints_.FailProtocol(endpoint, hello.status().message());
  if (!hello->has_value()) return;
  Hello& peer = **hello;
  if (peer.fabric != fabric_->identity()) {
    return endpoints_.Fail(
        endpoint, absl::UnavailableError(
                      absl::StrCat("the peer's fabric \"", peer.fabric,
                                   "\" is not ours, \"", fabric_->identity(),
                                   "\": give both the same tls, and shm "
                                   "only within one host")));
  }
  const absl::StatusOr<fi_addr_t> added = fabric_->AddPeer(peer.address);
  if (!added.ok())
    return endpoints_.FailProtocol(endpoint, added.status().message());
  endpoint.has_greeted = true;
  endpoints_.HasGreeted(endpoint);
  endpoint.peer = *added;
  endpoint.peer_process = ShmProcess(peer.address);
  endpoint.is_fragile = fabric_->IsFragile(peer.address);
  endpoint.peer_address = std::move(peer.address);
  endpoint.peer_id = peer.endpoint;
  endpoint.peer_token = peer.token;
  endpoint.received = std::string();
  if (endpoint.is_accepted) SendHello(endpoint);
  Write(endpoint);
  sender_.Start(endpoint);
  if (!endpoint.is_accepted) return;
  endpoint.is_announced = true;
  ++num_events_;
  handler_->OnAccept(endpoint.id);
}

// What arrived before is heard first.
void OfiContext::HandleEnd(Endpoint& endpoint) {
  if (endpoint.state == State::kFailed) return;
  HandleCompletions();
  if (endpoint.state != State::kOpen) return;  // AdvanceClosing sees has_ended
  endpoints_.Fail(endpoint, absl::UnavailableError(
                                "the peer is gone: its connection has ended"));
}

// Handlers may answer at once, and their peers too: so without a bound the
// queue might never be empty.
void OfiContext::HandleCompletions() {
  int num_polls = 0;
  do {
    completions_.clear();
    fabric_->Poll(&completions_);
    num_moved_ += completions_.size();
    for (const Completion& completion : completions_) {
      Slot* slot = completion.slot;
      if (slot->role == Role::kLaneReceive) {
        receiver_.HandleLaneReceived(completion);
      } else if (slot->role != Role::kReceive) {
        sender_.HandleSent(slot, completion.error);
      } else {
        // An error: too long to be one of our records.
        if (completion.error == 0) {
          receiver_.HandleReceived({slot->bytes, completion.num_bytes});
        }
        fabric_->Receive(slot);
      }
    }
  } while (!completions_.empty() && ++num_polls < kMaxPolls);
}

OfiContext::~OfiContext() {
  const TimePoint deadline = Clock::now() + kLeaveGrace;
  for (const auto& [id, endpoint] : endpoints_.all()) {
    if (endpoint->is_fragile) shutdown(endpoint->socket.get(), SHUT_WR);
  }
  for (const auto& [id, endpoint] : endpoints_.all()) {
    if (!endpoint->is_fragile) continue;
    pollfd file = {endpoint->socket.get(), POLLIN, 0};
    (void)poll(&file, 1, PollTimeoutMs(Clock::now(), deadline));
  }
}

void OfiContext::Close(EndpointId id) {
  Endpoint* endpoint = endpoints_.Find(id);
  if (endpoint == nullptr || endpoint->state != State::kOpen ||
      !endpoint->is_announced) {
    return;
  }
  endpoints_.BeginClosing(*endpoint, State::kClosing,
                          absl::CancelledError("closed by this side"));
  sender_.SendGoodbye(*endpoint);
}

void OfiContext::AdvanceClosing() {
  endpoints_.Advance(
      State::kFailed,
      [](const Endpoint& endpoint) {
        return endpoint.state == State::kFailed || endpoint.has_ended ||
               (endpoint.state == State::kClosing && endpoint.is_acknowledged &&
                endpoint.messages.empty());
      },
      [this](Endpoint& endpoint) { Cut(endpoint); });
}

void OfiContext::Cut(Endpoint& cut) {
  const std::unique_ptr<Endpoint> removed = endpoints_.Remove(cut.id);
  Endpoint& endpoint = *removed;
  lanes_.Close(endpoint);  // from here on libfabric has no memory of the user
  fabric_->Forget(endpoint.id);
  if (endpoint.has_greeted) fabric_->RemovePeer(endpoint.peer_address);
  // A child that has inherited the socket loses it, too: before `done`, after
  // which the memory that the peer may be reading is used again.
  (void)shutdown(endpoint.socket.get(), SHUT_RDWR);
  endpoint.socket.Close();
  sender_.Refuse(endpoint);
  num_events_ += sender_.CallDone();
  if (!endpoint.is_announced) return;
  ++num_events_;
  handler_->OnClosed(endpoint.id, endpoint.why);
}

bool OfiContext::HandleEvents(bool is_complete) {
  num_events_ = num_moved_ = 0;
  receiver_.TakeEvents();
  HandleCompletions();
  if (is_complete || ++num_polls_ % kPollsPerSocketPoll == 0) PollSockets();
  sender_.PumpAll();
  num_events_ += sender_.CallDone();
  AdvanceClosing();
  num_events_ += receiver_.TakeEvents();
  return num_events_ > 0;
}

void OfiContext::PollSockets() {
  poller_.Poll([this](uint64_t key, uint32_t events) {
    if (key == kListenerKey) return Accept();
    if (key < kFirstEndpointKey) return;
    const auto id = static_cast<EndpointId>(key - kFirstEndpointKey);
    if (Endpoint* endpoint = endpoints_.Find(id))
      HandleSocket(*endpoint, events);
  });
}

bool OfiContext::Progress(TimePoint deadline) {
  TimePoint now = Clock::now();
  TimePoint poll_until = now + options_.poll;
  nap_ = kFirstNap;
  has_yielded_ = false;
  bool has_slept = false;
  idle_polls_.Restart();
  while (true) {
    if (HandleEvents(/*is_complete=*/has_slept || now >= deadline)) return true;
    if (poller_.TakeWake()) return false;
    if (now >= deadline) return false;
    now = Clock::now();
    if (num_moved_ > 0) {  // parts of messages
      poll_until = now + options_.poll;
      nap_ = kFirstNap;
      has_yielded_ = false;
    } else {
      idle_polls_.Count();
    }
    has_slept = now >= poll_until;
    if (has_slept) {
      Sleep(std::min(deadline, endpoints_.NextTimer()));
      now = Clock::now();
    }
  }
}

void OfiContext::Sleep(TimePoint until) {
  const bool has_file = fabric_->wait_fd() >= 0;
  const bool may_wait = has_file && fabric_->MayWait();
  if (has_file && !may_wait && !has_yielded_) {
    has_yielded_ = true;  // something has come, or libfabric only says so
    sched_yield();
    return;
  }
  if (!may_wait || sender_.is_waiting()) {
    until = std::min(until, Clock::now() + nap_);
    nap_ = std::min(2 * nap_, kLongestNap);
  }
  poller_.Sleep(until);
}

}  // namespace ofi
}  // namespace telegrad
