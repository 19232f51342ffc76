#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device_copy.h"
#include "transport/transport.h"

namespace telegrad {

// Takes device memory in Send and OnHeader where the inner transport takes host
// memory only: payloads pass through pinned memory of `copier`, at most
// kStagingBytes of what is sent at once and one buffer for each that is
// received. Several are copied while others are on their way. A peer needs
// nothing of this: messages are the inner transport's. A copy that fails
// ends the endpoint with Internal.
constexpr size_t kStagingBytes = size_t{128} << 20;
absl::StatusOr<std::unique_ptr<TransportContext>> MakeStagedTransport(
    const TransportFactory& make_inner, const TransportOptions& options,
    std::unique_ptr<kernels::DeviceCopier> copier, TransportHandler* handler,
    size_t staging_bytes = kStagingBytes);

}  // namespace telegrad
