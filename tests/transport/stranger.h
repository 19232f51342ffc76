#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/clock.h"
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
  // What the other side has said since: so many bytes, or what came of them.
  std::string Hear(size_t size) {
    std::string heard(size, '\0');
    size_t num_heard = 0;
    const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
    while (num_heard < size && Clock::now() < deadline) {
      const ssize_t got = recv(socket_.get(), heard.data() + num_heard,
                               size - num_heard, MSG_DONTWAIT);
      if (got > 0) num_heard += static_cast<size_t>(got);
    }
    heard.resize(num_heard);
    return heard;
  }
  bool HearsNothing() {
    char byte;
    return recv(socket_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 &&
           errno == EAGAIN;
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
