#include "kvstore/job/control/roster.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace telegrad {
namespace {

constexpr size_t kMostRefused = 64;  // are remembered

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

// What it joined with, and its seat.
JoinRecord SeatOf(const RosterEntry& entry) {
  JoinRecord join = entry.join;
  join.wanted.rank = entry.seat < 0 ? entry.rank : entry.seat;
  return join;
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

// Who dies with one of its process is as dead: a worker and its part.
void MarkProcesses(std::deque<RosterEntry>& entries) {
  for (const RosterEntry& dead : entries) {
    if (!dead.is_dead) continue;
    for (RosterEntry& other : entries) {
      if (other.is_dead || !AreOfOneProcess(other.join, dead.join)) continue;
      other.is_dead = true;
      other.cause = dead.cause;
    }
  }
}

std::unordered_map<ConnectionId, size_t> IndexOf(
    const std::deque<RosterEntry>& entries) {
  std::unordered_map<ConnectionId, size_t> index;
  for (size_t i = 0; i < entries.size(); ++i) {
    index[entries[i].connection] = i;
  }
  return index;
}

// Whether the other member of its process is among them; it is no more.
bool TakeRefused(std::deque<JoinRecord>& refused, const JoinRecord& join) {
  return std::erase_if(refused, [&join](const JoinRecord& each) {
           return AreOfOneProcess(each, join) &&
                  each.wanted.role != join.wanted.role;
         }) > 0;
}

std::vector<const RosterEntry*> ByRank(const std::deque<RosterEntry>& entries,
                                       Role role) {
  std::vector<const RosterEntry*> sorted;
  for (const RosterEntry& entry : entries) {
    if (entry.join.wanted.role == role) sorted.push_back(&entry);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](auto* a, auto* b) { return a->rank < b->rank; });
  return sorted;
}

}  // namespace

bool AreOfOneProcess(const JoinRecord& a, const JoinRecord& b) {
  return a.pid != 0 && a.pid == b.pid && a.host == b.host && a.born == b.born;
}

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
  if (TakeRefused(refused_, join)) {
    return Refused("the other member of its process was refused");
  }
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

std::optional<RosterEntry> Roster::TakeOther(const JoinRecord& refused) {
  const auto is_of_it = [&refused](const RosterEntry& each) {
    return AreOfOneProcess(each.join, refused);
  };
  const auto count = std::ranges::count_if(entries_, is_of_it);
  if (count == 0) {
    refused_.push_back(refused);
    refused_.back().facts.clear();
    if (refused_.size() > kMostRefused) refused_.pop_front();
  }
  const auto found = std::ranges::find_if(entries_, is_of_it);
  if (count != 1 || found->join.wanted.role == refused.wanted.role) {
    return std::nullopt;
  }
  RosterEntry other = std::move(*found);
  entries_.erase(found);
  by_connection_ = IndexOf(entries_);
  return other;
}

bool Roster::is_complete() const {
  if (count(Role::kWorker) != num_workers()) return false;
  if (count(Role::kServer) != num_servers()) return false;
  return std::ranges::all_of(entries_, [this](const RosterEntry& part) {
    if (FactOf(part, kPartFact) == nullptr) return true;
    return std::ranges::any_of(entries_, [&part](const RosterEntry& each) {
      return each.join.wanted.role == Role::kWorker &&
             AreOfOneProcess(each.join, part.join);
    });
  });
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

bool Roster::IsExpected(const JoinRecord& join) const {
  if (before_.empty()) return true;
  return !Has(gone_, join.wanted) &&
         std::ranges::any_of(before_, [&join](const JoinRecord& each) {
           return each.wanted == join.wanted && each.pid == join.pid &&
                  each.host == join.host && each.born == join.born;
         });
}

std::vector<JoinRecord> Roster::FreeSeats() const {
  std::vector<JoinRecord> free = gone_;
  for (const RosterEntry& entry : entries_) {
    if (entry.is_dead) free.push_back(SeatOf(entry));
  }
  return free;
}

void Roster::Seat(RosterEntry newcomer) {
  const NodeId wanted = newcomer.join.wanted;
  int rank = wanted.rank;
  for (const RosterEntry& each : entries_) {
    if (rank < 0 && AreOfOneProcess(each.join, newcomer.join)) rank = each.rank;
  }
  auto seat = std::ranges::find_if(gone_, [&](const JoinRecord& each) {
    return each.wanted == NodeId{wanted.role, rank};
  });
  if (seat == gone_.end()) {
    seat = std::ranges::find_if(gone_, [&](const JoinRecord& each) {
      return each.wanted.role == wanted.role;
    });
  }
  if (seat == gone_.end()) return;
  newcomer.join.wanted = seat->wanted;
  newcomer.rank = seat->wanted.rank;
  newcomer.is_new = true;
  gone_.erase(seat);
  by_connection_[newcomer.connection] = entries_.size();
  entries_.push_back(std::move(newcomer));
}

void Roster::DropDead() {
  for (const RosterEntry& entry : entries_) {
    if (entry.is_dead) gone_.push_back(SeatOf(entry));
  }
  std::erase_if(entries_,
                [](const RosterEntry& entry) { return entry.is_dead; });
  by_connection_ = IndexOf(entries_);
}

void Roster::BeginEpoch() {
  DropDead();
  before_.clear();
  for (const RosterEntry& entry : entries_) before_.push_back(SeatOf(entry));
  entries_.clear();
  by_connection_.clear();
}

bool Roster::MarkMissing(TimePoint now) {
  bool is_missing = false;
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
    is_missing = true;
  }
  return is_missing;
}

bool Roster::Outlives(int min_workers, FatalEvent& deaths) {
  MarkProcesses(entries_);
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
                  workers == 1 ? " is" : " are", " left, the job goes on with ",
                  min_workers, " or more");
  return false;
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

ElasticLimits Roster::MakeSeats() {
  const std::vector<const RosterEntry*> workers =
      ByRank(entries_, Role::kWorker);
  const std::string* const text =
      workers.empty() ? nullptr : FactOf(*workers[0], kElasticFact);
  if (text == nullptr) return {};
  const absl::StatusOr<ElasticLimits> limits = ParseElastic(*text);
  if (!limits.ok()) return {};
  has_parts_ = std::ranges::all_of(workers, [&](const RosterEntry* worker) {
    return std::ranges::any_of(entries_, [&](const RosterEntry& each) {
      return each.join.wanted.role == Role::kServer &&
             AreOfOneProcess(each.join, worker->join);
    });
  });
  for (; num_workers_ < limits->max; ++num_workers_) {
    gone_.push_back({.wanted = {Role::kWorker, num_workers_}});
    if (!has_parts_) continue;
    gone_.push_back({.wanted = {Role::kServer, num_servers_++}});
  }
  return *limits;
}

std::vector<std::string> Roster::Missing() const {
  Roster assigned = *this;
  assigned.AssignRanks();
  std::vector<std::string> missing;
  std::vector<NodeId> there;
  for (const JoinRecord& seat : gone_) there.push_back(seat.wanted);
  for (const RosterEntry& entry : assigned.entries_) {
    there.push_back(entry.id());
  }
  for (const Role role : {Role::kWorker, Role::kServer}) {
    std::vector<bool> is_there(static_cast<size_t>(num_seats(role)));
    for (const NodeId& id : there) {
      if (id.role != role || id.rank >= num_seats(role)) continue;
      is_there[static_cast<size_t>(id.rank)] = true;
    }
    for (int rank = 0; rank < num_seats(role); ++rank) {
      if (is_there[static_cast<size_t>(rank)]) continue;
      missing.push_back(ToString(NodeId{role, rank}));
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

std::string Roster::FirstDifference() const {
  const std::vector<const RosterEntry*> workers =
      ByRank(entries_, Role::kWorker);
  const std::vector<const RosterEntry*> servers =
      ByRank(entries_, Role::kServer);
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
  for (const JoinRecord& each : before_) {
    RosterEntry entry;
    entry.join = each;
    entry.rank = each.wanted.rank;
    if (std::string text = Difference(entry, other); !text.empty()) return text;
  }
  return "";
}

StartRecord Roster::MakeStart() const {
  StartRecord start;
  start.epoch = 1;
  for (const Role role : {Role::kWorker, Role::kServer}) {
    for (const RosterEntry* entry : ByRank(entries_, role)) {
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

std::vector<std::string> Roster::Notes() const {
  std::vector<std::string> notes;
  if (num_workers() > kMaxNotedWorkers) return notes;
  for (const RosterEntry* worker : ByRank(entries_, Role::kWorker)) {
    notes.push_back(worker->note);
  }
  return notes;
}

std::vector<RosterEntry*> NewcomersOf(Roster& roster) {
  std::vector<RosterEntry*> found;
  for (RosterEntry& entry : roster.entries()) {
    if (entry.is_new) found.push_back(&entry);
  }
  return found;
}

std::vector<int> LeftOf(const Roster& roster) {
  std::vector<int> left;
  for (const RosterEntry& entry : roster.entries()) {
    const bool is_worker = entry.join.wanted.role == Role::kWorker;
    if (is_worker && entry.has_left) left.push_back(entry.rank);
  }
  return left;
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
