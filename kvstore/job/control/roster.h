#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "kvstore/job/control/elastic.h"
#include "kvstore/job/control/frame_connection.h"
#include "kvstore/job/control/job.h"
#include "kvstore/job/control/record.h"

namespace telegrad {

using ConnectionId = uint64_t;

// The fact of a server that is in a worker's process.
inline constexpr char kPartFact[] = "beside";

struct RosterEntry {
  ConnectionId connection = 0;
  JoinRecord join;
  int rank = -1;  // -1 until the start, but for those who want one
  int seat = -1;  // its rank in the first epoch, from the start on
  TimePoint last_seen;
  int64_t step = 0;
  std::string note;
  bool is_connected = true;
  bool is_silent = false;  // longer than three heartbeats; it was logged
  bool has_left = false;
  bool is_new = false;  // others were there before, and it is not in step yet
  bool is_dead = false;
  std::string cause;  // why it is dead
  std::optional<std::string> gathered;
  int num_posts = 0;
  int num_reads = 0;
  std::optional<std::string> reads;  // the entry that it waits for

  NodeId id() const { return {join.wanted.role, rank}; }
  // "worker/2@host:pid"; "worker@host:pid" before it has a rank.
  std::string Describe() const;
};

// Whether both are members of the same process.
bool AreOfOneProcess(const JoinRecord& a, const JoinRecord& b);

// Who has joined, in an epoch of the job. Each has a seat, its rank in the
// first epoch; the seats of the dead and of those who may still come stay
// empty, and ranks have no gaps. Within an epoch entries stay where they are,
// but for DropDead. One thread.
class Roster {
 public:
  Roster(int num_workers, int num_servers)
      : num_workers_(num_workers), num_servers_(num_servers) {}

  // Refuses (exit code 31) a duplicate rank, one out of range, a member too
  // many.
  absl::Status Add(ConnectionId connection, const JoinRecord& join,
                   TimePoint now);
  // A worker and the server of its process are both in the job, or neither.
  // The other one of who was refused, taken out; if it is yet to come, Add
  // refuses it.
  std::optional<RosterEntry> TakeOther(const JoinRecord& refused);
  // All are there, and with each server that has kPartFact its worker.
  bool is_complete() const;

  // Ranks for those who want none: the free ones, in order of arrival.
  void AssignRanks();
  // At a start: who has the rank of a seat gets one without gaps.
  void CloseGaps();

  // The dead are gone for good. The second begins an epoch, too: those that are
  // alive are to join again.
  void DropDead();
  void BeginEpoch();
  // Whether this one is awaited: it was there in the epoch before.
  bool IsExpected(const JoinRecord& join) const;
  // Seats that others may take, with the dead who had them.
  std::vector<JoinRecord> FreeSeats() const;
  // Gives a newcomer one of them, where DropDead came after the last death: the
  // one that it wants, or that of its process.
  void Seat(RosterEntry newcomer);
  // Who was to join again has not: it is dead. False: all have.
  bool MarkMissing(TimePoint now);
  // The verdict on those that are dead.
  FatalEvent DescribeDeaths(TimePoint now) const;
  // Whether a job goes on without the dead that wants so many workers and, of
  // servers, one; else `deaths` may say why it does not.
  bool Outlives(int min_workers, FatalEvent& deaths);
  // At a start: what workers say of --elastic; seats for as many as may come.
  ElasticLimits MakeSeats();

  // "worker/2", "server/0": the ranks that nobody has or would be given.
  std::vector<std::string> Missing() const;
  std::vector<std::string> Present() const;

  // The facts on which the first two members differ that do, in words; empty if
  // all agree.
  // Workers must all give the same facts; a server's are compared as far as it
  // gives them.
  std::string FirstDifference() const;
  // The facts on which a member that Add refused and one that is there differ,
  // in words; empty if they agree.
  std::string DifferenceOf(const JoinRecord& refused) const;

  // After AssignRanks.
  StartRecord MakeStart() const;

  // What workers have told, by rank; none of too many.
  std::vector<std::string> Notes() const;

  RosterEntry* Find(ConnectionId connection);
  RosterEntry* Find(NodeId id);
  std::deque<RosterEntry>& entries() { return entries_; }
  const std::deque<RosterEntry>& entries() const { return entries_; }
  // Members of this epoch.
  int num_workers() const { return size(Role::kWorker); }
  int num_servers() const { return size(Role::kServer); }
  int num_seats(Role role) const {
    return role == Role::kServer ? num_servers_ : num_workers_;
  }
  // Whether workers have servers in their processes.
  bool has_parts() const { return has_parts_; }

 private:
  int size(Role role) const;
  int count(Role role) const;

  int num_workers_;
  int num_servers_;
  bool has_parts_ = false;
  std::deque<RosterEntry> entries_;  // in order of arrival
  std::vector<JoinRecord> gone_;     // empty seats, with who died there
  std::vector<JoinRecord> before_;   // who had seats before
  // Who was refused while nobody of its process was there.
  std::deque<JoinRecord> refused_;
  std::unordered_map<ConnectionId, size_t> by_connection_;  // into entries_
};

// Members that came behind the others of their epoch, and are not in step yet.
std::vector<RosterEntry*> NewcomersOf(Roster& roster);

// Ranks of the workers that have left.
std::vector<int> LeftOf(const Roster& roster);

}  // namespace telegrad
