#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/socket.h"

namespace telegrad::testing {

// Connects to a listening context and says what it likes.
class Stranger {
 public:
  explicit Stranger(const std::string& address) {
    const auto peer = ParseHostPort(address);
    const auto addresses = Resolve(peer->host, peer->port);
    auto socket = BeginConnect(addresses->front());
    if (socket.ok()) socket_ = *std::move(socket);
  }
  void Say(const std::string& text) {
    (void)send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  // Whether the other side has hung up.
  bool IsCut() {
    char byte;
    const ssize_t got = recv(socket_.get(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != ENOTCONN);
  }

 private:
  UniqueFd socket_;
};

}  // namespace telegrad::testing
