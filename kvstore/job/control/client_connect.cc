#include "kvstore/job/control/client_connect.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/peer_user.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "kvstore/job/control/handshake.h"
#include "kvstore/job/control/record.h"
#include "kvstore/job/launch/placement.h"

namespace telegrad {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kFirstPause{50};
constexpr milliseconds kLongestPause{2000};
constexpr seconds kAttemptTime{5};

class Connector {
 public:
  Connector(const JoinRequest& request, WakeEvent& wake,
            const std::function<bool()>& is_stopping)
      : request_(request), wake_(wake), is_stopping_(is_stopping) {}

  // One attempt. Unavailable: try again.
  absl::StatusOr<FrameConnection> Attempt(const HostPort& where,
                                          TimePoint deadline) {
    ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                     SchedulerAddresses(where.host, where.port));
    absl::Status last;
    auto left = static_cast<int>(addresses.size());
    for (const SocketAddress& address : addresses) {
      // One that does not answer leaves their part of the time to the others.
      const TimePoint now = Clock::now();
      absl::StatusOr<FrameConnection> connection =
          AttemptOne(address, now + (deadline - now) / left--);
      if (connection.ok() || !absl::IsUnavailable(connection.status())) {
        return connection;
      }
      last = connection.status();
    }
    return last;
  }

  // Cancelled when stopping; OK when `fd` is ready or the time is over.
  absl::Status Await(int fd, short events, TimePoint until) {
    pollfd polled[] = {{.fd = wake_.fd(), .events = POLLIN, .revents = 0},
                       {.fd = fd, .events = events, .revents = 0}};
    poll(polled, 2, PollTimeoutMs(Clock::now(), until));
    if (polled[0].revents != 0) wake_.Clear();
    if (is_stopping_()) return absl::CancelledError("join was given up");
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<FrameConnection> AttemptOne(const SocketAddress& address,
                                             TimePoint deadline) {
    ASSIGN_OR_RETURN(UniqueFd fd, BeginConnect(address));
    SetControlOptions(fd.get(), request_.timing.dead);
    pollfd polled{.fd = fd.get(), .events = POLLOUT, .revents = 0};
    while (poll(&polled, 1, 0) == 0) {
      if (Clock::now() >= deadline) {
        return absl::UnavailableError("connect: timed out");
      }
      RETURN_IF_ERROR(Await(fd.get(), POLLOUT, deadline));
    }
    RETURN_IF_ERROR(ConnectResult(fd.get()));
    FrameConnection connection(std::move(fd));
    RETURN_IF_ERROR(Handshake(
        connection, EncryptionTo(ToString(address), request_.encryption),
        deadline));
    return connection;
  }

  absl::Status Handshake(FrameConnection& connection, Encryption mode,
                         TimePoint deadline) {
    HandshakeClient handshake(
        request_.secret, request_.job_id,
        Identity{.node = {request_.role, request_.wanted_rank}, .epoch = 0},
        {Role::kScheduler}, mode);
    connection.Send(MakeFrame(handshake.Hello()));
    const absl::StatusOr<std::string> challenge =
        NextFrame(connection, deadline);
    if (absl::IsInvalidArgument(challenge.status())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "at ", request_.scheduler_address, " another program than a ",
          "scheduler answers; name the scheduler's port: ",
          challenge.status().message()));
    }
    RETURN_IF_ERROR(challenge.status());
    RETURN_IF_ERROR(CheckRefusal(*challenge));
    if (!request_.secret.has_key()) {
      RETURN_IF_ERROR(CheckPeerUser(connection.fd()));
    }
    const absl::StatusOr<std::string> proof = handshake.OnChallenge(*challenge);
    if (absl::IsDataLoss(proof.status())) {
      return absl::UnavailableError(proof.status().message());
    }
    connection.Send(MakeFrame(proof.ok() ? *proof : handshake.FalseProof()));
    RETURN_IF_ERROR(proof.status());
    if (handshake.keys() != nullptr) {
      RETURN_IF_ERROR(
          connection.Seal(*handshake.keys(), mode, /*is_client=*/true));
    }
    ASSIGN_OR_RETURN(const std::string answer, NextFrame(connection, deadline));
    RETURN_IF_ERROR(CheckRefusal(answer));
    ASSIGN_OR_RETURN(const Record record, DecodeRecord(answer));
    if (std::holds_alternative<WelcomeRecord>(record)) return absl::OkStatus();
    return WithExitCode(
        ExitCode::kMismatch,
        absl::FailedPreconditionError("no WELCOME after the handshake"));
  }

  absl::StatusOr<std::string> NextFrame(FrameConnection& connection,
                                        TimePoint deadline) {
    while (Clock::now() < deadline) {
      const absl::Status read = connection.Read();
      ASSIGN_OR_RETURN(std::optional<std::string> frame,
                       connection.Next(kMaxRecordBytes));
      if (frame.has_value()) return *std::move(frame);
      RETURN_IF_ERROR(read);
      connection.Flush();
      const short events =
          static_cast<short>(POLLIN | (connection.has_unsent() ? POLLOUT : 0));
      RETURN_IF_ERROR(Await(connection.fd(), events, deadline));
    }
    return absl::UnavailableError("no answer to the handshake");
  }

  static absl::Status CheckRefusal(const std::string& frame) {
    if (frame.empty() || frame.front() != '{') return absl::OkStatus();
    ASSIGN_OR_RETURN(const Record record, DecodeRecord(frame));
    const auto* refusal = std::get_if<RefuseRecord>(&record);
    if (refusal == nullptr) return absl::OkStatus();
    if (refusal->code == static_cast<int>(ExitCode::kIntegrity)) {
      return absl::UnavailableError(refusal->message);  // the next may be whole
    }
    return WithExitCode(static_cast<ExitCode>(refusal->code),
                        absl::UnauthenticatedError(absl::StrCat(
                            "the scheduler refuses: ", refusal->message)));
  }

  const JoinRequest& request_;
  WakeEvent& wake_;
  const std::function<bool()>& is_stopping_;
};

void SayThatWeWait(const JoinRequest& request, absl::string_view why,
                   Duration left) {
  const std::string text = absl::StrFormat(
      "waiting for the scheduler, which rank 0 or a process of its own runs, "
      "at %s, %.0f s at most (%s): check that it has started, that this is its "
      "address and port, and that no firewall is between",
      request.scheduler_address, ToSeconds(left), why);
  if (!request.on_wait) return LogWarning(text);
  request.on_wait(text);
}

}  // namespace

absl::StatusOr<FrameConnection> ConnectToScheduler(
    const JoinRequest& request, TimePoint deadline, WakeEvent& wake,
    const std::function<bool()>& is_stopping) {
  ASSIGN_OR_RETURN(const HostPort where,
                   ParseHostPort(request.scheduler_address));
  Connector connector(request, wake, is_stopping);
  // Only to keep members from knocking in step.
  Random jitter(static_cast<uint64_t>(getpid()),
                static_cast<uint64_t>(Clock::now().time_since_epoch().count()));
  Duration pause = kFirstPause;
  const TimePoint speak_at = Clock::now() + request.timing.unreached_word;
  bool has_spoken = false;
  while (true) {
    const TimePoint attempt_end =
        std::min<TimePoint>(deadline, Clock::now() + kAttemptTime);
    absl::StatusOr<FrameConnection> connection =
        connector.Attempt(where, attempt_end);
    if (connection.ok() || !absl::IsUnavailable(connection.status())) {
      return connection;
    }
    const auto wait = std::chrono::duration_cast<Duration>(
        pause * static_cast<double>(jitter.NextUniform(0.5f, 1.0f)));
    const TimePoint until = Clock::now() + wait;
    if (until >= deadline) {
      return WithExitCode(ExitCode::kSchedulerLost,
                          absl::UnavailableError(absl::StrCat(
                              "scheduler ", request.scheduler_address,
                              " unreachable until the join deadline: ",
                              connection.status().message())));
    }
    if (!has_spoken && Clock::now() >= speak_at) {
      has_spoken = true;
      SayThatWeWait(request, connection.status().message(),
                    deadline - Clock::now());
    }
    while (Clock::now() < until) {
      RETURN_IF_ERROR(connector.Await(-1, 0, until));
    }
    pause = std::min<Duration>(pause * 2, kLongestPause);
  }
}

}  // namespace telegrad
