#include "transport/ucx/ucx_context.h"

#include <sys/epoll.h>

#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "transport/send_checks.h"
#include "transport/ucx/config.h"
#include "transport/ucx/host.h"
#include "transport/ucx/ucx_transport.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<TransportContext>> MakeUcxTransport(
    const TransportOptions& options, TransportHandler* handler) {
  return ucx::UcxContext::Make(options, handler);
}

namespace ucx {
namespace {

const sockaddr* Raw(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
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
  const std::string handlers = RemoveSignalHandlers();
  if (!handlers.empty()) ours_.push_back(handlers);
  RETURN_IF_ERROR(poller_.Open());
  RETURN_IF_ERROR(InitNet());
  takes_cuda_ = options_.memory == "direct" && TakesCuda(context_);
  RETURN_IF_ERROR(InitShm());
  takes_cuda_ &= shm_context_ == nullptr || TakesCuda(shm_context_);
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
  ASSIGN_OR_RETURN(worker_, MakeWorker(context_, &UcxContext::OnArrived, this));
  return poller_.Watch(worker_.fd, kWorkerKey, EPOLLIN);
}

absl::Status UcxContext::InitShm() {
  absl::Status why;
  absl::StatusOr<Config> config = MakeShmConfig(options_);
  if (config.ok()) {
    const auto context = MakeContext(*config);
    why = context.status();
    if (context.ok()) shm_context_ = *context;
  } else {
    why = config.status();
  }
  identity_ = HostIdentity();
  if (identity_.empty()) {
    why = absl::UnavailableError("/proc does not tell the host's identity");
  }
  if (why.ok()) {
    absl::StrAppend(&details_, ", same host ", config->tls);
    ours_.insert(ours_.end(), config->ours.begin(), config->ours.end());
    return absl::OkStatus();
  }
  if (options_.tls == "shm") return why;
  identity_.clear();
  absl::StrAppend(&details_, ", no shared memory: ", why.message());
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
  retired_.clear();
  worker_ = Worker();
  if (shm_context_ != nullptr) ucp_cleanup(shm_context_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

TransportInfo UcxContext::info() const {
  std::map<std::string, int> routes;
  for (const auto& [id, endpoint] : endpoints_) {
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
  RETURN_IF_ERROR(Check("ucp_ep_create", ucp_ep_create(worker_.handle, params,
                                                       &endpoint->handle)));
  Endpoint* const added = endpoint.get();
  by_handle_[added->handle] = added;
  endpoints_[added->id] = std::move(endpoint);
  Greet(*added);
  return added;
}

Endpoint* UcxContext::Find(EndpointId id) const {
  if (found_ != nullptr && found_->id == id) return found_;
  const auto found = endpoints_.find(id);
  if (found == endpoints_.end()) return nullptr;
  found_ = found->second.get();
  return found_;
}

bool UcxContext::IsInMemory(EndpointId id) const {
  const Endpoint* const endpoint = Find(id);
  return endpoint != nullptr && endpoint->route == Route::kShm;
}

absl::Status UcxContext::CheckDevice(Device device) const {
  return Takes(device.kind) ? absl::OkStatus() : CheckOnHost("ucx", device);
}

void UcxContext::OnConnectionRequest(ucp_conn_request_h request,
                                     void* context) {
  static_cast<UcxContext*>(context)->requests_.Put(request);
}

void UcxContext::OnFailure(void* endpoint, ucp_ep_h, ucs_status_t status) {
  auto* failed = static_cast<Endpoint*>(endpoint);
  failed->context->failures_.Put({failed->id, status});
}

void UcxContext::AcceptRequested() {
  for (ucp_conn_request_h request : requests_.Take()) {
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
  for (const auto& [id, status] : failures_.Take()) {
    Endpoint* endpoint = Find(id);
    if (endpoint == nullptr) continue;
    const absl::string_view what = status == UCS_ERR_MESSAGE_TRUNCATED
                                       ? "the peer breaks the protocol"
                                       : "the peer is gone";
    Fail(*endpoint, absl::UnavailableError(
                        absl::StrCat(what, ": ", ucs_status_string(status))));
  }
}

}  // namespace ucx
}  // namespace telegrad
