#include "kvstore/job/control/scheduler_connections.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/peer_user.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kMaxStrangers = 64;
constexpr size_t kMaxStrangerFrame = 4096 - 4;  // 4 KiB with the length
constexpr seconds kHandshakeTime{5};
constexpr seconds kJoinRecordTime{30};  // 4 MiB at 1.2 Mbit/s
constexpr seconds kStrangerRight{1};    // then a newer one may take the place
constexpr milliseconds kCloseTime{1000};
constexpr int kAcceptsPerTurn = 32;
constexpr size_t kMostTold = 64;  // refusals

}  // namespace

SchedulerConnections::SchedulerConnections(const SchedulerOptions& options,
                                           UniqueFd listener,
                                           SchedulerState* job)
    : secret_(options.secret),
      job_id_(options.job_id),
      dead_(options.timing.dead),
      frees_port_(options.frees_port),
      listener_(std::move(listener)),
      job_(job) {}

size_t SchedulerConnections::num_strangers() const {
  return static_cast<size_t>(std::count_if(
      connections_.begin(), connections_.end(),
      [](const auto& one) { return one.second.state != State::kMember; }));
}

// The oldest stranger goes when it has had its second without a proof.
bool SchedulerConnections::MakeRoom(TimePoint now) {
  if (num_strangers() < kMaxStrangers) return true;
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    const Connection& one = it->second;
    if (!one.is_stranger()) continue;
    if (now - one.opened < kStrangerRight) continue;
    connections_.erase(it);
    return true;
  }
  return false;
}

void SchedulerConnections::PollOnce(WakeEvent& wake, Duration at_most) {
  const TimePoint start = Clock::now();
  const bool is_accepting = start >= accept_after_ && MakeRoom(start);
  std::vector<pollfd> polled = {
      {.fd = wake.fd(), .events = POLLIN, .revents = 0},
      {.fd = is_accepting ? listener_.get() : -1,
       .events = POLLIN,
       .revents = 0}};
  std::vector<ConnectionId> ids;
  for (const auto& [id, connection] : connections_) {
    const short wanted =
        static_cast<short>((connection.is_closing ? 0 : POLLIN) |
                           (connection.frames.has_unsent() ? POLLOUT : 0));
    polled.push_back(
        {.fd = connection.frames.fd(), .events = wanted, .revents = 0});
    ids.push_back(id);
  }
  if (poll(polled.data(), polled.size(),
           PollTimeoutMs(start, start + at_most)) <= 0) {
    return;
  }
  const TimePoint now = Clock::now();
  if (polled[0].revents != 0) wake.Clear();
  for (size_t i = 0; i < ids.size(); ++i) {
    const short events = polled[i + 2].revents;
    if (events == 0) continue;
    Connection& connection = connections_.at(ids[i]);
    if ((events & POLLOUT) != 0) connection.frames.Flush();
    if (connection.is_closing) {
      connection.is_gone = (events & (POLLERR | POLLHUP)) != 0;
    } else if ((events & ~POLLOUT) != 0) {
      OnReadable(ids[i], connection, now);
    }
  }
  if (polled[1].revents != 0) Accept(now);
}

void SchedulerConnections::Accept(TimePoint now) {
  for (int i = 0; i < kAcceptsPerTurn && MakeRoom(now); ++i) {
    SocketAddress from;
    from.length = sizeof(from.storage);
    UniqueFd fd(accept4(listener_.get(),
                        reinterpret_cast<sockaddr*>(&from.storage),
                        &from.length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.is_open()) {
      const bool is_out_of_files = errno == EMFILE || errno == ENFILE ||
                                   errno == ENOBUFS || errno == ENOMEM;
      if (is_out_of_files) accept_after_ = now + milliseconds(100);
      return;
    }
    SetControlOptions(fd.get(), dead_);
    auto [it, inserted] =
        connections_.try_emplace(next_id_++, std::move(fd), secret_, job_id_);
    it->second.peer = ToString(from);
    it->second.opened = now;
    it->second.deadline = now + kHandshakeTime;
    const absl::Status user = secret_.has_key()
                                  ? absl::OkStatus()
                                  : CheckPeerUser(it->second.frames.fd());
    if (absl::IsUnauthenticated(user)) {
      Refuse(it->first, it->second, user, now);
    } else {
      it->second.is_gone = !user.ok();
    }
  }
}

void SchedulerConnections::OnReadable(ConnectionId id, Connection& connection,
                                      TimePoint now) {
  const absl::Status read = connection.frames.Read();
  while (!connection.is_closing) {
    const bool is_known = connection.state == State::kWelcome ||
                          connection.state == State::kMember;
    auto frame =
        connection.frames.Next(is_known ? kMaxRecordBytes : kMaxStrangerFrame);
    if (frame.ok() && !frame->has_value()) break;
    const absl::Status handled =
        frame.ok() ? OnFrame(id, connection, **frame, now) : frame.status();
    if (!handled.ok()) Refuse(id, connection, handled, now);
  }
  if (read.ok()) return;
  connection.is_gone = true;
  job_->OnClosed(id, read, now);
}

absl::Status SchedulerConnections::OnFrame(ConnectionId id,
                                           Connection& connection,
                                           const std::string& frame,
                                           TimePoint now) {
  if (connection.state == State::kHello) {
    ASSIGN_OR_RETURN(const std::string challenge,
                     connection.handshake.OnHello(frame));
    connection.frames.Send(MakeFrame(challenge));
    connection.state = State::kProof;
    return absl::OkStatus();
  }
  if (connection.state == State::kProof) {
    const HandshakeServer& handshake = connection.handshake;
    ASSIGN_OR_RETURN(connection.identity, connection.handshake.OnProof(frame));
    if (handshake.keys() != nullptr) {
      RETURN_IF_ERROR(connection.frames.Seal(
          *handshake.keys(), handshake.mode(), /*is_client=*/false));
    }
    connection.frames.Send(MakeFrame(EncodeRecord(WelcomeRecord{})));
    connection.state = State::kWelcome;
    connection.deadline = now + kJoinRecordTime;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Record record, DecodeRecord(frame));
  RETURN_IF_ERROR(job_->OnRecord(id, connection.identity, record, now));
  connection.state = State::kMember;
  return absl::OkStatus();
}

void SchedulerConnections::Refuse(ConnectionId id, Connection& connection,
                                  const absl::Status& why, TimePoint now) {
  RefuseRecord refusal;
  refusal.code = static_cast<int>(ExitCodeOf(why));
  if (connection.is_stranger() && !absl::IsUnauthenticated(why)) {
    refusal.code = static_cast<int>(ExitCode::kIntegrity);  // or no member
  }
  refusal.message = std::string(why.message());
  connection.frames.Send(MakeFrame(EncodeRecord(refusal)));
  connection.is_closing = true;
  connection.deadline = now + kCloseTime;
  Tell(connection, why.message());
  job_->OnClosed(id, why, now);
}

// A stranger's address once, whatever it tries.
void SchedulerConnections::Tell(const Connection& refused,
                                absl::string_view why) {
  const std::string who = refused.is_stranger()
                              ? refused.peer.substr(0, refused.peer.rfind(':'))
                              : refused.peer;
  if (told_.size() > kMostTold || !told_.insert(who).second) return;
  if (told_.size() > kMostTold) {
    return LogWarning("further refusals are not shown");
  }
  const std::string line = absl::StrCat("refused ", who, ": ", why);
  LogWarning(line);
  job_->OnRefused(line);
}

void SchedulerConnections::Deliver(TimePoint now) {
  const bool is_joining = job_->phase() == SchedulerState::Phase::kJoining;
  if (frees_port_ && !is_joining) listener_.Close();
  std::vector<FrameConnection*> queued;
  for (SchedulerState::Delivery& delivery : job_->TakeSends()) {
    const auto found = connections_.find(delivery.to);
    if (found == connections_.end()) continue;
    queued.push_back(&found->second.frames);
    queued.back()->Queue(std::move(delivery.frame));
  }
  // In the order of last words: of a verdict those of this very process, which
  // they may end at once, come last.
  std::vector<FrameConnection*> order;
  std::set<FrameConnection*> seen;
  for (auto each = queued.rbegin(); each != queued.rend(); ++each) {
    if (seen.insert(*each).second) order.push_back(*each);
  }
  for (auto each = order.rbegin(); each != order.rend(); ++each) {
    (*each)->Flush();
  }
  std::erase_if(connections_, [now](const auto& entry) {
    const Connection& one = entry.second;
    if (one.is_gone) return true;
    if (one.is_closing && !one.frames.has_unsent()) return true;
    const bool has_deadline = one.state != State::kMember || one.is_closing;
    return has_deadline && now >= one.deadline;
  });
}

void SchedulerConnections::CloseAll() {
  connections_.clear();
  listener_.Close();
}

}  // namespace telegrad
