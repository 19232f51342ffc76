#include "kvstore/job/control/roster.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace telegrad {
namespace {

absl::Status Refused(absl::string_view why) {
  return WithExitCode(ExitCode::kMismatch, absl::FailedPreconditionError(why));
}

const std::string* FactOf(const RosterEntry& entry, const std::string& name) {
  for (const auto& [fact, value] : entry.join.facts) {
    if (fact == name) return &value;
  }
  return nullptr;
}

// All differences, in the order of first's facts, then of what only `other`
// gives. Servers' facts are compared as far as both give them.
std::string Difference(const RosterEntry& first, const RosterEntry& other) {
  const bool is_strict = first.join.wanted.role == Role::kWorker &&
                         other.join.wanted.role == Role::kWorker;
  std::vector<std::string> texts;
  const auto compare = [&](const std::string& name, const std::string* mine,
                           const std::string* theirs) {
    if ((mine == nullptr || theirs == nullptr) && !is_strict) return;
    if (mine != nullptr && theirs != nullptr && *mine == *theirs) return;
    const auto has = [](const RosterEntry& entry, const std::string* value) {
      return absl::StrCat(ToString(entry.id()), " has ",
                          value == nullptr ? "none"
                          : value->empty() ? "no value"
                                           : *value);
    };
    texts.push_back(
        absl::StrCat(name, ": ", has(first, mine), ", ", has(other, theirs)));
  };
  for (const auto& [name, value] : first.join.facts) {
    compare(name, &value, FactOf(other, name));
  }
  for (const auto& [name, value] : other.join.facts) {
    if (FactOf(first, name) == nullptr) compare(name, nullptr, &value);
  }
  if (texts.empty()) return "";
  return absl::StrCat(absl::StrJoin(texts, "; "), "; give all the same");
}

}  // namespace

std::string RosterEntry::Describe() const {
  return absl::StrCat(rank < 0 ? RoleName(join.wanted.role) : ToString(id()),
                      "@", join.host, ":", join.pid);
}

int Roster::count(Role role) const {
  return static_cast<int>(std::count_if(
      entries_.begin(), entries_.end(),
      [role](const RosterEntry& e) { return e.join.wanted.role == role; }));
}

absl::Status Roster::Add(ConnectionId connection, const JoinRecord& join,
                         TimePoint now) {
  const Role role = join.wanted.role;
  if (join.wanted.rank >= size(role)) {
    return Refused(absl::StrCat(ToString(join.wanted),
                                " wanted, but the job has ", size(role), " ",
                                RoleName(role), "s"));
  }
  if (const RosterEntry* holder =
          join.wanted.rank < 0 ? nullptr : Find(join.wanted)) {
    return Refused(
        absl::StrCat("duplicate rank: ", holder->Describe(), " is there"));
  }
  if (count(role) >= size(role)) {
    return Refused(absl::StrCat("one ", RoleName(role), " too many: all ",
                                size(role), " are there"));
  }
  RosterEntry entry;
  entry.connection = connection;
  entry.join = join;
  entry.rank = join.wanted.rank;
  entry.last_seen = now;
  by_connection_[connection] = entries_.size();
  entries_.push_back(std::move(entry));
  return absl::OkStatus();
}

bool Roster::is_complete() const {
  return count(Role::kWorker) == num_workers_ &&
         count(Role::kServer) == num_servers_;
}

void Roster::AssignRanks() {
  for (const Role role : {Role::kWorker, Role::kServer}) {
    int next = 0;
    for (RosterEntry& entry : entries_) {
      if (entry.join.wanted.role != role || entry.rank >= 0) continue;
      while (Find(NodeId{role, next}) != nullptr) ++next;
      entry.rank = next;
    }
  }
}

std::vector<std::string> Roster::Missing() const {
  Roster assigned = *this;
  assigned.AssignRanks();
  std::vector<std::string> missing;
  for (const Role role : {Role::kWorker, Role::kServer}) {
    for (int rank = 0; rank < size(role); ++rank) {
      const NodeId id{role, rank};
      if (assigned.Find(id) == nullptr) missing.push_back(ToString(id));
    }
  }
  return missing;
}

std::vector<std::string> Roster::Present() const {
  std::vector<std::string> present;
  for (const RosterEntry& entry : entries_) {
    present.push_back(entry.Describe());
  }
  return present;
}

std::vector<const RosterEntry*> Roster::ByRank(Role role) const {
  std::vector<const RosterEntry*> sorted;
  for (const RosterEntry& entry : entries_) {
    if (entry.join.wanted.role == role) sorted.push_back(&entry);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](auto* a, auto* b) { return a->rank < b->rank; });
  return sorted;
}

std::string Roster::FirstDifference() const {
  const std::vector<const RosterEntry*> workers = ByRank(Role::kWorker);
  const std::vector<const RosterEntry*> servers = ByRank(Role::kServer);
  for (const auto* alike : {&workers, &servers}) {
    for (const RosterEntry* other : *alike) {
      for (const RosterEntry* first :
           {workers.empty() ? other : workers.front(), alike->front()}) {
        if (std::string text = Difference(*first, *other); !text.empty()) {
          return text;
        }
      }
    }
  }
  return "";
}

std::string Roster::DifferenceOf(const JoinRecord& refused) const {
  RosterEntry other;
  other.join = refused;
  other.rank = refused.wanted.rank;
  for (const RosterEntry& entry : entries_) {
    if (std::string text = Difference(entry, other); !text.empty()) return text;
  }
  return "";
}

StartRecord Roster::MakeStart() const {
  StartRecord start;
  start.epoch = 1;
  for (const Role role : {Role::kWorker, Role::kServer}) {
    for (const RosterEntry* entry : ByRank(role)) {
      Member member;
      member.id = entry->id();
      member.host = entry->join.host;
      member.pid = entry->join.pid;
      (role == Role::kWorker ? start.workers : start.servers)
          .push_back(std::move(member));
    }
  }
  return start;
}

std::vector<int> Roster::Left() const {
  std::vector<int> left;
  for (const RosterEntry& entry : entries_) {
    const bool is_worker = entry.join.wanted.role == Role::kWorker;
    if (is_worker && entry.has_left) left.push_back(entry.rank);
  }
  return left;
}

std::vector<std::string> Roster::Notes() const {
  std::vector<std::string> notes;
  if (num_workers_ > kMaxNotedWorkers) return notes;
  for (const RosterEntry* worker : ByRank(Role::kWorker)) {
    notes.push_back(worker->note);
  }
  return notes;
}

RosterEntry* Roster::Find(ConnectionId connection) {
  const auto found = by_connection_.find(connection);
  return found == by_connection_.end() ? nullptr : &entries_[found->second];
}

RosterEntry* Roster::Find(NodeId id) {
  for (RosterEntry& entry : entries_) {
    if (entry.rank >= 0 && entry.id() == id) return &entry;
  }
  return nullptr;
}

}  // namespace telegrad
