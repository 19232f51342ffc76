#include "transport/ucx/ucx_context.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "transport/ucx/config.h"
#include "transport/ucx/ucx_transport.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<TransportContext>> MakeUcxTransport(
    const TransportOptions& options, TransportHandler* handler) {
  return ucx::UcxContext::Make(options, handler);
}

namespace ucx {
namespace {

absl::Status Check(absl::string_view what, ucs_status_t status) {
  return status == UCS_OK ? absl::OkStatus() : UcxError(what, status);
}

}  // namespace

UcxContext::UcxContext(const TransportOptions& options,
                       TransportHandler* handler)
    : options_(options), handler_(handler) {}

absl::StatusOr<std::unique_ptr<TransportContext>> UcxContext::Make(
    const TransportOptions& options, TransportHandler* handler) {
  std::unique_ptr<UcxContext> context(new UcxContext(options, handler));
  RETURN_IF_ERROR(context->Init());
  return context;
}

absl::Status UcxContext::Init() {
  ASSIGN_OR_RETURN(bind_, ParseIp(options_.bind_address, 0));
  RemoveSignalHandlers();
  ASSIGN_OR_RETURN(const Config config, MakeConfig(options_, bind_));
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "telegrad";
  RETURN_IF_ERROR(Check(absl::StrCat("ucp_init with tls ", config.tls),
                        ucp_init(&params, config.handle.get(), &context_)));
  details_ = absl::StrCat("UCX ", ucp_get_version_string(), ", tls ",
                          config.tls, ", devices ", config.devices);
  return InitWorker();
}

absl::Status UcxContext::InitWorker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  RETURN_IF_ERROR(Check("ucp_worker_create",
                        ucp_worker_create(context_, &params, &worker_)));
  ucp_worker_attr_t attr{};
  attr.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
  RETURN_IF_ERROR(Check("ucp_worker_query", ucp_worker_query(worker_, &attr)));
  if (attr.max_am_header < kPrefixBytes + kMaxHeaderBytes) {
    return absl::UnimplementedError(absl::StrCat("this UCX carries headers of ",
                                                 attr.max_am_header,
                                                 " bytes only; ", details_));
  }
  ucp_am_handler_param_t handler{};
  handler.field_mask =
      UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA;
  handler.cb = &UcxContext::OnArrived;
  handler.arg = this;
  RETURN_IF_ERROR(Check("ucp_worker_set_am_recv_handler",
                        ucp_worker_set_am_recv_handler(worker_, &handler)));
  RETURN_IF_ERROR(
      Check("ucp_worker_get_efd", ucp_worker_get_efd(worker_, &worker_fd_)));
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd_ < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("eventfd: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

UcxContext::~UcxContext() {
  if (listener_ != nullptr) {
    for (ucp_conn_request_h request : requests_) {
      ucp_listener_reject(listener_, request);
    }
    ucp_listener_destroy(listener_);
  }
  CutAll();
  for (ucp_mem_h memory : memory_) ucp_mem_unmap(context_, memory);
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
  if (wake_fd_ >= 0) close(wake_fd_);
}

TransportInfo UcxContext::info() const { return {"ucx", details_}; }

absl::StatusOr<std::string> UcxContext::Listen() {
  if (listener_ != nullptr) {
    return absl::FailedPreconditionError("this context listens already");
  }
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                      UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = {bind_.get(), bind_.size};
  params.conn_handler = {&UcxContext::OnConnectionRequest, this};
  RETURN_IF_ERROR(Check(absl::StrCat("listen on ", options_.bind_address),
                        ucp_listener_create(worker_, &params, &listener_)));
  ucp_listener_attr_t attr{};
  attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  RETURN_IF_ERROR(
      Check("ucp_listener_query", ucp_listener_query(listener_, &attr)));
  SocketAddress address = bind_;
  address.storage = attr.sockaddr;
  return FormatIpPort(address);
}

absl::StatusOr<EndpointId> UcxContext::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const SocketAddress peer, ParseIpPort(address));
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = {peer.get(), peer.size};
  ASSIGN_OR_RETURN(const Endpoint* endpoint, AddEndpoint(&params));
  return endpoint->id;
}

absl::StatusOr<Endpoint*> UcxContext::AddEndpoint(ucp_ep_params_t* params) {
  auto endpoint = std::make_unique<Endpoint>();
  endpoint->context = this;
  endpoint->id = next_id_++;
  params->field_mask |=
      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params->err_handler = {&UcxContext::OnFailure, endpoint.get()};
  RETURN_IF_ERROR(Check("ucp_ep_create",
                        ucp_ep_create(worker_, params, &endpoint->handle)));
  Endpoint* const added = endpoint.get();
  by_handle_[added->handle] = added;
  endpoints_[added->id] = std::move(endpoint);
  return added;
}

Endpoint* UcxContext::Find(EndpointId id) {
  const auto found = endpoints_.find(id);
  return found == endpoints_.end() ? nullptr : found->second.get();
}

absl::Status UcxContext::RegisterMemory(Bytes memory) {
  if (memory.device.kind != DeviceKind::kCpu) {
    return absl::UnimplementedError("transport ucx takes host memory only");
  }
  ucp_mem_map_params_t params{};
  params.field_mask =
      UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = memory.data;
  params.length = memory.size;
  ucp_mem_h handle = nullptr;
  RETURN_IF_ERROR(Check(absl::StrCat("register ", memory.size, " bytes"),
                        ucp_mem_map(context_, &params, &handle)));
  memory_.push_back(handle);
  return absl::OkStatus();
}

void UcxContext::OnConnectionRequest(ucp_conn_request_h request,
                                     void* context) {
  auto* self = static_cast<UcxContext*>(context);
  MutexLock lock(&self->mutex_);
  self->requests_.push_back(request);
}

void UcxContext::OnFailure(void* endpoint, ucp_ep_h, ucs_status_t status) {
  auto* failed = static_cast<Endpoint*>(endpoint);
  MutexLock lock(&failed->context->mutex_);
  failed->context->failures_.emplace_back(failed->id, status);
}

void UcxContext::AcceptRequested() {
  std::vector<ucp_conn_request_h> requests;
  {
    MutexLock lock(&mutex_);
    requests.swap(requests_);
  }
  for (ucp_conn_request_h request : requests) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = request;
    const absl::StatusOr<Endpoint*> endpoint = AddEndpoint(&params);
    if (!endpoint.ok()) {  // the caller has gone already
      LogWarning("transport ucx: accept: ", endpoint.status().message());
      continue;
    }
    ++num_events_;
    handler_->OnAccept((*endpoint)->id);
  }
}

void UcxContext::HandleFailures() {
  std::vector<std::pair<EndpointId, ucs_status_t>> failures;
  {
    MutexLock lock(&mutex_);
    failures.swap(failures_);
  }
  for (const auto& [id, status] : failures) {
    Endpoint* endpoint = Find(id);
    if (endpoint == nullptr) continue;
    const absl::string_view what = status == UCS_ERR_MESSAGE_TRUNCATED
                                       ? "the peer breaks the protocol"
                                       : "the peer is gone";
    Fail(*endpoint, absl::UnavailableError(
                        absl::StrCat(what, ": ", ucs_status_string(status))));
  }
}

// What has arrived is heard before the end of its endpoint.
bool UcxContext::HandleEvents() {
  num_events_ = 0;
  AcceptRequested();
  HandleArrived();
  HandleReceived();
  HandleSent();
  HandleFailures();
  if (!closing_.empty()) AdvanceClosing();
  return num_events_ > 0;
}

bool UcxContext::Progress(TimePoint deadline) {
  TimePoint poll_until = Clock::now() + options_.poll;
  while (true) {
    const unsigned progressed = ucp_worker_progress(worker_);
    if (HandleEvents()) return true;
    if (is_woken_.exchange(false)) return false;
    const TimePoint now = Clock::now();
    if (now >= deadline) return false;
    if (progressed > 0) {
      poll_until = now + options_.poll;
    } else if (now >= poll_until) {
      Sleep(std::min(deadline, NextTimer()));
    }
  }
}

void UcxContext::Sleep(TimePoint until) {
  // UCS_ERR_BUSY: there is something to do. Any other error is one that
  // progress reports; never block on a worker that is not armed.
  if (ucp_worker_arm(worker_) != UCS_OK) return;
  const Duration left = std::max(until - Clock::now(), Duration::zero());
  const int64_t ns =
      std::min<int64_t>(std::chrono::nanoseconds(left).count(), 60'000'000'000);
  const timespec timeout = {ns / 1'000'000'000, ns % 1'000'000'000};
  pollfd fds[] = {{worker_fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
  ppoll(fds, 2, &timeout, nullptr);
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof(count));
}

void UcxContext::Wake() {
  if (is_woken_.exchange(true))
    return;  // the flag says it, the file ends ppoll
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the file is readable.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

}  // namespace ucx
}  // namespace telegrad
