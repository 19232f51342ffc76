#include "kvstore/job/control/roster.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
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

bool Has(const std::vector<JoinRecord>& seats, NodeId wanted) {
  return std::ranges::any_of(seats, [wanted](const JoinRecord& each) {
    return each.wanted == wanted;
  });
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
  if (join.wanted.rank >= num_seats(role)) {
    return Refused(absl::StrCat(ToString(join.wanted),
                                " wanted, but the job has ", num_seats(role),
                                " ", RoleName(role), "s"));
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
  return count(Role::kWorker) == num_workers() &&
         count(Role::kServer) == num_servers();
}

int Roster::size(Role role) const {
  return num_seats(role) - static_cast<int>(std::ranges::count_if(
                               gone_, [role](const JoinRecord& seat) {
                                 return seat.wanted.role == role;
                               }));
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

void Roster::CloseGaps() {
  for (RosterEntry& entry : entries_) entry.seat = entry.rank;
  for (RosterEntry& entry : entries_) {
    entry.rank -= static_cast<int>(
        std::ranges::count_if(gone_, [&entry](const JoinRecord& seat) {
          return seat.wanted.role == entry.join.wanted.role &&
                 seat.wanted.rank < entry.seat;
        }));
  }
}

bool Roster::IsExpected(NodeId member) const {
  return gone_.empty() || (member.rank >= 0 && !Has(gone_, member));
}

absl::StatusOr<int> Roster::TakeSeat(const JoinRecord& join) {
  const NodeId wanted = join.wanted;
  const auto seat = std::ranges::find_if(gone_, [&](const JoinRecord& each) {
    return each.wanted == wanted ||
           (wanted.rank < 0 && each.wanted.role == wanted.role);
  });
  if (seat == gone_.end()) {
    return Refused(absl::StrCat("one member too many: the job has its ",
                                size(wanted.role), " ", RoleName(wanted.role),
                                "s"));
  }
  if (seat->pid == join.pid && seat->host == join.host) {
    return WithExitCode(ExitCode::kFenced,
                        absl::FailedPreconditionError(
                            absl::StrCat(ToString(seat->wanted),
                                         " was declared dead: others go on "
                                         "without it")));
  }
  if (std::string text = DifferenceOf(join); !text.empty()) {
    return Refused(text);
  }
  const int rank = seat->wanted.rank;
  gone_.erase(seat);
  return rank;
}

void Roster::DropDead() {
  std::deque<RosterEntry> living;
  by_connection_.clear();
  for (RosterEntry& entry : entries_) {
    if (entry.is_dead) {
      gone_.push_back(entry.join);
      gone_.back().wanted.rank = entry.seat < 0 ? entry.rank : entry.seat;
      continue;
    }
    by_connection_[entry.connection] = living.size();
    living.push_back(std::move(entry));
  }
  entries_ = std::move(living);
}

void Roster::BeginEpoch() {
  DropDead();
  before_.clear();
  for (const RosterEntry& entry : entries_) {
    before_.push_back(entry.join);
    before_.back().wanted.rank = entry.seat;
  }
  entries_.clear();
  by_connection_.clear();
}

void Roster::MarkMissing(TimePoint now) {
  for (const JoinRecord& each : before_) {
    if (Has(gone_, each.wanted) || Find(each.wanted) != nullptr) continue;
    RosterEntry entry;
    entry.join = each;
    entry.rank = each.wanted.rank;
    entry.last_seen = now;
    entry.is_connected = false;
    entry.is_dead = true;
    entry.cause = "has not joined again";
    entries_.push_back(std::move(entry));
  }
}

bool Roster::Outlives(int min_workers, FatalEvent& deaths) {
  MarkProcesses();
  int workers = num_workers();
  int servers = num_servers();
  for (const RosterEntry& entry : entries_) {
    if (entry.has_left) return false;  // the others are about to end, too
    if (!entry.is_dead) continue;
    --(entry.join.wanted.role == Role::kWorker ? workers : servers);
  }
  if (workers >= min_workers) return servers > 0 || num_servers() == 0;
  deaths.code = ExitCode::kPeerDied;
  deaths.details_json =
      nlohmann::json{
          {"below_min_workers", {{"left", workers}, {"min", min_workers}}}}
          .dump();
  absl::StrAppend(&deaths.message, "; below_min_workers: ", workers,
                  " are left, the job goes on with ", min_workers, " or more");
  return false;
}

void Roster::MarkProcesses() {
  for (const RosterEntry& dead : entries_) {
    if (!dead.is_dead || dead.join.pid == 0) continue;
    for (RosterEntry& other : entries_) {
      if (other.is_dead || other.join.pid != dead.join.pid ||
          other.join.host != dead.join.host) {
        continue;
      }
      other.is_dead = true;
      other.cause = dead.cause;
    }
  }
}

FatalEvent Roster::DescribeDeaths(TimePoint now) const {
  FatalEvent event;
  event.code = ExitCode::kServerLost;
  std::vector<std::string> causes;
  for (const RosterEntry& entry : entries_) {
    if (!entry.is_dead) continue;
    if (entry.join.wanted.role == Role::kWorker) {
      event.code = ExitCode::kPeerDied;
    }
    event.dead.push_back(entry.Describe());
    const auto silent = std::chrono::duration_cast<std::chrono::milliseconds>(
        now - entry.last_seen);
    event.detect_ms = std::max<int64_t>(event.detect_ms, silent.count());
    if (causes.size() == 8) causes.push_back("and more");
    if (causes.size() > 8) continue;
    causes.push_back(absl::StrCat(entry.Describe(), ": ", entry.cause));
  }
  event.message = absl::StrJoin(causes, "; ");
  return event;
}

int Roster::MinWorkers() const {
  for (const RosterEntry* worker : ByRank(Role::kWorker)) {
    const std::string* const text = FactOf(*worker, kElasticFact);
    int number = 0;
    const bool is_number = text != nullptr && absl::SimpleAtoi(*text, &number);
    return is_number ? std::max(0, number) : 0;
  }
  return 0;
}

std::vector<std::string> Roster::Missing() const {
  Roster assigned = *this;
  assigned.AssignRanks();
  std::vector<std::string> missing;
  for (const Role role : {Role::kWorker, Role::kServer}) {
    for (int rank = 0; rank < num_seats(role); ++rank) {
      const NodeId id{role, rank};
      if (Has(gone_, id)) continue;
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
