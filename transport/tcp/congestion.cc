#include "transport/tcp/congestion.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/resource_limit.h"
#include "base/socket.h"

namespace telegrad::tcp {
namespace {

constexpr size_t kMaxName = 16;  // TCP_CA_NAME_MAX
constexpr uint32_t kNearUs = 5000;
constexpr const char* kAvailable =
    "/proc/sys/net/ipv4/tcp_available_congestion_control";

// Whether the peer is in the same building, or the next.
bool IsNear(int socket) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  return getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
         info.tcpi_rtt < kNearUs;
}

bool IsPaced(absl::string_view name) { return absl::StartsWith(name, "bbr"); }

UniqueFd NewSocket() {
  return UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

std::string Available() {
  std::ifstream file(kAvailable);
  const std::string names(std::istreambuf_iterator<char>(file), {});
  return std::string(absl::StripAsciiWhitespace(names));
}

}  // namespace

std::string CongestionControlOf(int socket) {
  std::array<char, kMaxName + 1> name{};
  socklen_t length = kMaxName;
  if (getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) !=
      0) {
    return "";
  }
  return name.data();
}

absl::Status SetCongestionControl(int socket, absl::string_view name) {
  if (setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                 static_cast<socklen_t>(name.size())) == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("congestion control \"", name, "\": ", std::strerror(errno),
                   "; this kernel has ", Available(),
                   "; users other than root may take those in "
                   "net.ipv4.tcp_allowed_congestion_control"));
}

absl::Status CheckCongestion(absl::string_view wish) {
  if (wish == "auto" || wish == "system") return absl::OkStatus();
  const UniqueFd socket = NewSocket();
  if (!socket.is_open()) return SystemError("socket", errno);
  return SetCongestionControl(socket.get(), wish);
}

std::string DescribeWish(absl::string_view wish) {
  if (wish != "auto" && wish != "system") return std::string(wish);
  const std::string own = CongestionControlOf(NewSocket().get());
  if (wish == "system" || !IsPaced(own)) return own;
  return absl::StrCat("reno nearby, else ", own);
}

void SetCongestion(int socket, absl::string_view wish) {
  if (wish == "system") return;
  if (wish != "auto") return (void)SetCongestionControl(socket, wish);
  if (IsPaced(CongestionControlOf(socket)) && IsNear(socket)) {
    (void)SetCongestionControl(socket, "reno");
  }
}

}  // namespace telegrad::tcp
