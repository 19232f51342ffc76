#include "kvstore/operations/negotiation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"

namespace telegrad::operations {
namespace {

constexpr uint64_t kStopFlag = 1;
constexpr size_t kBits = 64;

bool IsCached(Kind kind) { return kind <= Kind::kBarrier; }

}  // namespace

const Request& Agreed::any() const {
  return **std::find_if(requests.begin(), requests.end(),
                        [](const auto& request) { return request != nullptr; });
}

Negotiation::Negotiation(int rank, int world_size, int cache_capacity)
    : rank_(rank),
      world_size_(world_size),
      cache_capacity_(static_cast<size_t>(cache_capacity)) {
  std::vector<int> all(static_cast<size_t>(world_size));
  for (int i = 0; i < world_size; ++i) all[static_cast<size_t>(i)] = i;
  AddSet(0, std::move(all));
}

void Negotiation::AddSet(int id, std::vector<int> ranks) {
  ProcessSet& set = sets_[id];
  set.members.assign(static_cast<size_t>(world_size_), -1);
  for (size_t i = 0; i < ranks.size(); ++i) {
    set.members[static_cast<size_t>(ranks[i])] = static_cast<int>(i);
  }
  set.joined.resize(ranks.size());
  set.joins.resize(ranks.size());
  set.ranks = std::move(ranks);
}

const std::vector<int>* Negotiation::RanksOf(int set) const {
  const auto found = sets_.find(set);
  return found == sets_.end() ? nullptr : &found->second.ranks;
}

void Negotiation::Tell(int64_t handle, const Request& request) {
  const auto set = sets_.find(request.set);
  if (set != sets_.end()) {
    const auto found = set->second.entries.find(request.name);
    if (found != set->second.entries.end()) {
      Entry& entry = *found->second;
      const auto& last = entry.requests[static_cast<size_t>(
          set->second.members[static_cast<size_t>(rank_)])];
      if (entry.slot >= 0 && last != nullptr && *last == request) {
        bits_.emplace_back(&entry, handle);
        return;
      }
    }
  }
  AppendRequest(request, &untold_);
  untold_handles_.push_back(handle);
}

void Negotiation::End(int set, const std::string& name, double waited_s) {
  Request request;
  request.kind = Kind::kExpire;
  request.set = set;
  request.name = name;
  request.prescale = waited_s;
  Tell(0, request);
}

const std::vector<uint64_t>& Negotiation::notice() {
  notice_.assign(1 + (slots_.size() + kBits - 1) / kBits, 0);
  notice_[0] = untold_.size() << 8 | (is_stopping_ ? kStopFlag : 0);
  for (const auto& [entry, handle] : bits_) {
    const auto slot = static_cast<size_t>(entry->slot);
    notice_[1 + slot / kBits] |= uint64_t{1} << slot % kBits;
    entry->handle = handle;
  }
  bits_.clear();
  return notice_;
}

absl::StatusOr<Decision> Negotiation::Advance(
    std::span<const uint64_t> notices, const std::vector<std::string>& requests,
    TimePoint now) {
  Decision decision;
  const size_t size = notice_.size();
  std::vector<uint64_t> common(size - 1, ~uint64_t{0});
  for (size_t at = 0; at < notices.size(); at += size) {
    for (size_t i = 0; i < common.size(); ++i) common[i] &= notices[at + 1 + i];
  }
  HearCommonBits(common);
  for (int rank = 0; rank < world_size_; ++rank) {
    const auto words = notices.subspan(static_cast<size_t>(rank) * size, size);
    if ((words[0] & kStopFlag) != 0) decision.stopped_by = rank;
    RETURN_IF_ERROR(HearBits(rank, words.subspan(1), common));
  }
  for (int rank = 0; rank < static_cast<int>(requests.size()); ++rank) {
    ASSIGN_OR_RETURN(std::vector<Request> told,
                     ParseRequests(requests[static_cast<size_t>(rank)]));
    for (Request& request : told) {
      int64_t handle = 0;
      if (rank == rank_ && !untold_handles_.empty()) {
        handle = untold_handles_.front();
        untold_handles_.pop_front();
      }
      RETURN_IF_ERROR(HearRequest(rank, std::move(request), handle));
    }
  }
  if (!requests.empty()) untold_.clear();
  Settle(now, &decision.due);
  Count();
  return decision;
}

// The usual case, which costs the same however many ranks there are. Leaves in
// `common` what was taken.
void Negotiation::HearCommonBits(std::span<uint64_t> common) {
  const int num_joined = sets_.at(0).num_joined;
  for (size_t i = 0; i < common.size(); ++i) {
    for (uint64_t word = common[i]; word != 0; word &= word - 1) {
      const uint64_t bit = word & -word;
      const auto slot = i * kBits + static_cast<size_t>(std::countr_zero(word));
      Entry* const entry = slot < slots_.size() ? slots_[slot] : nullptr;
      const bool can_be_taken = num_joined == 0 && entry != nullptr &&
                                entry->set == 0 && entry->num_told == 0 &&
                                entry->agreed != nullptr;
      if (!can_be_taken) {
        common[i] &= ~bit;  // rank by rank
        continue;
      }
      std::fill(entry->told.begin(), entry->told.end(), 1);
      entry->num_told = world_size_;
      entry->is_touched = true;
      touched_.push_back(entry);
    }
  }
}

absl::Status Negotiation::HearBits(int from, std::span<const uint64_t> words,
                                   std::span<const uint64_t> taken) {
  for (size_t i = 0; i < words.size(); ++i) {
    for (uint64_t word = words[i] & ~taken[i]; word != 0; word &= word - 1) {
      const auto slot = i * kBits + static_cast<size_t>(std::countr_zero(word));
      if (slot >= slots_.size() || slots_[slot] == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", from, " has told slot ", slot, " of ",
                         slots_.size(), ", which is free"));
      }
      Entry& entry = *slots_[slot];
      RETURN_IF_ERROR(MarkTold(from, entry, entry.handle));
    }
  }
  return absl::OkStatus();
}

absl::Status Negotiation::MarkTold(int from, Entry& entry, int64_t handle) {
  const ProcessSet& set = sets_.at(entry.set);
  const int member = set.members[static_cast<size_t>(from)];
  if (member < 0 || entry.told[static_cast<size_t>(member)] != 0 ||
      entry.requests[static_cast<size_t>(member)] == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", from, " has told \"", entry.name,
                     "\" of process set ", entry.set, " where it may not"));
  }
  entry.told[static_cast<size_t>(member)] = 1;
  ++entry.num_told;
  if (from == rank_) entry.handle = handle;
  if (!std::exchange(entry.is_touched, true)) touched_.push_back(&entry);
  return absl::OkStatus();
}

Negotiation::Entry& Negotiation::FindOrMake(ProcessSet& set,
                                            const Request& request) {
  std::unique_ptr<Entry>& entry = set.entries[request.name];
  if (entry == nullptr) {
    entry = std::make_unique<Entry>();
    entry->name = request.name;
    entry->set = request.set;
    entry->requests.resize(set.ranks.size());
    entry->told.resize(set.ranks.size());
  }
  return *entry;
}

absl::Status Negotiation::HearRequest(int from, Request request,
                                      int64_t handle) {
  const auto found = sets_.find(request.set);
  if (request.kind == Kind::kExpire) {
    EndExpired(from, request);
    return absl::OkStatus();
  }
  if (found == sets_.end()) {
    // It was removed in the meantime.
    if (from == rank_) {
      expired_.push_back(
          {.handle = handle,
           .error = absl::InvalidArgumentError(absl::StrCat(
               "process set ", request.set, " has been removed"))});
    }
    return absl::OkStatus();
  }
  ProcessSet& set = found->second;
  const int member = set.members[static_cast<size_t>(from)];
  const absl::Status valid = CheckRequest(request, set.ranks, member);
  if (!valid.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", from, ": ", valid.message()));
  }
  if (request.kind == Kind::kJoin) {
    return HearJoin(from, set, std::move(request), handle);
  }
  Entry& entry = FindOrMake(set, request);
  const auto same = std::find_if(
      entry.requests.begin(), entry.requests.end(),
      [&](const auto& other) { return other != nullptr && *other == request; });
  entry.requests[static_cast<size_t>(member)] =
      same != entry.requests.end()
          ? *same
          : std::make_shared<const Request>(std::move(request));
  entry.agreed = nullptr;
  return MarkTold(from, entry, handle);
}

absl::Status Negotiation::HearJoin(int from, ProcessSet& set, Request request,
                                   int64_t handle) {
  const auto member =
      static_cast<size_t>(set.members[static_cast<size_t>(from)]);
  if (set.joined[member] != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", from, " has joined twice"));
  }
  set.joined[member] = 1;
  set.joins[member] = std::make_shared<const Request>(std::move(request));
  ++set.num_joined;
  set.last_joined = from;
  if (from == rank_) set.join_handle = handle;
  std::vector<Entry*> open;
  for (const auto& [name, entry] : set.entries) {
    if (entry->num_told > 0 && !entry->is_parked && !entry->is_touched) {
      open.push_back(entry.get());
    }
  }
  std::sort(open.begin(), open.end(),
            [](const Entry* a, const Entry* b) { return a->name < b->name; });
  for (Entry* const entry : open) entry->is_touched = true;
  touched_.insert(touched_.end(), open.begin(), open.end());
  return absl::OkStatus();
}

bool Negotiation::IsComplete(const ProcessSet& set, const Entry& entry) const {
  int num_missing = static_cast<int>(set.ranks.size()) - entry.num_told;
  if (set.num_joined == 0) return num_missing == 0;
  for (size_t i = 0; i < set.joined.size(); ++i) {
    num_missing -= set.joined[i] != 0 && entry.told[i] == 0 ? 1 : 0;
  }
  return num_missing == 0;
}

void Negotiation::Compare(const ProcessSet& set, Entry& entry) const {
  auto agreed = std::make_shared<Agreed>();
  std::vector<Peer> peers;
  int joined = -1;
  for (size_t i = 0; i < set.ranks.size(); ++i) {
    const bool told = entry.told[i] != 0;
    agreed->requests.push_back(told ? entry.requests[i] : nullptr);
    if (told) {
      peers.push_back({set.ranks[i], entry.requests[i].get()});
    } else {
      joined = set.ranks[i];
    }
  }
  entry.agreed = agreed;
  const Request& any = agreed->any();
  bool are_one = true;  // the usual case, which takes no texts
  for (const Peer& peer : peers) are_one &= peer.request == peers[0].request;
  entry.error = are_one ? absl::OkStatus() : CompareRequests(peers);
  const bool has_zeros = any.kind == Kind::kAllreduce &&
                         (any.op == Op::kSum || any.op == Op::kAverage);
  if (entry.error.ok() && joined >= 0 && !has_zeros && any.kind < Kind::kJoin &&
      any.kind != Kind::kBarrier) {
    entry.error = absl::FailedPreconditionError(absl::StrCat(
        ToString(any.kind), " \"", entry.name, "\": rank ", joined,
        " has joined; without it go allreduces of op sum and average alone"));
  }
}

void Negotiation::Settle(TimePoint now, std::vector<Response>* due) {
  *due = std::move(expired_);
  expired_.clear();
  // What is decided leaves others touched only by its erasure.
  std::vector<Entry*> touched = std::exchange(touched_, {});
  for (Entry* const entry : touched) {
    entry->is_touched = false;
    if (entry->num_told == 0) continue;
    if (entry->since == TimePoint()) entry->since = now;
    ProcessSet& set = sets_.at(entry->set);
    if (!IsComplete(set, *entry)) {
      SetOpen(*entry, true);
      continue;
    }
    if (entry->agreed == nullptr || set.num_joined > 0) Compare(set, *entry);
    if (entry->agreed->any().group != 0) {
      Park(set, *entry, due);
    } else {
      Finish(set, *entry, due);
    }
  }
  for (auto& [id, set] : sets_) SettleJoin(set, due);
  ChangeSets(due);
}

void Negotiation::Park(ProcessSet& set, Entry& entry,
                       std::vector<Response>* due) {
  const Request& request = entry.agreed->any();
  const auto group = set.groups.try_emplace(request.group).first;
  group->second.push_back(&entry);
  entry.is_parked = true;
  SetOpen(entry, true);
  if (static_cast<int>(group->second.size()) < request.group_size) return;
  absl::Status error;
  for (const Entry* const member : group->second) {
    if (error.ok()) error = member->error;
  }
  for (Entry* const member : group->second) {
    if (member->error.ok()) member->error = error;
    Finish(set, *member, due);
  }
  set.groups.erase(group);
}

void Negotiation::Finish(ProcessSet& set, Entry& entry,
                         std::vector<Response>* due) {
  const bool is_mine = set.members[static_cast<size_t>(rank_)] >= 0;
  if (is_mine || entry.agreed->any().kind >= Kind::kAddSet) {
    due->push_back(
        {.agreed = entry.agreed, .handle = entry.handle, .error = entry.error});
  }
  if (set.num_joined > 0) entry.agreed = nullptr;  // it has gaps
  SetOpen(entry, false);
  std::fill(entry.told.begin(), entry.told.end(), 0);
  entry.num_told = 0;
  entry.handle = 0;
  entry.is_parked = false;
  entry.since = TimePoint();
  const bool failed = !entry.error.ok();
  entry.error = absl::OkStatus();
  if (failed || !Cache(entry)) Erase(entry);
}

void Negotiation::SetOpen(Entry& entry, bool is_open) {
  if (std::exchange(entry.is_open, is_open) == is_open) return;
  if (is_open) {
    open_.insert(&entry);
  } else {
    open_.erase(&entry);
  }
}

bool Negotiation::Cache(Entry& entry) {
  entry.last_use = ++num_uses_;
  if (entry.slot >= 0) return true;
  for (const auto& request : entry.requests) {
    if (request != nullptr && !IsCached(request->kind)) return false;
  }
  auto slot = std::find(slots_.begin(), slots_.end(), nullptr);
  if (slot == slots_.end() && slots_.size() < cache_capacity_) {
    slot = slots_.insert(slots_.end(), nullptr);
  }
  if (slot == slots_.end()) {
    // The one that was used longest ago makes room.
    for (auto it = slots_.begin(); it != slots_.end(); ++it) {
      if ((*it)->num_told > 0 || (*it)->is_touched) continue;
      if (slot == slots_.end() || (*it)->last_use < (*slot)->last_use) {
        slot = it;
      }
    }
    if (slot == slots_.end()) return false;
    Erase(**slot);
  }
  *slot = &entry;
  entry.slot = static_cast<int>(slot - slots_.begin());
  return true;
}

void Negotiation::Erase(Entry& entry) {
  if (entry.slot >= 0) slots_[static_cast<size_t>(entry.slot)] = nullptr;
  SetOpen(entry, false);
  // The name goes with the entry.
  const std::string name = entry.name;
  sets_.at(entry.set).entries.erase(name);
}

void Negotiation::SettleJoin(ProcessSet& set, std::vector<Response>* due) {
  if (set.num_joined < static_cast<int>(set.ranks.size())) return;
  auto agreed = std::make_shared<Agreed>();
  agreed->requests = std::exchange(
      set.joins, std::vector<std::shared_ptr<const Request>>(set.ranks.size()));
  if (set.members[static_cast<size_t>(rank_)] >= 0) {
    due->push_back({.agreed = std::move(agreed),
                    .handle = set.join_handle,
                    .value = set.last_joined});
  }
  std::fill(set.joined.begin(), set.joined.end(), 0);
  set.num_joined = 0;
  set.join_handle = 0;
}

void Negotiation::ChangeSets(std::vector<Response>* due) {
  const size_t num_decided = due->size();
  for (size_t i = 0; i < num_decided; ++i) {
    Response& response = (*due)[i];
    if (response.agreed == nullptr || !response.error.ok()) continue;
    const Request& request = response.agreed->any();
    if (request.kind == Kind::kAddSet) {
      std::vector<int> ranks(request.splits.begin(), request.splits.end());
      response.value = next_set_++;
      AddSet(static_cast<int>(response.value), std::move(ranks));
    } else if (request.kind == Kind::kRemoveSet) {
      const auto found = sets_.find(request.root);
      if (found == sets_.end() || request.root == 0) continue;
      response.value = request.root;
      ProcessSet& set = found->second;
      const absl::Status error = absl::InvalidArgumentError(
          absl::StrCat("process set ", request.root, " has been removed"));
      std::vector<int64_t> handles = {set.join_handle};
      for (const auto& [name, entry] : set.entries) {
        handles.push_back(entry->handle);
        SetOpen(*entry, false);
        if (entry->slot >= 0) {
          slots_[static_cast<size_t>(entry->slot)] = nullptr;
        }
      }
      for (const int64_t handle : handles) {
        if (handle != 0) due->push_back({.handle = handle, .error = error});
      }
      sets_.erase(found);
    }
  }
}

void Negotiation::EndExpired(int from, const Request& request) {
  const auto set = sets_.find(request.set);
  if (set == sets_.end()) return;
  const auto found = set->second.entries.find(request.name);
  if (found == set->second.entries.end() || found->second->num_told == 0) {
    return;
  }
  Entry& entry = *found->second;
  // It became ready by messages of this cycle, on all ranks.
  if (IsComplete(set->second, entry) && !entry.is_parked) return;
  std::vector<int> told, missing;
  for (size_t i = 0; i < entry.told.size(); ++i) {
    (entry.told[i] != 0 ? told : missing).push_back(set->second.ranks[i]);
  }
  const std::string who = absl::StrCat(
      RanksText(told), " submitted it, ",
      missing.empty() ? "others of its group are missing"
                      : absl::StrCat(RanksText(missing), " did not"));
  const absl::Status error =
      request.prescale < 0
          ? WithExitCode(ExitCode::kCancelled,
                         absl::CancelledError(absl::StrCat(
                             "\"", request.name, "\" was cancelled by rank ",
                             from, ": ", who)))
          : WithExitCode(
                ExitCode::kTimeout,
                absl::DeadlineExceededError(absl::StrCat(
                    "\"", request.name, "\" was given up after ",
                    std::round(request.prescale * 10) / 10, " s: ", who)));
  if (entry.handle != 0) {
    expired_.push_back({.handle = entry.handle, .error = error});
  }
  for (auto& [group, parked] : set->second.groups) {
    std::erase(parked, &entry);
  }
  std::erase(touched_, &entry);
  Erase(entry);
}

void Negotiation::Count() {
  num_open_ = 0;
  num_lacking_ = 0;
  for (const auto& [id, set] : sets_) {
    const int member = set.members[static_cast<size_t>(rank_)];
    if (set.num_joined == 0) continue;
    ++num_open_;
    num_lacking_ +=
        member >= 0 && set.joined[static_cast<size_t>(member)] == 0 ? 1 : 0;
  }
  for (const Entry* const entry : open_) {
    const ProcessSet& set = sets_.at(entry->set);
    const int member = set.members[static_cast<size_t>(rank_)];
    ++num_open_;
    const bool is_told = member < 0 ||
                         set.joined[static_cast<size_t>(member)] != 0 ||
                         entry->told[static_cast<size_t>(member)] != 0;
    num_lacking_ += !is_told || entry->is_parked ? 1 : 0;
  }
}

std::vector<Stall> Negotiation::Stalls(TimePoint now, Duration after) const {
  std::vector<Stall> stalls;
  for (const Entry* const entry : open_) {
    if (now - entry->since < after) continue;
    Stall& stall = stalls.emplace_back();
    stall.name = entry->name;
    stall.set = entry->set;
    stall.waited_s = ToSeconds(now - entry->since);
    const std::vector<int>& ranks = sets_.at(entry->set).ranks;
    for (size_t i = 0; i < entry->told.size(); ++i) {
      (entry->told[i] != 0 ? stall.told : stall.missing).push_back(ranks[i]);
    }
  }
  std::sort(stalls.begin(), stalls.end(),
            [](const Stall& a, const Stall& b) { return a.name < b.name; });
  return stalls;
}

}  // namespace telegrad::operations
