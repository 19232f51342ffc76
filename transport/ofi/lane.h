#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "transport/ofi/slot.h"

namespace telegrad::ofi {

// libfabric's objects that endpoints share.
struct EndpointParts {
  const fi_info* info = nullptr;
  fid_domain* domain = nullptr;
  fid_av* av = nullptr;
  fid_cq* queue = nullptr;
};

struct OpenedEndpoint {
  FidPtr<fid_ep> endpoint;
  std::string address;  // as fi_getname gives it
};
// Unavailable and others, from libfabric.
absl::StatusOr<OpenedEndpoint> OpenEndpoint(const EndpointParts& parts);

// Large payloads of one connection, from the user's memory to the user's
// memory. It has an endpoint of its own because libfabric cannot take back an
// operation that has begun: closing the endpoint does, for one peer only.
class Lane {
 public:
  static absl::StatusOr<std::unique_ptr<Lane>> Open(const EndpointParts& parts);

  const std::string& address() const { return opened_.address; }

  // 0, FI_EAGAIN, or another error of libfabric; only with 0 does libfabric
  // have slot and memory, until a completion or the end of the lane.
  int Send(Slot* slot, ConstBytes payload, fi_addr_t to, uint64_t tag);
  int Receive(Slot* slot, Bytes target, uint64_t tag);

 private:
  explicit Lane(OpenedEndpoint opened) : opened_(std::move(opened)) {}

  const OpenedEndpoint opened_;
};

}  // namespace telegrad::ofi
