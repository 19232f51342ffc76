#include "transport/ofi/ofi_context.h"

#include <sys/epoll.h>

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
  RETURN_IF_ERROR(poller_.Open());
  if (fabric_->wait_fd() < 0) return absl::OkStatus();
  return poller_.Watch(fabric_->wait_fd(), kFabricKey, EPOLLIN);
}

TransportInfo OfiContext::info() const {
  return {"ofi",
          absl::StrCat(fabric_->Describe(), ", ", endpoints_.size(),
                       " endpoints, ", num_lanes_, " lanes, ", num_large_,
                       " large messages, ", num_strays_, " stray records")};
}

absl::StatusOr<std::string> OfiContext::Listen() {
  return acceptor_.Listen(options_.bind_address, poller_, kListenerKey);
}

absl::StatusOr<EndpointId> OfiContext::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const SocketAddress target, ParseIpPort(address));
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

}  // namespace ofi
}  // namespace telegrad
