#include "kvstore/job/control/newcomers.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace telegrad {
namespace {

absl::Status CannotCome(absl::string_view why) {
  return WithExitCode(ExitCode::kMismatch, absl::FailedPreconditionError(why));
}

}  // namespace

absl::Status Newcomers::Add(ConnectionId from, const JoinRecord& join,
                            const Roster& roster, TimePoint now) {
  const NodeId wanted = join.wanted;
  std::vector<JoinRecord> free = roster.FreeSeats();
  for (const JoinRecord& dead : free) {
    if (!AreOfOneProcess(dead, join)) continue;
    return WithExitCode(ExitCode::kFenced,
                        absl::FailedPreconditionError(absl::StrCat(
                            ToString(dead.wanted), " was declared dead: ",
                            "others go on without it")));
  }
  std::erase_if(free, [wanted](const JoinRecord& seat) {
    return seat.wanted.role != wanted.role;
  });
  const auto ahead = std::ranges::count_if(waiting_, [wanted](auto& each) {
    return each.second.join.wanted.role == wanted.role;
  });
  if (std::ssize(free) <= ahead) {
    return CannotCome(absl::StrCat(
        "one ", RoleName(wanted.role), " too many: the job takes ",
        roster.num_seats(wanted.role), " at most; ",
        ahead == 0 ? "all are there"
                   : absl::StrCat(ahead, " already wait to come in")));
  }
  const bool is_taken =
      wanted.rank >= 0 && (std::ranges::none_of(free,
                                                [&](const JoinRecord& seat) {
                                                  return seat.wanted == wanted;
                                                }) ||
                           std::ranges::any_of(waiting_, [&](const auto& each) {
                             return each.second.join.wanted == wanted;
                           }));
  if (is_taken) {
    return CannotCome(absl::StrCat(ToString(wanted), " wanted, but it is ",
                                   wanted.rank < roster.num_seats(wanted.role)
                                       ? "there; wait until it is declared dead"
                                       : "none of the job",
                                   ", or ask for no rank"));
  }
  if (const std::string text = roster.DifferenceOf(join); !text.empty()) {
    return CannotCome(text);
  }
  RosterEntry& entry = waiting_[from];
  entry.connection = from;
  entry.join = join;
  entry.rank = join.wanted.rank;
  entry.last_seen = now;
  return absl::OkStatus();
}

std::vector<const RosterEntry*> Newcomers::Ready(const Roster& roster) const {
  std::vector<const RosterEntry*> ready;
  for (const auto& [connection, entry] : waiting_) {
    const auto members =
        std::ranges::count_if(waiting_, [&entry = entry](const auto& other) {
          return AreOfOneProcess(other.second.join, entry.join);
        });
    if (members > 1 || !roster.has_parts()) ready.push_back(&entry);
  }
  return ready;
}

void Newcomers::MoveTo(Roster& roster) {
  std::vector<ConnectionId> moved;
  for (const RosterEntry* entry : Ready(roster)) {
    moved.push_back(entry->connection);
    roster.Seat(*entry);
  }
  for (const ConnectionId each : moved) Remove(each);
}

RosterEntry* Newcomers::Find(ConnectionId connection) {
  const auto found = waiting_.find(connection);
  return found == waiting_.end() ? nullptr : &found->second;
}

void Newcomers::DropSilent(TimePoint now, Duration dead, Duration lateness) {
  for (auto each = waiting_.begin(); each != waiting_.end();) {
    TimePoint& last_seen = each->second.last_seen;
    last_seen = std::min(now, last_seen + lateness);
    each = now - last_seen > dead ? waiting_.erase(each) : std::next(each);
  }
}

}  // namespace telegrad
