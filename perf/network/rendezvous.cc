#include "perf/network/rendezvous.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/endian.h"
#include "base/exit_code.h"
#include "base/socket.h"
#include "base/status_macros.h"
#include "kvstore/job/control/frame_connection.h"
#include "kvstore/job/control/handshake.h"

namespace telegrad::perf {
namespace {

constexpr size_t kMaxHelloBytes = kMaxHandshakeBytes;
constexpr char kJobId[] = "telegrad-perf";  // of the handshake
constexpr size_t kMaxPayloadBytes = size_t{4} << 20;
constexpr size_t kMaxReplyBytes = size_t{1} << 30;
constexpr char kGreeting[] = "telegrad-perf-2";
constexpr Duration kPeerSilence = std::chrono::seconds(60);

// False when the deadline passed first.
bool AwaitFile(int fd, short events, TimePoint deadline) {
  while (true) {
    pollfd file = {fd, events, 0};
    const int wait_ms = PollTimeoutMs(Clock::now(), deadline);
    if (poll(&file, 1, wait_ms) > 0) return true;
    if (Clock::now() >= deadline) return false;
  }
}

absl::StatusOr<std::string> ReadFrame(FrameConnection& connection,
                                      size_t max_bytes, TimePoint deadline) {
  while (true) {
    ASSIGN_OR_RETURN(std::optional<std::string> body,
                     connection.Next(max_bytes));
    if (body.has_value()) return *std::move(body);
    if (!AwaitFile(connection.fd(), POLLIN, deadline)) {
      return absl::DeadlineExceededError("nothing received in time");
    }
    RETURN_IF_ERROR(connection.Read());
  }
}

absl::Status SendFrame(FrameConnection& connection, const std::string& body,
                       TimePoint deadline) {
  connection.Send(MakeFrame(body));
  while (connection.has_unsent()) {
    if (!AwaitFile(connection.fd(), POLLOUT, deadline)) {
      return absl::DeadlineExceededError("not taken in time");
    }
    connection.Flush();
  }
  return absl::OkStatus();
}

absl::Status Named(int rank, const absl::Status& status) {
  if (status.ok()) return status;
  return WithExitCode(
      ExitCode::kPeerDied,
      absl::Status(status.code(), absl::StrCat("rendezvous: rank ", rank, ": ",
                                               status.message())));
}

// The other side has shown that it may be here.
absl::Status AdmitPeer(FrameConnection& connection, const Secret& secret,
                       TimePoint deadline) {
  HandshakeServer handshake(secret, kJobId);
  ASSIGN_OR_RETURN(const std::string hello,
                   ReadFrame(connection, kMaxHandshakeBytes, deadline));
  ASSIGN_OR_RETURN(const std::string challenge, handshake.OnHello(hello));
  RETURN_IF_ERROR(SendFrame(connection, challenge, deadline));
  ASSIGN_OR_RETURN(const std::string proof,
                   ReadFrame(connection, kMaxHandshakeBytes, deadline));
  return handshake.OnProof(proof).status();
}

absl::Status ShowWhoWeAre(FrameConnection& connection, int rank,
                          const Secret& secret, TimePoint deadline) {
  HandshakeClient handshake(secret, kJobId, {.node = {Role::kWorker, rank}});
  RETURN_IF_ERROR(SendFrame(connection, handshake.Hello(), deadline));
  const absl::StatusOr<std::string> challenge =
      ReadFrame(connection, kMaxHandshakeBytes, deadline);
  if (absl::IsUnavailable(challenge.status())) {
    return WithExitCode(
        ExitCode::kAuthentication,
        absl::UnauthenticatedError(
            "rendezvous: rank 0 closed the connection during the handshake; "
            "give all ranks the same --secret-file"));
  }
  RETURN_IF_ERROR(challenge.status());
  ASSIGN_OR_RETURN(const std::string proof, handshake.OnChallenge(*challenge));
  return SendFrame(connection, proof, deadline);
}

// As Scheduler::Start has it.
absl::StatusOr<UniqueFd> ListenFor(const SocketAddress& address,
                                   const Admission& admission) {
  if (IsLoopback(address) || admission.insecure || admission.secret.has_key()) {
    return ListenOn(address);
  }
  return WithExitCode(
      ExitCode::kAuthentication,
      absl::FailedPreconditionError(absl::StrCat(
          "the rendezvous would listen on ", ToString(address),
          " without a secret: give --secret-file, or --insecure to accept that "
          "anyone on that network may join")));
}

std::string Pack(const std::vector<std::string>& texts) {
  std::string packed;
  for (const std::string& text : texts) {
    std::array<std::byte, 4> length;
    StoreLittleEndian(length.data(), static_cast<uint32_t>(text.size()));
    packed.append(reinterpret_cast<const char*>(length.data()), length.size());
    packed.append(text);
  }
  return packed;
}

absl::StatusOr<std::vector<std::string>> Unpack(absl::string_view packed,
                                                size_t count) {
  std::vector<std::string> texts;
  while (packed.size() >= 4) {
    const size_t length = LoadLittleEndian<uint32_t>(
        reinterpret_cast<const std::byte*>(packed.data()));
    packed.remove_prefix(4);
    if (length > packed.size()) break;
    texts.emplace_back(packed.substr(0, length));
    packed.remove_prefix(length);
  }
  if (!packed.empty() || texts.size() != count) {
    return absl::DataLossError("rendezvous: rank 0's answer is malformed");
  }
  return texts;
}

std::string IpOf(int fd) {
  const absl::StatusOr<SocketAddress> address = LocalAddress(fd);
  if (!address.ok()) return "127.0.0.1";
  const auto host_port = ParseHostPort(ToString(*address));
  return host_port.ok() ? host_port->host : "127.0.0.1";
}

class RootRendezvous : public Rendezvous {
 public:
  RootRendezvous(std::string ip, std::vector<FrameConnection> others)
      : ip_(std::move(ip)), others_(std::move(others)) {}

  absl::StatusOr<std::vector<std::string>> Gather(const std::string& mine,
                                                  TimePoint deadline) override {
    std::vector<std::string> texts = {mine};
    for (size_t i = 0; i < others_.size(); ++i) {
      auto text = ReadFrame(others_[i], kMaxPayloadBytes, deadline);
      if (!text.ok()) return Named(static_cast<int>(i) + 1, text.status());
      texts.push_back(*std::move(text));
    }
    const std::string packed = Pack(texts);
    for (size_t i = 0; i < others_.size(); ++i) {
      RETURN_IF_ERROR(Named(static_cast<int>(i) + 1,
                            SendFrame(others_[i], packed, deadline)));
    }
    return texts;
  }
  std::string own_ip() const override { return ip_; }

 private:
  const std::string ip_;
  std::vector<FrameConnection> others_;  // of rank 1 on
};

class MemberRendezvous : public Rendezvous {
 public:
  MemberRendezvous(FrameConnection connection, int world_size)
      : connection_(std::move(connection)),
        world_size_(static_cast<size_t>(world_size)) {}

  absl::StatusOr<std::vector<std::string>> Gather(const std::string& mine,
                                                  TimePoint deadline) override {
    RETURN_IF_ERROR(Named(0, SendFrame(connection_, mine, deadline)));
    const auto packed = ReadFrame(connection_, kMaxReplyBytes, deadline);
    RETURN_IF_ERROR(Named(0, packed.status()));
    return Unpack(*packed, world_size_);
  }
  std::string own_ip() const override { return IpOf(connection_.fd()); }

 private:
  FrameConnection connection_;
  const size_t world_size_;
};

// The rank that a hello names, if it is one.
std::optional<int> RankIn(absl::string_view hello, int world_size) {
  const std::vector<std::string> words = absl::StrSplit(hello, ' ');
  int rank = 0, size = 0;
  if (words.size() != 3 || words[0] != kGreeting ||
      !absl::SimpleAtoi(words[1], &rank) ||
      !absl::SimpleAtoi(words[2], &size) || size != world_size || rank < 1 ||
      rank >= world_size) {
    return std::nullopt;
  }
  return rank;
}

class TcpRoot : public RendezvousRoot {
 public:
  TcpRoot(UniqueFd listener, Secret secret)
      : listener_(std::move(listener)), secret_(std::move(secret)) {}

  std::string address() const override {
    const auto address = LocalAddress(listener_.get());
    return address.ok() ? ToString(*address) : "";
  }

  absl::StatusOr<std::unique_ptr<Rendezvous>> Accept(
      int world_size, TimePoint deadline) override {
    std::vector<std::optional<FrameConnection>> ranks(
        static_cast<size_t>(world_size) - 1);
    while (!Missing(ranks).empty()) {
      if (!AwaitFile(listener_.get(), POLLIN, deadline)) {
        return WithExitCode(
            ExitCode::kJoinTimeout,
            absl::DeadlineExceededError(absl::StrCat(
                "rendezvous at ", address(), WhoReachesIt(), ": rank ",
                Missing(ranks), " of ", world_size, " did not come in time")));
      }
      UniqueFd fd(accept4(listener_.get(), nullptr, nullptr,
                          SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.is_open()) continue;
      SetControlOptions(fd.get(), kPeerSilence);
      FrameConnection connection(std::move(fd));
      // A peer that says nothing holds the others up for a moment only.
      const TimePoint until =
          std::min(deadline, Clock::now() + std::chrono::seconds(5));
      if (!AdmitPeer(connection, secret_, until).ok()) continue;
      const auto hello = ReadFrame(connection, kMaxHelloBytes, until);
      const auto rank =
          hello.ok() ? RankIn(*hello, world_size) : std::optional<int>();
      if (!rank.has_value() || ranks[static_cast<size_t>(*rank) - 1]) continue;
      ranks[static_cast<size_t>(*rank) - 1].emplace(std::move(connection));
    }
    std::vector<FrameConnection> others;
    for (auto& rank : ranks) others.push_back(*std::move(rank));
    std::string ip = IpOf(listener_.get());
    // Whoever is early for the next job must not wait here.
    listener_.Close();
    return std::make_unique<RootRendezvous>(std::move(ip), std::move(others));
  }

 private:
  const char* WhoReachesIt() const {
    const auto address = LocalAddress(listener_.get());
    const bool is_loopback = address.ok() && IsLoopback(*address);
    return is_loopback ? " (which only this host reaches)" : "";
  }

  static std::string Missing(
      const std::vector<std::optional<FrameConnection>>& ranks) {
    std::vector<size_t> missing;
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (!ranks[i].has_value()) missing.push_back(i + 1);
    }
    return absl::StrJoin(missing, ", ");
  }

  UniqueFd listener_;
  const Secret secret_;
};

absl::StatusOr<UniqueFd> ConnectOnce(const SocketAddress& address,
                                     TimePoint deadline) {
  ASSIGN_OR_RETURN(UniqueFd fd, BeginConnect(address));
  if (!AwaitFile(fd.get(), POLLOUT, deadline)) {
    return absl::DeadlineExceededError("no answer in time");
  }
  RETURN_IF_ERROR(ConnectResult(fd.get()));
  return fd;
}

absl::StatusOr<UniqueFd> ConnectUntil(const std::string& host_port,
                                      TimePoint deadline) {
  ASSIGN_OR_RETURN(const HostPort place, ParseHostPort(host_port));
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                   Resolve(place.host, place.port));
  while (true) {
    absl::Status last;
    auto left = static_cast<int>(addresses.size());
    for (const SocketAddress& address : addresses) {
      // One that does not answer leaves their part of the time to the others.
      const TimePoint now = Clock::now();
      absl::StatusOr<UniqueFd> fd =
          ConnectOnce(address, now + (deadline - now) / left--);
      if (fd.ok()) return fd;
      last = fd.status();
    }
    if (Clock::now() >= deadline) {
      return WithExitCode(
          ExitCode::kJoinTimeout,
          absl::DeadlineExceededError(absl::StrCat(
              "rendezvous: no rank 0 at ", host_port, ": ", last.message())));
    }
    poll(nullptr, 0, 100);
  }
}

std::string HostOf(const SocketAddress& address) {
  const auto parts = ParseHostPort(ToString(address));
  return parts.ok() ? parts->host : "";
}

bool IsAny(const SocketAddress& address) {
  const std::string host = HostOf(address);
  return host == "0.0.0.0" || host == "::";
}

// Whether this machine has that address.
bool IsOwn(const SocketAddress& address) {
  const auto any_port = ParseIp(HostOf(address), 0);
  return any_port.ok() && ListenOn(*any_port).ok();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RendezvousRoot>> RendezvousRoot::Listen(
    const std::string& host_port, const Admission& admission) {
  ASSIGN_OR_RETURN(const HostPort place, ParseHostPort(host_port, 0));
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                   Resolve(place.host, place.port));
  ASSIGN_OR_RETURN(UniqueFd listener, ListenFor(addresses.front(), admission));
  return std::make_unique<TcpRoot>(std::move(listener), admission.secret);
}

absl::StatusOr<std::unique_ptr<RendezvousRoot>> RendezvousRoot::ListenIfFirst(
    const std::string& host_port, const Admission& admission) {
  ASSIGN_OR_RETURN(const HostPort place, ParseHostPort(host_port));
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                   Resolve(place.host, place.port));
  for (const SocketAddress& address : addresses) {
    if (IsAny(address)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", place.host, "\" names no host"));
    }
    // Only who has the address can break the rule of where to listen.
    absl::StatusOr<UniqueFd> listener =
        IsOwn(address) ? ListenFor(address, admission) : ListenOn(address);
    if (listener.ok()) {
      return std::make_unique<TcpRoot>(*std::move(listener), admission.secret);
    }
    if (absl::IsAlreadyExists(listener.status())) return nullptr;
    if (IsOwn(address)) return listener.status();
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<Rendezvous>> JoinRendezvous(
    const std::string& host_port, int rank, int world_size, TimePoint deadline,
    const Admission& admission) {
  ASSIGN_OR_RETURN(UniqueFd fd, ConnectUntil(host_port, deadline));
  SetControlOptions(fd.get(), kPeerSilence);
  FrameConnection connection(std::move(fd));
  const absl::Status shown =
      ShowWhoWeAre(connection, rank, admission.secret, deadline);
  if (absl::IsUnauthenticated(shown)) return shown;
  RETURN_IF_ERROR(Named(0, shown));
  RETURN_IF_ERROR(Named(
      0,
      SendFrame(connection, absl::StrCat(kGreeting, " ", rank, " ", world_size),
                deadline)));
  return std::make_unique<MemberRendezvous>(std::move(connection), world_size);
}

}  // namespace telegrad::perf
