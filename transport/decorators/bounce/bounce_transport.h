#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device_copy.h"
#include "transport/transport.h"

namespace telegrad {

// Takes device memory in Send and OnHeader where the inner transport takes host
// memory only: payloads pass through pinned memory of `copier`. Those above
// `fragment_bytes` go in fragments (transport/decorators/bounce/fragment.h), so
// that one is copied while another is on its way and a third is copied at the
// other end; the peer is one of MakeTransport's, and need not stage. A payload
// that a peer without a device sends comes whole. Of what is sent at most
// `staging_bytes` are pinned at once, and of each endpoint and direction
// kRingFragments fragments. What is announced beyond that comes into ordinary
// memory, and from there goes through one fragment more. A copy that fails ends
// the endpoint with Internal.
struct BounceLimits {
  size_t staging_bytes = size_t{128} << 20;
  // Takes 0.1 ms over PCIe 4.0 with 16 lanes: long beside what a message costs,
  // short beside a payload of 64 MiB. What stores and collectives send is not
  // larger, and flows as several messages already.
  size_t fragment_bytes = size_t{2} << 20;
};
constexpr size_t kRingFragments = 8;
absl::StatusOr<std::unique_ptr<TransportContext>> MakeBounceTransport(
    const TransportFactory& make_inner, const TransportOptions& options,
    std::unique_ptr<kernels::DeviceCopier> copier, TransportHandler* handler,
    const BounceLimits& limits = {});

}  // namespace telegrad
