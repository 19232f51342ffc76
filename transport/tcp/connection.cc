#include "transport/tcp/connection.h"

#include <sys/socket.h>

#include <cerrno>

namespace telegrad::tcp {

bool Connection::WriteOpening(size_t* num_moved) {
  while (!opening.empty()) {
    const ssize_t sent =
        send(socket.get(), opening.data(), opening.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      is_writable = false;
      const bool is_full = errno == EAGAIN || errno == EWOULDBLOCK;
      // What is broken says so after what has arrived.
      if (!is_full) is_readable = is_ending = true;
      return false;
    }
    *num_moved += static_cast<size_t>(sent);
    opening.erase(0, static_cast<size_t>(sent));
  }
  return proof.is_done();
}

}  // namespace telegrad::tcp
