#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "kvstore/job/control/roster.h"

namespace telegrad {

// Members that wait for an epoch of a job that goes on without some of its own,
// or with more than it had. One thread.
class Newcomers {
 public:
  // Refuses (22) one that was declared dead, (31) one too many, a rank that is
  // taken, and facts that differ from the members'.
  absl::Status Add(ConnectionId from, const JoinRecord& join,
                   const Roster& roster, TimePoint now);
  // Who could come in now: a worker comes with the server in its process, where
  // the others have one.
  std::vector<const RosterEntry*> Ready(const Roster& roster) const;
  // They become members.
  void MoveTo(Roster& roster);

  // Null: it is none of them.
  RosterEntry* Find(ConnectionId connection);
  void Remove(ConnectionId connection) { waiting_.erase(connection); }
  // What the scheduler itself stood still does not count.
  void DropSilent(TimePoint now, Duration dead, Duration lateness);
  const std::map<ConnectionId, RosterEntry>& all() const { return waiting_; }

 private:
  std::map<ConnectionId, RosterEntry> waiting_;
};

}  // namespace telegrad
