#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/socket.h"

// Streams between processes of one network namespace (unix(7), abstract
// names): nothing lies in the file system, and nobody else hears.
namespace telegrad {

// A listener, non-blocking. `name`: 1 to 100 bytes. AlreadyExists: in use.
absl::StatusOr<UniqueFd> ListenLocal(absl::string_view name);

// A connection, non-blocking, at once. NotFound: nobody listens there.
// Unavailable: more want to connect than the listener takes for now.
absl::StatusOr<UniqueFd> ConnectLocal(absl::string_view name);

// Who has connected, or listened, at the other end, as the kernel knows it.
struct LocalPeer {
  int process = 0;  // 0: of another process namespace, not to be seen from here
  bool is_same_user = false;  // as whom this process acts
};
absl::StatusOr<LocalPeer> PeerOf(int fd);

// Whether the peer has closed, or ended, whatever is still to be read.
bool HasHungUp(int fd);

}  // namespace telegrad
