#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "kvstore/job/control/frame_connection.h"
#include "kvstore/job/control/handshake.h"
#include "kvstore/job/control/newcomers.h"
#include "kvstore/job/control/record.h"
#include "kvstore/job/control/roster.h"
#include "kvstore/job/control/scheduler.h"
#include "kvstore/job/control/suspicions.h"

namespace telegrad {

// What the scheduler decides, without sockets, threads or a clock of its own.
//
//   joining --all there, facts agree--> running --all workers left--> ending
//      |  ^                               | |                           |
//      |  +--death, enough are left;------+ |                           |
//      |     newcomers are let in           |                           |
//      +--deadline, facts differ, death-----+--death, Fail--> failing   |
//                                                                |      |
//                             all gone or teardown time over --> done <-+
//
// In order of use: OnRecord / OnClosed for what has happened, then Tick, then
// TakeSends, until phase() is kDone. One thread.
class SchedulerState {
 public:
  enum class Phase { kJoining, kRunning, kFailing, kEnding, kDone };
  struct Delivery {
    ConnectionId to = 0;
    Frame frame;
  };

  // `options` needs no address and no secret here.
  SchedulerState(const SchedulerOptions& options, std::string own_host,
                 TimePoint now);

  // An error is the peer's: it is to be told, and its connection closed.
  absl::Status OnRecord(ConnectionId from, const Identity& proved,
                        const Record& record, TimePoint now);
  // "refused 10.0.0.2: ...", which the join deadline's sentence repeats.
  void OnRefused(const std::string& line) { refused_.push_back(line); }
  // DataLoss: what a member says is altered on its way, and the job ends.
  void OnClosed(ConnectionId connection, const absl::Status& why,
                TimePoint now);
  void Fail(const FatalEvent& event, TimePoint now);

  // Judges silence and deadlines; call it at least each TickInterval(). When
  // it comes much later than that, this process was stopped or starved, and
  // every deadline moves by as much.
  void Tick(TimePoint now);
  Duration TickInterval() const;

  std::vector<Delivery> TakeSends();

  // Who is there now, of them who is silent, and how often one was refused.
  struct Counts {
    int64_t workers = 0;
    int64_t servers = 0;
    int64_t silent = 0;
    int64_t refused = 0;
  };
  Counts counts() const;

  Phase phase() const { return phase_; }
  const std::optional<FatalEvent>& failure() const { return failure_; }

 private:
  absl::Status On(ConnectionId from, const Identity& proved,
                  const JoinRecord& record, TimePoint now);
  absl::Status OnMember(RosterEntry& from, const Record& record, TimePoint now);
  absl::Status OnGather(RosterEntry& from, const GatherRecord& record,
                        TimePoint now);
  absl::Status OnPost(RosterEntry& from, const PostRecord& record);
  absl::Status OnRead(RosterEntry& from, const ReadRecord& record);
  void OnWithdraw(RosterEntry& from, const WithdrawRecord& record);
  absl::Status OnSuspect(const RosterEntry& from, const SuspectRecord& record,
                         TimePoint now);
  absl::Status OnLeave(RosterEntry& from, TimePoint now);
  void StartIfComplete(TimePoint now);
  void FinishGather(TimePoint now);
  // A gather needs a worker that has left.
  void FailForLeft(const RosterEntry& left, absl::string_view gather,
                   TimePoint now);
  void MarkDead(RosterEntry& entry, std::string cause, TimePoint now);
  // The end, or an epoch of those that are left.
  void JudgeDeaths(TimePoint now);
  void BeginEpoch(FatalEvent why, TimePoint now);
  // A newcomer, until an epoch begins.
  absl::Status Keep(ConnectionId from, const JoinRecord& record, TimePoint now);
  void AwaitMembers(TimePoint now);
  void ExtendDeadlines(Duration lateness, TimePoint now);
  void JudgeSilence(TimePoint now);
  void DoneIfAllGone();
  void Send(const RosterEntry& to, const Record& record);

  const ControlTiming timing_;
  const std::string own_host_;
  Roster roster_;
  Phase phase_ = Phase::kJoining;
  TimePoint join_deadline_;
  TimePoint next_word_;  // about who is missing
  std::vector<std::string> refused_;
  // The last member that was refused its place, while nobody differs from it.
  std::optional<JoinRecord> turned_away_;
  // Facts on which a refused member differs; empty: none.
  std::string mismatch_;
  TimePoint last_tick_;
  TimePoint next_beat_;
  TimePoint verdict_at_;  // after the first death
  bool has_death_ = false;
  TimePoint finish_by_;  // in kFailing and kEnding
  std::string gather_name_;
  std::map<std::string, Frame, std::less<>> posted_;  // answers, by name
  size_t posted_bytes_ = 0;
  uint64_t epoch_ = 1;
  int min_workers_ = 0;  // with fewer the job ends; 0: without any of them
  // Connections of the epoch before; its members join again over new ones.
  std::set<ConnectionId> parted_;
  Newcomers newcomers_;
  Suspicions suspicions_;
  std::vector<Delivery> sends_;
  std::optional<FatalEvent> failure_;
};

}  // namespace telegrad
