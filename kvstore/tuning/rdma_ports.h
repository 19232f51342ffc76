#pragma once

#include <string>

#include "topology/machine.h"
#include "transport/transport.h"

namespace telegrad {

// Sets `options.rdma_ports` and `options.gid_rows` from what detection found on
// this machine, with what the user has said (TELEGRAD_NICS,
// TELEGRAD_GID_INDEX). Ports that can be used are active ones of InfiniBand,
// and of RoCE v2 with a row of the GID table, whose device nodes are there.
// With TELEGRAD_NICS all of them; else those of `interface`, which has the bind
// address; else those of InfiniBand with at least half of the best rate. EFA
// where there are none.
void TakeMachine(const Machine& machine, const std::string& interface,
                 TransportOptions& options);

}  // namespace telegrad
