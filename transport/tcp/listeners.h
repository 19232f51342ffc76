#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/acceptor.h"
#include "base/poller.h"
#include "transport/tcp/same_host.h"
#include "transport/transport.h"

namespace telegrad::tcp {

// Where peers connect to: a port of the bind address and of each rail, and what
// is without TCP. One thread.
class Listeners {
 public:
  // The poller's keys below are theirs.
  static constexpr uint64_t kFirstOther = 2;

  // Before anything else.
  absl::Status Init(const TransportOptions& options);
  const std::vector<std::string>& ips() const { return ips_; }

  // Their addresses, with commas between them.
  absl::StatusOr<std::string> Listen(Poller& poller);
  // Who has connected where the poller says `key`; not open: nobody, for now.
  PeerSocket Accept(uint64_t key);

 private:
  static constexpr uint64_t kTcpKey = 0;
  static constexpr uint64_t kSameHostKey = 1;

  std::vector<std::string> ips_;     // the bind address first
  bool has_same_host_ = false;       // it is listened on without TCP, too
  bool checks_user_ = false;         // nothing else tells who may speak
  std::vector<Acceptor> acceptors_;  // one for each IP
  Acceptor same_host_;
};

}  // namespace telegrad::tcp
