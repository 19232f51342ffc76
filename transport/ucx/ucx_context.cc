#include "transport/ucx/ucx_context.h"

#include <sys/epoll.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "transport/send_checks.h"
#include "transport/ucx/config.h"
#include "transport/ucx/ucx_transport.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<TransportContext>> MakeUcxTransport(
    const TransportOptions& options, TransportHandler* handler) {
  return ucx::UcxContext::Make(options, handler);
}

namespace ucx {
namespace {

constexpr unsigned kPollsPerNetPoll = 16;
// Where all endpoints have shared memory: their connections bring the end of
// the agreement on that, and their own.
constexpr unsigned kPollsPerRareNetPoll = 256;
constexpr unsigned kPollsPerLook = 8;  // at the clock

const sockaddr* Raw(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

}  // namespace

UcxContext::UcxContext(const TransportOptions& options,
                       TransportHandler* handler)
    : options_(options),
      handler_(handler),
      memory_(poller_, &Receiver::OnLaneArrived),
      sender_(endpoints_),
      routes_(options_.tls == "shm", memory_, endpoints_, sender_),
      receiver_(*this, *handler, MaxHeaderBytes(options_), worker_, memory_,
                endpoints_, sender_, routes_) {}

absl::StatusOr<std::unique_ptr<TransportContext>> UcxContext::Make(
    const TransportOptions& options, TransportHandler* handler) {
  std::unique_ptr<UcxContext> context(new UcxContext(options, handler));
  RETURN_IF_ERROR(context->Init());
  return context;
}

absl::Status UcxContext::Init() {
  ASSIGN_OR_RETURN(bind_, ParseIp(options_.bind_address, 0));
  const std::string handlers = RemoveSignalHandlers();
  if (!handlers.empty()) ours_.push_back(handlers);
  RETURN_IF_ERROR(poller_.Open());
  RETURN_IF_ERROR(InitNet());
  takes_cuda_ = options_.memory == "direct" && TakesCuda(context_);
  RETURN_IF_ERROR(InitShm());
  takes_cuda_ &= memory_.context() == nullptr || TakesCuda(memory_.context());
  if (!ours_.empty()) {
    absl::StrAppend(&details_, ", set by us ", absl::StrJoin(ours_, " "));
  }
  return absl::OkStatus();
}

absl::Status UcxContext::InitNet() {
  ASSIGN_OR_RETURN(const Config config, MakeConfig(options_, bind_));
  ASSIGN_OR_RETURN(context_, MakeContext(config));
  details_ = absl::StrCat("UCX ", ucp_get_version_string(), ", tls ",
                          config.tls, ", devices ", config.devices);
  ours_.insert(ours_.end(), config.ours.begin(), config.ours.end());
  ASSIGN_OR_RETURN(worker_,
                   MakeWorker(context_, &Receiver::OnArrived, &receiver_));
  return poller_.Watch(worker_.fd, kWorkerKey, EPOLLIN);
}

absl::Status UcxContext::InitShm() {
  const absl::StatusOr<Config> config = memory_.Open(options_);
  if (config.ok()) {
    absl::StrAppend(&details_, ", same host ", config->tls);
    ours_.insert(ours_.end(), config->ours.begin(), config->ours.end());
    return absl::OkStatus();
  }
  if (options_.tls == "shm") return config.status();
  absl::StrAppend(&details_, ", no shared memory: ", config.status().message());
  return absl::OkStatus();
}

UcxContext::~UcxContext() {
  if (listener_ != nullptr) {
    for (ucp_conn_request_h request : requests_.Take()) {
      ucp_listener_reject(listener_, request);
    }
    ucp_listener_destroy(listener_);
  }
  CutAll();
  memory_.Close();
  worker_ = Worker();
  if (context_ != nullptr) ucp_cleanup(context_);
}

TransportInfo UcxContext::info() const {
  std::map<std::string, int> routes;
  for (const auto& [id, endpoint] : endpoints_.all()) {
    if (endpoint->is_cut || endpoint->route == Route::kUnknown) continue;
    ++routes[LanesOf(endpoint->route == Route::kShm ? endpoint->lane->handle()
                                                    : endpoint->handle)];
  }
  std::string details = details_;
  for (const auto& [lanes, count] : routes) {
    absl::StrAppend(&details, ", ", count, " endpoints over ", lanes);
  }
  return {"ucx", details};
}

absl::StatusOr<std::string> UcxContext::Listen() {
  if (listener_ != nullptr) {
    return absl::FailedPreconditionError("this context listens already");
  }
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                      UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = {Raw(bind_), bind_.length};
  params.conn_handler = {&UcxContext::OnConnectionRequest, this};
  RETURN_IF_ERROR(
      Check(absl::StrCat("listen on ", options_.bind_address),
            ucp_listener_create(worker_.handle, &params, &listener_)));
  ucp_listener_attr_t attr{};
  attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  RETURN_IF_ERROR(
      Check("ucp_listener_query", ucp_listener_query(listener_, &attr)));
  SocketAddress address = bind_;
  address.storage = attr.sockaddr;
  return ToString(address);
}

absl::StatusOr<EndpointId> UcxContext::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const SocketAddress peer, ParseIpPort(address));
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = {Raw(peer), peer.length};
  ASSIGN_OR_RETURN(Endpoint * endpoint,
                   AddEndpoint(&params, /*is_accepted=*/false));
  endpoint->is_announced = true;
  return endpoint->id;
}

absl::StatusOr<Endpoint*> UcxContext::AddEndpoint(ucp_ep_params_t* params,
                                                  bool is_accepted) {
  ASSIGN_OR_RETURN(Endpoint * added, endpoints_.Create(worker_, params));
  added->receiver = &receiver_;
  added->proof = Proof(options_.key, /*is_client=*/!is_accepted);
  if (is_accepted) endpoints_.AddStranger(*added);
  routes_.Begin(*added);
  return added;
}

bool UcxContext::IsInMemory(EndpointId id) const {
  const Endpoint* const endpoint = endpoints_.Find(id);
  return endpoint != nullptr && endpoint->route == Route::kShm;
}

bool UcxContext::ChecksPackets(EndpointId id) const {
  const Endpoint* const endpoint = endpoints_.Find(id);
  return endpoint != nullptr && endpoint->route == Route::kNet &&
         AreChecked(LanesOf(endpoint->handle));
}

absl::Status UcxContext::Send(EndpointId to, ConstBytes header,
                              ConstBytes payload, SendDone done) {
  Endpoint* endpoint = endpoints_.Find(to);
  if (endpoint == nullptr || endpoint->state != State::kOpen) {
    return NotOpen(to);
  }
  RETURN_IF_ERROR(CheckSizes(header, payload, MaxHeaderBytes(options_)));
  if (!takes_cuda_) RETURN_IF_ERROR(CheckOnHost("ucx", payload.device));
  sender_.Post(*endpoint, Kind::kData, header, payload, std::move(done));
  return absl::OkStatus();
}

void UcxContext::OnConnectionRequest(ucp_conn_request_h request,
                                     void* context) {
  static_cast<UcxContext*>(context)->requests_.Put(request);
}

void UcxContext::AcceptRequested() {
  for (ucp_conn_request_h request : requests_.Take()) {
    if (!endpoints_.MakeRoom()) {
      ucp_listener_reject(listener_, request);
      continue;
    }
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = request;
    const absl::StatusOr<Endpoint*> endpoint =
        AddEndpoint(&params, /*is_accepted=*/true);
    if (!endpoint.ok()) {  // the caller has gone already
      LogWarning("transport ucx: accept: ", endpoint.status().message());
    }
  }
}

// An orderly end is agreed with messages of our own: UCX's flush says that
// bytes have left, not that the peer has heard them, and its disconnect may
// overtake them.
void UcxContext::Close(EndpointId id) {
  Endpoint* endpoint = endpoints_.Find(id);
  if (endpoint == nullptr || endpoint->state != State::kOpen) return;
  endpoints_.BeginClosing(*endpoint, State::kClosing,
                          absl::CancelledError("closed by this side"));
  sender_.Post(*endpoint, Kind::kGoodbye);
}

void UcxContext::Cut(Endpoint& endpoint) {
  endpoint.is_cut = true;
  endpoints_.ForgetHandle(endpoint.handle);
  receiver_.ReleaseEarly(endpoint);
  sender_.CancelUnrouted(endpoint);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint.handle, &param);
  if (UCS_PTR_IS_PTR(request)) {
    endpoint.close_request = request;
  } else if (UCS_PTR_IS_ERR(request)) {
    LogWarning("transport ucx: close: ",
               ucs_status_string(UCS_PTR_STATUS(request)));
  }
}

// UCX has let go of the endpoint, of all buffers sent and of all to receive.
// Shared memory goes after the connection: Receiver::ReceiveCuts relies on that
// order.
bool UcxContext::IsGone(Endpoint& endpoint) {
  if (endpoint.close_request != nullptr) {
    if (ucp_request_check_status(endpoint.close_request) == UCS_INPROGRESS) {
      return false;
    }
    ucp_request_free(std::exchange(endpoint.close_request, nullptr));
  }
  if (endpoint.lane != nullptr && endpoint.lane->handle() != nullptr) {
    endpoint.lane->Cut();
    sender_.Abandon(endpoint);
    receiver_.Abandon(endpoint);
  }
  return endpoint.num_sends == 0 && endpoint.num_receives == 0;
}

void UcxContext::AdvanceClosing() {
  const TimePoint now = Clock::now();
  const auto is_gone = [&](Endpoint& endpoint) {
    const bool is_settled =
        endpoint.state == State::kFailed ||
        (endpoint.state == State::kClosing && endpoint.is_acknowledged &&
         endpoint.num_sends == 0);
    if (!endpoint.is_cut && (is_settled || now >= endpoint.close_by)) {
      Cut(endpoint);
    }
    return endpoint.is_cut && IsGone(endpoint);
  };
  endpoints_.AdvanceClosing(is_gone, [this](Endpoint& endpoint) {
    receiver_.ReleaseAnnounced(endpoint);
    memory_.DropLane(endpoint);
    if (!endpoint.is_announced) return;
    ++num_events_;
    handler_->OnClosed(endpoint.id, endpoint.why);
  });
}

TimePoint UcxContext::NextTimer() const {
  return std::min(endpoints_.NextTimer(), memory_.NextTimer());
}

void UcxContext::CutAll() {
  for (const auto& [id, endpoint] : endpoints_.all()) {
    endpoint->state = State::kFailed;
    if (!endpoint->is_cut) Cut(*endpoint);
  }
  const TimePoint deadline = Clock::now() + kCutGrace;
  const auto is_busy = [this] {
    receiver_.Forget();
    sender_.Forget();
    return std::any_of(endpoints_.all().begin(), endpoints_.all().end(),
                       [this](auto& it) { return !IsGone(*it.second); });
  };
  while (is_busy()) {
    if (Clock::now() >= deadline) {
      LogWarning("transport ucx: buffers are in use after the end");
      break;
    }
    Poll(/*is_complete=*/true);
  }
  for (const auto& [id, endpoint] : endpoints_.all()) {
    receiver_.ReleaseAnnounced(*endpoint);
    memory_.DropLane(*endpoint);
  }
  while (memory_.has_retired() && Clock::now() < deadline) {
    memory_.AdvanceRetired();
  }
}

bool UcxContext::has_events() const {
  return receiver_.has_events() || sender_.has_events() ||
         endpoints_.has_failures() || endpoints_.has_closing() ||
         endpoints_.has_strangers() || memory_.has_retired() ||
         !requests_.is_empty();
}

// What has arrived is heard before the end of its endpoint.
bool UcxContext::HandleEvents() {
  if (!has_events()) return false;
  num_events_ = 0;
  AcceptRequested();
  receiver_.HandleArrived();
  receiver_.HandleReceived();
  num_events_ += receiver_.TakeEvents() + sender_.HandleSent();
  endpoints_.HandleFailures();
  endpoints_.FailLate();
  if (endpoints_.has_closing()) AdvanceClosing();
  if (memory_.has_retired()) memory_.AdvanceRetired();
  return num_events_ > 0;
}

// Asking TCP costs a system call, which shared memory does not wait for.
unsigned UcxContext::Poll(bool is_complete) {
  const unsigned num_events = memory_.Poll();
  if (!is_complete && memory_.num_lanes() > 0 && polls_to_net_ > 0) {
    --polls_to_net_;
    return num_events;
  }
  polls_to_net_ = memory_.num_lanes() < endpoints_.all().size()
                      ? kPollsPerNetPoll
                      : kPollsPerRareNetPoll;
  return num_events + ucp_worker_progress(worker_.handle);
}

bool UcxContext::Progress(TimePoint deadline) {
  Poll(/*is_complete=*/false);
  if (HandleEvents()) return true;  // without a look at the clock
  TimePoint now = Clock::now();
  TimePoint poll_until = now + options_.poll;
  idle_polls_.Restart();
  while (true) {
    const unsigned progressed = Poll(/*is_complete=*/now >= deadline);
    if (HandleEvents()) return true;
    if (poller_.TakeWake()) return false;
    if (now >= deadline) return false;
    const bool is_cheap = memory_.num_lanes() > 0;
    const bool has_yielded = progressed == 0 && idle_polls_.Count(is_cheap);
    // Beside polls of memory the clock is dear.
    if (is_cheap && progressed == 0 && !has_yielded &&
        ++num_polls_ % kPollsPerLook != 0) {
      continue;
    }
    now = Clock::now();
    if (progressed > 0) {
      poll_until = now + options_.poll;
    } else if (now >= poll_until) {
      Sleep(std::min(deadline, NextTimer()));
      now = Clock::now();
    }
  }
}

void UcxContext::Sleep(TimePoint until) {
  // UCS_ERR_BUSY: there is something to do. Any other error is one that
  // progress reports; never block on a worker that is not armed.
  if (ucp_worker_arm(worker_.handle) != UCS_OK) {
    ucp_worker_progress(worker_.handle);
    return;
  }
  if (!memory_.Arm()) return;
  // Whatever woke us may be the connection's: the next poll asks it, too.
  if (poller_.Sleep(until)) polls_to_net_ = 0;
}

}  // namespace ucx
}  // namespace telegrad
