#pragma once

#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"

namespace telegrad {

// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { Close(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;

  bool is_open() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  void Close();

 private:
  int fd_ = -1;
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

// "127.0.0.1:40123", "[::1]:40123", "node7:40123". An IPv6 address needs its
// brackets. Port 0, "any free one" of who listens, is allowed where
// `lowest_port` is 0.
struct HostPort {
  std::string host;
  int port = 0;
};
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text,
                                       int lowest_port = 1);
std::string FormatHostPort(absl::string_view host, int port);

// All addresses of a name or number; asks the resolver, so it may block.
absl::StatusOr<std::vector<SocketAddress>> Resolve(const std::string& host,
                                                   int port);
// The address of a number; no name is looked up, so this waits for nobody.
absl::StatusOr<SocketAddress> ParseIp(const std::string& ip, int port);
// "127.0.0.1:40123", "[::1]:40123": numbers only.
absl::StatusOr<SocketAddress> ParseIpPort(absl::string_view text);
bool IsLoopback(const SocketAddress& address);
std::string ToString(const SocketAddress& address);

// A listener, non-blocking, on exactly that one. AlreadyExists: it is taken.
absl::StatusOr<UniqueFd> ListenOn(const SocketAddress& address);
absl::StatusOr<SocketAddress> LocalAddress(int fd);

// A non-blocking connection that may still be under way; when the descriptor
// is writable, ConnectResult tells.
absl::StatusOr<UniqueFd> BeginConnect(const SocketAddress& address);
absl::Status ConnectResult(int fd);

// No delay, keep-alive, and un-acknowledged data fails after `dead`.
void SetControlOptions(int fd, Duration dead);

// Ends a poll() of another thread. Thread-safe.
class WakeEvent {
 public:
  WakeEvent();
  int fd() const { return fd_.get(); }
  bool is_open() const { return fd_.is_open(); }
  void Notify();
  void Clear();

 private:
  UniqueFd fd_;
};

// This machine's name, made of [A-Za-z0-9_.-] only.
std::string OwnHostName();

// At least 0 and rounded up, for poll().
int PollTimeoutMs(TimePoint now, TimePoint until);

}  // namespace telegrad
