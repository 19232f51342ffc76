#include "transport/ofi/lane.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <array>

#include "base/status_macros.h"
#include "transport/ofi/provider.h"

namespace telegrad::ofi {

absl::StatusOr<OpenedEndpoint> OpenEndpoint(const EndpointParts& parts) {
  // libfabric's functions do not write to it.
  auto* info = const_cast<fi_info*>(parts.info);
  fid_ep* endpoint = nullptr;
  RETURN_IF_ERROR(CheckFi("fi_endpoint",
                          fi_endpoint(parts.domain, info, &endpoint, nullptr)));
  OpenedEndpoint opened{.endpoint = FidPtr<fid_ep>(endpoint), .address = ""};
  RETURN_IF_ERROR(
      CheckFi("fi_ep_bind", fi_ep_bind(endpoint, &parts.av->fid, 0)));
  RETURN_IF_ERROR(CheckFi("fi_ep_bind", fi_ep_bind(endpoint, &parts.queue->fid,
                                                   FI_SEND | FI_RECV)));
  RETURN_IF_ERROR(CheckFi("fi_enable", fi_enable(endpoint)));
  std::array<char, 512> name{};
  size_t size = name.size();
  RETURN_IF_ERROR(
      CheckFi("fi_getname", fi_getname(&endpoint->fid, name.data(), &size)));
  opened.address.assign(name.data(), std::min(size, name.size()));
  return opened;
}

absl::StatusOr<std::unique_ptr<Lane>> Lane::Open(const EndpointParts& parts) {
  ASSIGN_OR_RETURN(OpenedEndpoint opened, OpenEndpoint(parts));
  return std::unique_ptr<Lane>(new Lane(std::move(opened)));
}

int Lane::Send(Slot* slot, ConstBytes payload, fi_addr_t to, uint64_t tag) {
  const ssize_t result =
      fi_tsend(opened_.endpoint.get(), payload.data, payload.size,
               slot->descriptor, to, tag, slot);
  return static_cast<int>(-result);
}

int Lane::Receive(Slot* slot, Bytes target, uint64_t tag) {
  const ssize_t result =
      fi_trecv(opened_.endpoint.get(), target.data, target.size,
               slot->descriptor, FI_ADDR_UNSPEC, tag, 0, slot);
  return static_cast<int>(-result);
}

}  // namespace telegrad::ofi
