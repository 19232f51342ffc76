#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/transport.h"
#include "transport/ucx/address.h"

namespace telegrad::ucx {

struct ConfigDeleter {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};

struct Config {
  std::unique_ptr<ucp_config_t, ConfigDeleter> handle;
  std::string tls;      // UCX_TLS in force
  std::string devices;  // UCX_NET_DEVICES in force
  // What else we have set: "UCX_MM_RX_BUFS_GROW=64".
  std::vector<std::string> ours;
};

// UCX's own configuration (environment and ucx.conf), where it leaves TLS and
// NET_DEVICES at their default "all" narrowed to the network and the
// interface that has `bind`, with the options' RDMA ports and row of the GID
// table. So that nothing listens where nobody asked for it,
// other devices than lo are refused when `bind` is a loopback address.
// Errors: InvalidArgument, NotFound.
absl::StatusOr<Config> MakeConfig(const TransportOptions& options,
                                  const SocketAddress& bind);

// For a context that has shared memory only, and where endpoints report
// failures (needed to cancel what a dead peer will never take). The user's
// UCX_TLS and UCX_CMA_MEMORY_INVALIDATE take transports away. Errors:
// Unavailable if posix is not left, or UCX_MM_ERROR_HANDLING is off.
absl::StatusOr<Config> MakeShmConfig(const TransportOptions& options);

absl::StatusOr<ucp_context_h> MakeContext(const Config& config);

// Whether the library, as it is configured, moves memory of CUDA devices.
bool TakesCuda(ucp_context_h context);

// UCX installs handlers of fatal signals when it is loaded. Gives the signals
// back, unless UCX_HANDLE_ERRORS was set. Returns the setting that does it.
std::string RemoveSignalHandlers();

// "connect to 127.0.0.1:1: Destination is unreachable" as Unavailable.
absl::Status UcxError(absl::string_view what, ucs_status_t status);

}  // namespace telegrad::ucx
