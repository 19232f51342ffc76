#pragma once

#include "absl/status/status.h"

namespace telegrad {

// Where a job has no secret, whoever reaches a port may speak: this keeps to
// one user what listens on loopback.
//
// Unauthenticated when the other end of a TCP connection over loopback is of
// another user than this process, and not of root; names both and the way out.
// Unavailable when it has closed already. OK beyond loopback, for other
// sockets, and where the kernel does not tell (sock_diag(7), which a sandbox
// may refuse). Of a server ask only when it has said something: until it
// accepts, the other end is nobody's.
absl::Status CheckPeerUser(int fd);

}  // namespace telegrad
