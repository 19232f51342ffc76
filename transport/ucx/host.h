#pragma once

#include <string>

namespace telegrad::ucx {

// Equal for processes that can share memory: same boot of the same kernel,
// same user, same pid, ipc, network and user namespaces (UCX opens a peer's
// segment in /proc and wakes it by an abstract socket). Empty if unknown.
std::string HostIdentity();

}  // namespace telegrad::ucx
