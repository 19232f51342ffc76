#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <iterator>
#include <list>
#include <string>
#include <thread>
#include <utility>

#include "base/socket.h"

namespace telegrad {

// Between a member and its scheduler, whose words it can hold back.
class Relay {
 public:
  explicit Relay(const std::string& scheduler)
      : scheduler_(*ParseIpPort(scheduler)),
        listener_(*ListenOn(*ParseIp("127.0.0.1", 0))),
        thread_([this] { Run(); }) {}
  ~Relay() {
    is_ending_ = true;
    thread_.join();
  }
  std::string address() const {
    return ToString(*LocalAddress(listener_.get()));
  }
  void Hold() { holds_ = true; }
  // They come through once the member says something.
  void HoldUntilAWord() { ends_at_a_word_ = true; }

 private:
  struct Pair {
    UniqueFd member, scheduler;
  };

  void Run() {
    while (!is_ending_) {
      Accept();
      for (auto pair = pairs_.begin(); pair != pairs_.end();) {
        const bool is_up = Pass(pair->member, pair->scheduler, true) &&
                           Pass(pair->scheduler, pair->member, false);
        pair = is_up ? std::next(pair) : pairs_.erase(pair);
      }
    }
  }

  void Accept() {
    pollfd polled{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    if (poll(&polled, 1, 1) <= 0) return;
    Pair pair{.member = UniqueFd(accept(listener_.get(), nullptr, nullptr)),
              .scheduler = *BeginConnect(scheduler_)};
    pollfd begun{.fd = pair.scheduler.get(), .events = POLLOUT, .revents = 0};
    poll(&begun, 1, 10'000);
    pairs_.push_back(std::move(pair));
  }

  // Whether both still stand.
  bool Pass(const UniqueFd& from, const UniqueFd& to, bool is_upwards) {
    pollfd polled{.fd = from.get(), .events = POLLIN, .revents = 0};
    if (poll(&polled, 1, 0) <= 0) return true;
    if (!is_upwards && holds_) return true;
    std::array<char, 65536> bytes;
    const ssize_t count = recv(from.get(), bytes.data(), bytes.size(), 0);
    if (count <= 0) return false;
    if (is_upwards && ends_at_a_word_) holds_ = false;
    return send(to.get(), bytes.data(), static_cast<size_t>(count),
                MSG_NOSIGNAL) == count;
  }

  const SocketAddress scheduler_;
  const UniqueFd listener_;
  std::list<Pair> pairs_;
  std::atomic<bool> holds_{false}, ends_at_a_word_{false}, is_ending_{false};
  std::thread thread_;
};

}  // namespace telegrad
