#include "transport/tcp/listeners.h"

#include <utility>

#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/network_device.h"
#include "base/status_macros.h"

namespace telegrad::tcp {

absl::Status Listeners::Init(const TransportOptions& options) {
  RETURN_IF_ERROR(ParseIp(options.bind_address, 0).status());
  ips_ = {options.bind_address};
  for (const std::string& rail : options.rails) {
    ASSIGN_OR_RETURN(ips_.emplace_back(), AddressOrDevice(rail));
  }
  has_same_host_ = options.tls.empty();
  checks_user_ = options.key == nullptr;
  return absl::OkStatus();
}

absl::StatusOr<std::string> Listeners::Listen(Poller& poller) {
  if (!acceptors_.empty()) {
    return absl::FailedPreconditionError("this context listens already");
  }
  std::vector<std::string> addresses;
  std::vector<Acceptor> acceptors(ips_.size());
  for (size_t i = 0; i < ips_.size(); ++i) {
    ASSIGN_OR_RETURN(
        addresses.emplace_back(),
        acceptors[i].Listen(ips_[i], poller, kTcpKey, checks_user_));
  }
  acceptors_ = std::move(acceptors);
  if (has_same_host_) {
    const absl::Status listening = same_host_.ListenLocal(
        SameHostName(addresses[0]), poller, kSameHostKey);
    if (!listening.ok()) {
      LogWarning(
          "transport tcp: processes of this machine will be reached over "
          "TCP: ",
          listening.message());
    }
  }
  return absl::StrJoin(addresses, ",");
}

PeerSocket Listeners::Accept(uint64_t key) {
  if (key == kTcpKey) {
    for (Acceptor& acceptor : acceptors_) {
      UniqueFd socket = acceptor.Accept();
      if (socket.is_open()) return {.socket = std::move(socket)};
    }
    return {};
  }
  while (true) {
    UniqueFd socket = same_host_.Accept();
    if (!socket.is_open()) return {};
    PeerSocket peer = Trusted(std::move(socket));
    if (peer.socket.is_open()) return peer;
  }
}

}  // namespace telegrad::tcp
