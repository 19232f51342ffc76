#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "kvstore/job/control/frame_connection.h"
#include "kvstore/job/control/job.h"
#include "kvstore/job/control/record.h"

namespace telegrad {

using ConnectionId = uint64_t;

struct RosterEntry {
  ConnectionId connection = 0;
  JoinRecord join;
  int rank = -1;  // -1 until the start, but for those who want one
  TimePoint last_seen;
  int64_t step = 0;
  std::string note;
  bool is_connected = true;
  bool is_silent = false;  // longer than three heartbeats; it was logged
  bool has_left = false;
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

// Who has joined. Entries stay where they are and are never removed.
// One thread.
class Roster {
 public:
  Roster(int num_workers, int num_servers)
      : num_workers_(num_workers), num_servers_(num_servers) {}

  // Refuses (exit code 31) a duplicate rank, one out of range, a member too
  // many.
  absl::Status Add(ConnectionId connection, const JoinRecord& join,
                   TimePoint now);
  bool is_complete() const;

  // Ranks for those who want none: the free ones, in order of arrival.
  void AssignRanks();

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

  // Ranks of the workers that have left.
  std::vector<int> Left() const;

  // What workers have told, by rank; none of too many.
  std::vector<std::string> Notes() const;

  RosterEntry* Find(ConnectionId connection);
  RosterEntry* Find(NodeId id);
  std::deque<RosterEntry>& entries() { return entries_; }
  const std::deque<RosterEntry>& entries() const { return entries_; }
  int num_workers() const { return num_workers_; }
  int num_servers() const { return num_servers_; }

 private:
  int size(Role role) const {
    return role == Role::kServer ? num_servers_ : num_workers_;
  }
  int count(Role role) const;
  std::vector<const RosterEntry*> ByRank(Role role) const;

  int num_workers_;
  int num_servers_;
  std::deque<RosterEntry> entries_;  // in order of arrival
  std::unordered_map<ConnectionId, size_t> by_connection_;  // into entries_
};

}  // namespace telegrad
