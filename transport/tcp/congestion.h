#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// How fast a connection of TCP sends, which is the kernel's to decide.
namespace telegrad::tcp {

// "cubic", "bbr"; empty where the socket does not say.
std::string CongestionControlOf(int socket);

// InvalidArgument, with the names that the kernel has, for one that it has not
// or does not let this user take.
absl::Status SetCongestionControl(int socket, absl::string_view name);

// InvalidArgument, as SetCongestionControl, where it would not take the wish.
absl::Status CheckCongestion(absl::string_view wish);

// What TransportOptions::congestion comes to, before there is a connection:
// "cubic", "reno nearby, else bbr"; empty where the system does not say.
std::string DescribeWish(absl::string_view wish);

// Sets what a connected socket has, by TransportOptions::congestion. "auto":
// reno in place of bbr, where the first round trip took less than 5 ms. bbr
// sends at the rate that it has seen, and of what comes in bursts, from both
// ends at once, it sees too little: an exchange takes up to half as long again
// as the bytes do (docs/transports.md). Reno is what every user may take.
// Source: net/ipv4/tcp_bbr.c, tcp_cong.c of Linux.
void SetCongestion(int socket, absl::string_view wish);

// What one context's connections have. One thread.
class Congestion {
 public:
  explicit Congestion(std::string wish) : wish_(std::move(wish)) {}

  // Sets a connected socket: the choice depends on how far the peer is.
  void Choose(int socket) {
    SetCongestion(socket, wish_);
    last_ = CongestionControlOf(socket);
  }
  // " (cubic)": of the last connection, before there is one of the wish.
  std::string Describe() const {
    const std::string text = last_.empty() ? DescribeWish(wish_) : last_;
    return text.empty() ? "" : absl::StrCat(" (", text, ")");
  }

 private:
  const std::string wish_;
  std::string last_;
};

}  // namespace telegrad::tcp
