#include "kvstore/job/control/scheduler_state.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kVerdictDelay{200};  // processes that die together
constexpr seconds kNextWords{10};  // between two words on who has not joined

std::string Seconds(Duration duration) {
  return absl::StrFormat("%.1f s", ToSeconds(duration));
}

// What the dead are told who still listen, of the verdict.
std::vector<SchedulerState::Delivery> WordsToDead(const Roster& roster,
                                                  const FatalEvent& deaths) {
  std::vector<SchedulerState::Delivery> words;
  FatalEvent fenced;
  fenced.code = ExitCode::kFenced;
  fenced.dead = deaths.dead;
  fenced.detect_ms = deaths.detect_ms;
  for (const RosterEntry& entry : roster.entries()) {
    if (!entry.is_dead || !entry.is_connected) continue;
    fenced.message =
        absl::StrCat(entry.Describe(), " was declared dead: ", entry.cause);
    words.push_back(
        {entry.connection, MakeFrame(EncodeRecord(AbortRecord{fenced}))});
  }
  return words;
}

}  // namespace

SchedulerState::SchedulerState(const SchedulerOptions& options,
                               std::string own_host, TimePoint now)
    : timing_(options.timing),
      own_host_(std::move(own_host)),
      roster_(options.num_workers, options.num_servers),
      join_deadline_(now + options.timing.join),
      next_word_(now + options.timing.first_word),
      last_tick_(now),
      next_beat_(now) {}

Duration SchedulerState::TickInterval() const {
  return std::clamp<Duration>(timing_.heartbeat / 2, milliseconds(5),
                              milliseconds(100));
}

std::vector<SchedulerState::Delivery> SchedulerState::TakeSends() {
  if (sends_.size() < 2) return std::exchange(sends_, {});
  // Members of this very process come last: they may end it at once, and who
  // comes through a gather in it knows that the others do.
  std::set<ConnectionId> own;
  const int own_pid = getpid();
  for (const RosterEntry& entry : roster_.entries()) {
    const JoinRecord& join = entry.join;
    if (join.pid != own_pid || join.host != own_host_) continue;
    own.insert(entry.connection);
  }
  if (!own.empty()) {
    std::stable_partition(
        sends_.begin(), sends_.end(),
        [&own](const Delivery& each) { return !own.contains(each.to); });
  }
  return std::exchange(sends_, {});
}

void SchedulerState::Send(const RosterEntry& to, const Record& record) {
  sends_.push_back({to.connection, MakeFrame(EncodeRecord(record))});
}

void SchedulerState::StartIfComplete(TimePoint now) {
  if (phase_ != Phase::kJoining || !roster_.is_complete() || has_death_) return;
  roster_.AssignRanks();
  roster_.CloseGaps();
  if (const std::string text = roster_.FirstDifference(); !text.empty()) {
    FatalEvent event;
    event.code = ExitCode::kMismatch;
    event.message = text;
    Fail(event, now);
    return;
  }
  StartRecord record = roster_.MakeStart();
  record.epoch = epoch_;
  record.scheduler.host = own_host_;
  record.scheduler.pid = getpid();
  const Frame start = MakeFrame(EncodeRecord(record));
  for (RosterEntry& entry : roster_.entries()) {
    Send(entry, RankRecord{.rank = entry.rank});
    sends_.push_back({entry.connection, start});
    entry.last_seen = now;
  }
  min_workers_ = roster_.MakeSeats().min;
  phase_ = Phase::kRunning;
}

void SchedulerState::MarkDead(RosterEntry& entry, std::string cause,
                              TimePoint now) {
  if (entry.is_dead) return;
  entry.is_dead = true;
  entry.cause = std::move(cause);
  if (has_death_) return;
  has_death_ = true;
  verdict_at_ = now + std::min<Duration>(kVerdictDelay, timing_.dead);
}

void SchedulerState::JudgeDeaths(TimePoint now) {
  FatalEvent deaths = roster_.DescribeDeaths(now);
  const bool has_begun = phase_ == Phase::kRunning || epoch_ > 1;
  if (!has_begun || min_workers_ == 0 ||
      !roster_.Outlives(min_workers_, deaths)) {
    return Fail(deaths, now);
  }
  std::ranges::move(WordsToDead(roster_, deaths), std::back_inserter(sends_));
  has_death_ = false;
  if (phase_ == Phase::kJoining) {
    roster_.DropDead();
    newcomers_.MoveTo(roster_);
    return StartIfComplete(now);
  }
  BeginEpoch(std::move(deaths), now);
}

// Whatever members were doing together is void: they join again.
void SchedulerState::BeginEpoch(FatalEvent why, TimePoint now) {
  for (const RosterEntry& entry : roster_.entries()) {
    if (!entry.is_connected) continue;
    parted_.insert(entry.connection);
    if (entry.is_dead) continue;
    why.seat = entry.seat;
    Send(entry, AbortRecord{why});
  }
  roster_.BeginEpoch();
  newcomers_.MoveTo(roster_);
  ++epoch_;
  phase_ = Phase::kJoining;
  join_deadline_ = now + timing_.join;
  next_word_ = now + timing_.first_word;
  gather_name_.clear();
  posted_.clear();
  posted_bytes_ = 0;
  suspicions_ = {};
  LogWarning(why.message, ": the job goes on in epoch ", epoch_,
             ", with so many workers: ", roster_.num_workers());
}

void SchedulerState::Fail(const FatalEvent& event, TimePoint now) {
  if (phase_ != Phase::kJoining && phase_ != Phase::kRunning) return;
  // Workers that were there before agree: who has come has other tensors or
  // settings, and ends alone.
  if (event.code == ExitCode::kMismatch && phase_ == Phase::kRunning) {
    const std::vector<RosterEntry*> newcomers = NewcomersOf(roster_);
    for (RosterEntry* each : newcomers) {
      if (each->is_dead) continue;  // another one has told of it
      Send(*each, AbortRecord{event});
      MarkDead(*each, event.message, now);
    }
    if (!newcomers.empty()) return;
  }
  // A launcher ends the others when one has died: that is why.
  if (event.code == ExitCode::kCancelled && has_death_) {
    has_death_ = false;
    return Fail(roster_.DescribeDeaths(now), now);
  }
  phase_ = Phase::kFailing;
  failure_ = event;
  failure_->epoch = epoch_;
  for (const RosterEntry& entry : roster_.entries()) {
    failure_->step = std::max(failure_->step, entry.step);
  }
  finish_by_ = now + timing_.teardown;
  std::ranges::move(WordsToDead(roster_, event), std::back_inserter(sends_));
  const Frame abort = MakeFrame(EncodeRecord(AbortRecord{*failure_}));
  for (const auto& [connection, newcomer] : newcomers_.all()) {
    sends_.push_back({connection, abort});
  }
  for (const RosterEntry& entry : roster_.entries()) {
    if (entry.is_connected && !entry.has_left && !entry.is_dead) {
      sends_.push_back({entry.connection, abort});
    }
  }
  DoneIfAllGone();
}

void SchedulerState::OnClosed(ConnectionId connection, const absl::Status& why,
                              TimePoint now) {
  parted_.erase(connection);
  newcomers_.Remove(connection);
  RosterEntry* entry = roster_.Find(connection);
  if (entry == nullptr || !entry->is_connected) return;
  entry->is_connected = false;
  const bool is_live = phase_ == Phase::kJoining || phase_ == Phase::kRunning;
  if (is_live && !entry->has_left && absl::IsDataLoss(why)) {
    FatalEvent event{.code = ExitCode::kIntegrity, .message = {}, .dead = {}};
    event.message = absl::StrCat(entry->Describe(), ": ", why.message());
    Fail(event, now);
  } else if (is_live && !entry->has_left) {
    MarkDead(*entry, std::string(why.message()), now);
  }
  DoneIfAllGone();
}

void SchedulerState::DoneIfAllGone() {
  if (phase_ != Phase::kFailing && phase_ != Phase::kEnding) return;
  for (const RosterEntry& entry : roster_.entries()) {
    if (entry.is_connected) return;
  }
  phase_ = Phase::kDone;
}

SchedulerState::Counts SchedulerState::counts() const {
  Counts counts{.refused = static_cast<int64_t>(refused_.size())};
  for (const RosterEntry& entry : roster_.entries()) {
    if (!entry.is_connected || entry.has_left) continue;
    const bool is_worker = entry.id().role == Role::kWorker;
    ++(is_worker ? counts.workers : counts.servers);
    counts.silent += entry.is_silent ? 1 : 0;
  }
  return counts;
}

void SchedulerState::Tick(TimePoint now) {
  const Duration lateness = now - last_tick_ - TickInterval();
  last_tick_ = now;
  if (lateness > LateGuard(timing_)) ExtendDeadlines(lateness, now);
  newcomers_.DropSilent(now, timing_.dead,
                        lateness > LateGuard(timing_) ? lateness : Duration());
  if (phase_ == Phase::kFailing || phase_ == Phase::kEnding) {
    if (now >= finish_by_) phase_ = Phase::kDone;
    return;
  }
  if (phase_ == Phase::kDone) return;
  JudgeSilence(now);
  suspicions_.Judge(roster_, now,
                    [this, now](RosterEntry& who, std::string why) {
                      MarkDead(who, std::move(why), now);
                    });
  if (has_death_ && now >= verdict_at_) return JudgeDeaths(now);
  if (phase_ == Phase::kJoining && now >= std::min(join_deadline_, next_word_))
    AwaitMembers(now);
  if (failure_.has_value() || now < next_beat_) return;
  next_beat_ = now + timing_.heartbeat;
  const BeatRecord record{.left = LeftOf(roster_)};
  const Frame beat = MakeFrame(EncodeRecord(record));
  for (const RosterEntry& entry : roster_.entries()) {
    if (!entry.is_connected) continue;
    if (phase_ == Phase::kRunning && entry.id() == NodeId{Role::kWorker, 0}) {
      const auto newcomers = newcomers_.Ready(roster_).size();
      Send(entry, BeatRecord{.notes = roster_.Notes(),
                             .left = record.left,
                             .newcomers = static_cast<int>(newcomers)});
    } else {
      sends_.push_back({entry.connection, beat});
    }
  }
  const RosterEntry* const first = roster_.Find(NodeId{Role::kWorker, 0});
  const Frame wait = MakeFrame(EncodeRecord(BeatRecord{
      .note = absl::StrCat(
          "the job is at step ", first == nullptr ? 0 : first->step,
          "; this member comes in when a step has ended and is saved")}));
  for (const auto& [connection, newcomer] : newcomers_.all()) {
    sends_.push_back({connection, wait});
  }
}

void SchedulerState::ExtendDeadlines(Duration lateness, TimePoint now) {
  LogWarning("the scheduler itself stood still for ", Seconds(lateness),
             "; deadlines move by as much");
  join_deadline_ += lateness;
  for (RosterEntry& entry : roster_.entries()) {
    entry.last_seen = std::min(now, entry.last_seen + lateness);
  }
  suspicions_.Extend(lateness);
}

void SchedulerState::JudgeSilence(TimePoint now) {
  for (RosterEntry& entry : roster_.entries()) {
    if (entry.has_left || entry.is_dead) continue;
    const Duration silence = now - entry.last_seen;
    if (silence > timing_.dead) {
      MarkDead(entry, absl::StrCat("silent for ", Seconds(silence)), now);
    } else if (!entry.is_silent && silence > 3 * timing_.heartbeat) {
      entry.is_silent = true;
      LogWarning(entry.Describe(), " suspect: silent for ", Seconds(silence));
    }
  }
}

void SchedulerState::AwaitMembers(TimePoint now) {
  if (!mismatch_.empty()) {
    FatalEvent event{.code = ExitCode::kMismatch};
    event.message = mismatch_;
    return Fail(event, now);
  }
  const std::vector<std::string> missing = roster_.Missing();
  const std::vector<std::string> present = roster_.Present();
  if (now < join_deadline_) {
    next_word_ = now + kNextWords;
    return LogInfo(present.size(), " of ", present.size() + missing.size(),
                   " members are there; waiting ",
                   Seconds(join_deadline_ - now), " at most for ",
                   absl::StrJoin(missing, ", "));
  }
  if (epoch_ > 1 && min_workers_ > 0 && roster_.MarkMissing(now)) {
    return JudgeDeaths(now);
  }
  FatalEvent event;
  event.code = ExitCode::kJoinTimeout;
  event.message = absl::StrCat(
      "join deadline of ", Seconds(timing_.join), " passed; missing: ",
      missing.empty() ? "what belongs to those" : absl::StrJoin(missing, ", "),
      "; there: ", present.empty() ? "nobody" : absl::StrJoin(present, ", "),
      refused_.empty() ? "" : "; ", absl::StrJoin(refused_, "; "));
  event.details_json = nlohmann::json{{"missing", missing}}.dump();
  Fail(event, now);
}

}  // namespace telegrad
