#include "transport/tcp/silence.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace telegrad::tcp {
namespace {

constexpr Duration kLookInterval = std::chrono::seconds(1);
// Without an answer from the peer's kernel for so long a path is cut.
constexpr std::chrono::seconds kSilence{7};
constexpr int kSilentLooks = 2;  // one may be while an answer is on its way

// A peer that takes nothing answers probes, at longer and longer intervals.
bool IsUnanswered(int socket) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
    return false;
  const bool is_due = (info.tcpi_unacked > 0 && info.tcpi_retransmits > 0) ||
                      info.tcpi_probes > 0;
  return is_due &&
         std::chrono::milliseconds(info.tcpi_last_ack_recv) >= kSilence;
}

}  // namespace

void KeepAlive(int socket) {
  const auto set = [socket](int level, int option, int value) {
    (void)setsockopt(socket, level, option, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 3);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

void SilenceWatch::Look(TimePoint now, EndpointTable<Connection>& connections) {
  if (now < next_look_) return;
  next_look_ = now + kLookInterval;
  for (const auto& [id, connection] : connections.all()) {
    if (connection->is_local() || connection->is_connecting ||
        connection->is_over()) {
      continue;
    }
    int& num_silent = connection->num_silent_looks;
    num_silent = IsUnanswered(connection->socket.get()) ? num_silent + 1 : 0;
    if (num_silent < kSilentLooks) continue;
    connections.BeginClosing(
        *connection, State::kFailed,
        absl::UnavailableError(absl::StrCat(
            "the network brings no answer, not of the peer's kernel either, "
            "for ",
            kSilence.count(), " s")));
  }
}

}  // namespace telegrad::tcp
