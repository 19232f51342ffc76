#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "transport/transport.h"

namespace telegrad {

// Bytes that this process may lock; the largest number without a limit, and
// where its capabilities lift it.
uint64_t LockedMemoryLimit();

// Whether MakeTransport takes such options, as far as that is known without a
// context. NotFound names the transports, or network devices, that there are;
// InvalidArgument: rails for one that takes none, and numbers out of range.
absl::Status CheckTransport(const TransportOptions& options);

// Why ucx, asked for by name, cannot use active RDMA ports of this host, or not
// well: rows of RoCE v1 alone, a limit of locked memory below 64 MiB; and the
// way out. Empty: nothing is in the way, or nothing to be used.
std::string RdmaWarning(const TransportOptions& options,
                        uint64_t locked_bytes = LockedMemoryLimit());

}  // namespace telegrad
