#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kvstore/job/control/fatal_event.h"
#include "kvstore/job/launch/child_processes.h"
#include "trainer/launch/child_pipe.h"
#include "trainer/launch/cluster.h"

namespace telegrad {

// All processes of one run, further processes of this program, which are driven
// by events: several runs may be beside each other. Kills what is left of them
// at its end.
class LocalCluster {
 public:
  LocalCluster(const TrainOptions& options, const ComparedRun& run,
               char** argv);

  // `observer` hears what worker 0 says.
  void Start(TrainObserver* observer);
  // Appends what can be read from its processes.
  void AppendTo(std::vector<pollfd>& fds) const;
  // `fds`: what AppendTo appended, as poll left them. Also to be called when
  // nothing came, at least every 0.2 s, and when a child has ended.
  void Handle(std::span<const pollfd> fds);
  bool has_ended() const { return !is_meeting_ && children_.all_ended(); }
  void AskForCheckpoint() const;
  void AskForFlightRecords() const;
  // The end of all its processes, at once.
  void Stop();
  bool has_failed() const { return failed_at_ != TimePoint(); }
  // Why a run has failed, or ended without a result.
  FatalEvent Verdict() const;
  int64_t PeakMemory(Role role) const;

 private:
  bool Spawn(NodeId id);
  std::vector<std::string> WordsOf(NodeId id, int report_fd) const;
  // Once the scheduler has told its address.
  void SpawnMembers();
  // What child `index` has written; false at its end.
  bool ReadReport(size_t index);
  void Reap();
  // Another one in the place of a member that was killed.
  void Replace(size_t index);
  void EndTheDead() const;

  const TrainOptions& options_;
  const ComparedRun run_;
  char** const argv_;
  TrainObserver* observer_ = nullptr;
  const std::string job_id_;
  bool is_meeting_ = true;  // until members are there, or will never be
  TimePoint meet_deadline_;
  std::string scheduler_address_;
  ChildProcesses children_;
  absl::Status start_;  // how the last child's start went
  std::vector<std::unique_ptr<ReportReader>> readers_;  // one for each child
  std::set<size_t> replaced_;                           // children
  TimePoint failed_at_;
  TimePoint ended_at_;  // the job, in order
};

}  // namespace telegrad
