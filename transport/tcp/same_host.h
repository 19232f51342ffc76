#pragma once

#include "base/local_socket.h"
#include "transport/tcp/wire.h"

namespace telegrad::tcp {

// Of this process.
Mark MakeMark();

// Whether a local connection leads to a process of our user, `peer`.
bool IsTrusted(int socket, LocalPeer* peer);

}  // namespace telegrad::tcp
