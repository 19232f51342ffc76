#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "kvstore/job/control/roster.h"

namespace telegrad {

// Members whose heartbeats come, and that others have lost on the data path.
// One thread.
class Suspicions {
 public:
  // False: `from` has told of `who` before.
  bool Add(ConnectionId from, ConnectionId who, std::string why,
           TimePoint until);
  void Extend(Duration lateness);
  // Calls is_dead(member, why) for those whose time is over.
  void Judge(Roster& roster, TimePoint now,
             const std::function<void(RosterEntry&, std::string)>& is_dead);

 private:
  struct Suspicion {
    ConnectionId from = 0;
    ConnectionId who = 0;
    std::string why;
    TimePoint until;
  };

  bool IsFromCutOff(Roster& roster, const Suspicion& suspicion) const;
  size_t NumLost(ConnectionId member) const;

  std::vector<Suspicion> all_;
};

}  // namespace telegrad
