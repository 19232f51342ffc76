#include "kvstore/job/control/suspicions.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace telegrad {
namespace {

bool IsWorker(const RosterEntry& entry) {
  return entry.join.wanted.role == Role::kWorker;
}

bool IsThere(const RosterEntry* entry) {
  return entry != nullptr && !entry->has_left && !entry->is_dead;
}

}  // namespace

bool Suspicions::Add(ConnectionId from, ConnectionId who, std::string why,
                     TimePoint until) {
  const bool is_known = std::ranges::any_of(all_, [&](const Suspicion& each) {
    return each.from == from && each.who == who;
  });
  if (!is_known) all_.push_back({from, who, std::move(why), until});
  return !is_known;
}

void Suspicions::Extend(Duration lateness) {
  for (Suspicion& each : all_) each.until += lateness;
}

void Suspicions::Judge(
    Roster& roster, TimePoint now,
    const std::function<void(RosterEntry&, std::string)>& is_dead) {
  for (const Suspicion& each : all_) {
    RosterEntry* const from = roster.Find(each.from);
    RosterEntry* const who = roster.Find(each.who);
    if (now < each.until || !IsThere(from) || !IsThere(who)) continue;
    if (IsFromCutOff(roster, each)) {
      is_dead(*from, absl::StrCat("cut off from ", ToString(who->id()),
                                  ", which others reach: ", each.why));
    } else {
      is_dead(*who, absl::StrCat("unreachable from ", ToString(from->id()),
                                 ": ", each.why));
    }
  }
}

// Who has lost more of the others; where both have lost as many, the worker of
// the two, if there is another one that still reaches the server.
bool Suspicions::IsFromCutOff(Roster& roster,
                              const Suspicion& suspicion) const {
  const size_t of_from = NumLost(suspicion.from);
  const size_t of_who = NumLost(suspicion.who);
  if (of_from != of_who) return of_from > of_who;
  const auto num_workers =
      std::ranges::count_if(roster.entries(), [](const RosterEntry& entry) {
        return IsWorker(entry) && !entry.has_left;
      });
  return num_workers > 1 && IsWorker(*roster.Find(suspicion.from)) &&
         !IsWorker(*roster.Find(suspicion.who));
}

size_t Suspicions::NumLost(ConnectionId member) const {
  std::set<ConnectionId> others;
  for (const Suspicion& each : all_) {
    if (each.who == member) others.insert(each.from);
    if (each.from == member) others.insert(each.who);
  }
  return others.size();
}

}  // namespace telegrad
