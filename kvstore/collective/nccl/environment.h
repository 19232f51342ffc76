#pragma once

#include <string>

#include "transport/transport.h"

namespace telegrad::collective {

// Gives NCCL the RDMA ports and the row of the GID table of `options`, which it
// takes from the environment of the process alone: NCCL_IB_HCA and
// NCCL_IB_GID_INDEX, where they are unset. Returns what it has set now:
// "NCCL_IB_HCA==mlx5_0:1 NCCL_IB_GID_INDEX=3". Before NCCL's first call.
std::string SetNcclEnvironment(const TransportOptions& options);

}  // namespace telegrad::collective
