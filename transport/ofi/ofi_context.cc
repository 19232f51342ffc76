#include "transport/ofi/ofi_context.h"

#include <sys/epoll.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "transport/ofi/ofi_transport.h"
#include "transport/ofi/progress.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<TransportContext>> MakeOfiTransport(
    const TransportOptions& options, TransportHandler* handler) {
  return ofi::OfiContext::Make(options, handler);
}

namespace ofi {

OfiContext::OfiContext(const TransportOptions& options,
                       TransportHandler* handler)
    : options_(options), handler_(handler) {}

absl::StatusOr<std::unique_ptr<TransportContext>> OfiContext::Make(
    const TransportOptions& options, TransportHandler* handler) {
  std::unique_ptr<OfiContext> context(new OfiContext(options, handler));
  RETURN_IF_ERROR(context->Init());
  return context;
}

absl::Status OfiContext::Init() {
  RETURN_IF_ERROR(ParseIp(options_.bind_address, 0).status());
  ASSIGN_OR_RETURN(fabric_, Fabric::Make(options_));
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.is_open() || !wake_event_.is_open()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("eventfd or epoll: ", std::strerror(errno)));
  }
  if (fabric_->wait_fd() >= 0) {
    RETURN_IF_ERROR(Watch(fabric_->wait_fd(), kFabricKey, EPOLLIN));
  }
  return Watch(wake_event_.fd(), kWakeKey, EPOLLIN);
}

absl::Status OfiContext::Watch(int fd, uint64_t key, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("epoll_ctl: ", std::strerror(errno)));
}

TransportInfo OfiContext::info() const {
  return {"ofi",
          absl::StrCat(fabric_->Describe(), ", ", endpoints_.size(),
                       " endpoints, ", num_lanes_, " lanes, ", num_large_,
                       " large messages, ", num_strays_, " stray records")};
}

absl::StatusOr<std::string> OfiContext::Listen() {
  if (listener_.is_open()) {
    return absl::FailedPreconditionError("this context listens already");
  }
  ASSIGN_OR_RETURN(const SocketAddress address,
                   ParseIp(options_.bind_address, 0));
  ASSIGN_OR_RETURN(UniqueFd listener, ListenOn(address));
  ASSIGN_OR_RETURN(const SocketAddress bound, LocalAddress(listener.get()));
  // Edge-triggered: no spinning while there are no descriptors to accept with.
  RETURN_IF_ERROR(Watch(listener.get(), kListenerKey, EPOLLIN | EPOLLET));
  listener_ = std::move(listener);
  return ToString(bound);
}

absl::StatusOr<EndpointId> OfiContext::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const HostPort peer, ParseHostPort(address));
  ASSIGN_OR_RETURN(const SocketAddress target, ParseIp(peer.host, peer.port));
  absl::StatusOr<UniqueFd> socket = BeginConnect(target);
  absl::Status refused;
  if (!socket.ok()) {  // heard in Progress: until then the endpoint is open
    refused = socket.status();
    socket = UniqueFd();
  }
  ASSIGN_OR_RETURN(Endpoint * endpoint, AddEndpoint(*std::move(socket)));
  endpoint->is_announced = true;
  endpoint->is_connecting = true;
  if (!refused.ok()) Fail(*endpoint, absl::UnavailableError(refused.message()));
  return endpoint->id;
}

absl::Status OfiContext::RegisterMemory(Bytes memory) {
  if (memory.device.kind == DeviceKind::kCpu) return fabric_->Register(memory);
  return absl::UnimplementedError("transport ofi takes host memory only");
}

}  // namespace ofi
}  // namespace telegrad
