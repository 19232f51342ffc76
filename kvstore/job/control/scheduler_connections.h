#pragma once

#include <poll.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/socket.h"
#include "kvstore/job/control/frame_connection.h"
#include "kvstore/job/control/handshake.h"
#include "kvstore/job/control/scheduler.h"
#include "kvstore/job/control/scheduler_state.h"

namespace telegrad {

// The scheduler's sockets: accepts, authenticates and bounds peers, and brings
// their records to the job. What an unauthenticated peer can cost is at most
// kMaxStrangers connections, 4 KiB and 5 s each. One thread.
class SchedulerConnections {
 public:
  SchedulerConnections(const SchedulerOptions& options, UniqueFd listener,
                       SchedulerState* job);

  // Waits for events, at most `at_most`, and handles them.
  void PollOnce(WakeEvent& wake, Duration at_most);

  // Sends what the job has to say, ends connections that have had their time.
  void Deliver(TimePoint now);

  void CloseAll();

 private:
  enum class State { kHello, kProof, kWelcome, kMember };
  struct Connection {
    Connection(UniqueFd fd, const Secret& secret, const std::string& job_id)
        : frames(std::move(fd)), handshake(secret, job_id) {}
    FrameConnection frames;
    HandshakeServer handshake;
    State state = State::kHello;
    Identity identity;
    std::string peer;  // "10.0.0.7:51234"
    TimePoint opened;
    TimePoint deadline;         // unless a member
    bool is_stranger() const {  // nothing is proved yet
      return state == State::kHello || state == State::kProof;
    }
    bool is_closing = false;  // once its last words are sent
    bool is_gone = false;
  };

  size_t num_strangers() const;
  bool MakeRoom(TimePoint now);
  void Accept(TimePoint now);
  void OnReadable(ConnectionId id, Connection& connection, TimePoint now);
  absl::Status OnFrame(ConnectionId id, Connection& connection,
                       const std::string& frame, TimePoint now);
  void Refuse(ConnectionId id, Connection& connection, const absl::Status& why,
              TimePoint now);
  void Tell(const Connection& refused, absl::string_view why);

  const Secret secret_;
  const std::string job_id_;
  const Duration dead_;
  const bool frees_port_;
  UniqueFd listener_;
  SchedulerState* const job_;
  std::map<ConnectionId, Connection> connections_;
  ConnectionId next_id_ = 1;
  TimePoint accept_after_;
  std::set<std::string> told_;  // who was refused
};

}  // namespace telegrad
