#include "transport/inproc/inproc_context.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "transport/inproc/inproc_transport.h"
#include "transport/send_checks.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<TransportContext>> MakeInprocTransport(
    const TransportOptions& options, TransportHandler* handler) {
  return std::make_unique<inproc::InprocContext>(options, handler);
}

namespace inproc {
namespace {

void CutLink(Link* link) {
  MutexLock lock(&link->mutex);
  link->is_cut = true;
}

// Copies the sender's payload; false if it may not be touched any more.
bool CopyPayload(Link* link, ConstBytes from, Bytes to) {
  MutexLock lock(&link->mutex);
  if (link->is_cut) return false;
  std::copy_n(from.data, from.size, to.data);
  return true;
}

}  // namespace

InprocContext::InprocContext(const TransportOptions& options,
                             TransportHandler* handler)
    : max_header_bytes_(MaxHeaderBytes(options)), handler_(handler) {}

InprocContext::~InprocContext() {
  if (!address_.empty()) Withdraw(address_);
  for (auto& [id, endpoint] : endpoints_) {
    CutLink(endpoint.link.get());
    if (endpoint.peer == nullptr || endpoint.peer_id == 0) continue;
    endpoint.peer->Post({.kind = EventKind::kGone, .to = endpoint.peer_id});
  }
  // Whoever asked to connect, or answered, and was not heard.
  std::vector<Event> unheard;
  inbox_->Take(TimePoint::min(), &unheard);
  inbox_->Shut();
  for (Event& event : unheard) {
    if (event.reply_to == nullptr) continue;
    event.reply_to->Post({.kind = EventKind::kGone, .to = event.from});
  }
}

TransportInfo InprocContext::info() const {
  return {"inproc", "contexts of one process"};
}

absl::StatusOr<std::string> InprocContext::Listen() {
  if (!address_.empty()) {
    return absl::FailedPreconditionError("this context listens already");
  }
  address_ = Publish(inbox_);
  return address_;
}

absl::StatusOr<EndpointId> InprocContext::Connect(absl::string_view address) {
  const EndpointId id = next_id_++;
  Endpoint& endpoint = endpoints_.try_emplace(id, &memory_).first->second;
  endpoint.link = std::make_shared<Link>();
  endpoint.peer = LookUp(std::string(address));
  Event request{.kind = EventKind::kConnect, .from = id};
  request.reply_to = inbox_;
  request.link = endpoint.link;
  if (endpoint.peer == nullptr || !endpoint.peer->Post(std::move(request))) {
    // Heard in Progress: until then the endpoint is open.
    Event gone{.kind = EventKind::kGone, .to = id};
    gone.status =
        absl::UnavailableError(absl::StrCat("nobody listens on ", address));
    inbox_->Post(std::move(gone));
  }
  return id;
}

absl::Status InprocContext::Send(EndpointId to, ConstBytes header,
                                 ConstBytes payload, SendDone done) {
  Endpoint* endpoint = Find(to);
  if (endpoint == nullptr || endpoint->state != State::kOpen) {
    return NotOpen(to);
  }
  RETURN_IF_ERROR(CheckSizes(header, payload, max_header_bytes_));
  RETURN_IF_ERROR(CheckOnHost("inproc", payload.device));
  Event event{.kind = EventKind::kMessage};
  std::copy_n(header.data, header.size, event.header.data());
  event.header_bytes = header.size;
  event.payload = payload;
  event.token = next_token_++;
  endpoint->sends[event.token] = std::move(done);
  Post(to, *endpoint, std::move(event));
  return absl::OkStatus();
}

void InprocContext::Close(EndpointId id) {
  Endpoint* endpoint = Find(id);
  if (endpoint == nullptr || endpoint->state != State::kOpen) return;
  endpoint->state = State::kClosing;
  endpoint->why = absl::CancelledError("closed by this side");
  endpoint->close_by = Clock::now() + kCloseGrace;
  closing_.push_back(id);
  Post(id, *endpoint, {.kind = EventKind::kGoodbye});
}

InprocContext::Endpoint* InprocContext::Find(EndpointId id) {
  const auto found = endpoints_.find(id);
  return found == endpoints_.end() ? nullptr : &found->second;
}

void InprocContext::Post(EndpointId id, Endpoint& endpoint, Event event) {
  if (endpoint.peer_id == 0) {
    endpoint.unsent.push_back(std::move(event));
    return;
  }
  event.to = endpoint.peer_id;
  event.from = id;
  if (endpoint.peer->Post(std::move(event))) return;
  Fail(id, absl::UnavailableError("the peer is gone"));
}

// OnClosed follows from Progress.
void InprocContext::Fail(EndpointId id, absl::Status why) {
  Endpoint& endpoint = endpoints_.at(id);
  if (endpoint.state == State::kFailed) return;
  if (endpoint.state == State::kOpen) endpoint.why = std::move(why);
  endpoint.state = State::kFailed;
  CutLink(endpoint.link.get());
  failed_.push_back(id);
}

void InprocContext::HandleConnect(Event& event) {
  const EndpointId id = next_id_++;
  Endpoint& endpoint = endpoints_.try_emplace(id, &memory_).first->second;
  endpoint.peer = std::move(event.reply_to);
  endpoint.peer_id = event.from;
  endpoint.link = std::move(event.link);
  Event accepted{.kind = EventKind::kAccepted};
  accepted.reply_to = inbox_;
  Post(id, endpoint, std::move(accepted));
  ++num_events_;
  handler_->OnAccept(id);
}

void InprocContext::HandleMessage(Endpoint& endpoint, Event& event) {
  Event reply{.kind = EventKind::kSent, .token = event.token};
  if (endpoint.state != State::kOpen) {
    reply.status = absl::UnavailableError("the peer has closed");
    Post(event.to, endpoint, std::move(reply));
    return;
  }
  ++num_events_;
  const ConstBytes header(event.header.data(), event.header_bytes);
  const absl::StatusOr<Bytes> target =
      handler_->OnHeader(event.to, header, event.payload.size);
  if (endpoint.state != State::kOpen) return;
  if (!target.ok() || target->size < event.payload.size ||
      target->device.kind != DeviceKind::kCpu) {
    Fail(event.to, absl::CancelledError(absl::StrCat(
                       "message refused: ",
                       target.ok() ? "no room" : target.status().message())));
    return;
  }
  if (!CopyPayload(endpoint.link.get(), event.payload, *target)) return;
  Post(event.to, endpoint, std::move(reply));
  handler_->OnMessage(event.to, header,
                      {target->data, event.payload.size, target->device});
}

void InprocContext::HandleSent(Endpoint& endpoint, const Event& event) {
  const auto found = endpoint.sends.find(event.token);
  if (found == endpoint.sends.end()) return;
  const SendDone done = std::move(found->second);
  endpoint.sends.erase(found);
  if (!done) return;
  ++num_events_;
  done(event.status);
}

void InprocContext::Handle(Event& event) {
  if (event.kind == EventKind::kConnect) return HandleConnect(event);
  Endpoint* endpoint = Find(event.to);
  if (endpoint == nullptr && event.kind == EventKind::kAccepted) {
    event.reply_to->Post({.kind = EventKind::kGone, .to = event.from});
  }
  if (endpoint == nullptr || endpoint->state == State::kFailed) return;
  switch (event.kind) {
    case EventKind::kConnect:
      break;
    case EventKind::kAccepted:
      endpoint->peer_id = event.from;
      for (Event& unsent : std::exchange(endpoint->unsent, {})) {
        Post(event.to, *endpoint, std::move(unsent));
      }
      break;
    case EventKind::kMessage:
      HandleMessage(*endpoint, event);
      break;
    case EventKind::kSent:
      HandleSent(*endpoint, event);
      break;
    case EventKind::kGoodbye:
      Post(event.to, *endpoint, {.kind = EventKind::kGoodbyeAck});
      if (endpoint->state == State::kClosing) break;  // ours is under way
      Fail(event.to,
           absl::UnavailableError("the peer has closed the connection"));
      break;
    case EventKind::kGoodbyeAck:
    case EventKind::kGone:
      Fail(event.to, event.status.ok()
                         ? absl::UnavailableError("the peer is gone")
                         : event.status);
      break;
  }
}

void InprocContext::HandleExpired() {
  const TimePoint now = Clock::now();
  for (EndpointId id : closing_) {
    const Endpoint* endpoint = Find(id);
    if (endpoint == nullptr || endpoint->close_by > now) continue;
    Fail(id, endpoint->why);
  }
  std::erase_if(closing_, [this](EndpointId id) {
    const Endpoint* endpoint = Find(id);
    return endpoint == nullptr || endpoint->state == State::kFailed;
  });
}

void InprocContext::HandleFailed() {
  while (!failed_.empty()) {
    const EndpointId id = failed_.front();
    failed_.pop_front();
    const auto node = endpoints_.extract(id);
    Endpoint& endpoint = node.mapped();
    if (endpoint.peer != nullptr && endpoint.peer_id != 0) {
      endpoint.peer->Post({.kind = EventKind::kGone, .to = endpoint.peer_id});
    }
    for (auto& [token, done] : endpoint.sends) {
      if (done) done(endpoint.why);
    }
    ++num_events_;
    handler_->OnClosed(id, endpoint.why);
  }
}

bool InprocContext::Progress(TimePoint deadline) {
  while (true) {
    num_events_ = 0;
    HandleExpired();
    HandleFailed();
    if (num_events_ > 0) return true;
    if (inbox_->Take(std::min(deadline, NextTimer()), &events_)) return false;
    for (Event& event : events_) Handle(event);
    events_.clear();
    HandleFailed();
    if (num_events_ > 0) return true;
    if (Clock::now() >= deadline) return false;
  }
}

TimePoint InprocContext::NextTimer() const {
  TimePoint next = TimePoint::max();
  for (EndpointId id : closing_) {
    const auto found = endpoints_.find(id);
    if (found == endpoints_.end()) continue;
    next = std::min(next, found->second.close_by);
  }
  return next;
}

}  // namespace inproc
}  // namespace telegrad
