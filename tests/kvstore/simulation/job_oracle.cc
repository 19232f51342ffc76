#include "tests/kvstore/simulation/job_oracle.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "tests/kvstore/simulation/ledger_count.h"
#include "tests/kvstore/simulation/virtual_world.h"

namespace telegrad::testing {
namespace {

constexpr size_t kMostWords = 20;
constexpr Duration kLongBlow = std::chrono::seconds(1);  // may be a death

// "worker/0@host:100001" -> 1; see getpid in virtual_calls.cc.
int MemberIn(const std::string& name) {
  if (absl::StartsWith(name, "scheduler")) return 0;
  int process = 0;
  const size_t colon = name.rfind(':');
  if (colon == std::string::npos ||
      !absl::SimpleAtoi(name.substr(colon + 1), &process)) {
    return kNobody;
  }
  return process - 100'000;
}

}  // namespace

std::vector<size_t> TensorSizes() { return {70, 9}; }

JobOracle::JobOracle(const Scenario& scenario)
    : scenario_(scenario), sizes_(TensorSizes()) {
  SavedState& beginning = saved_[0];
  beginning.is_complete = true;
  beginning.workers = scenario.workers;
  beginning.servers = scenario.servers;
  for (const size_t size : sizes_) beginning.weights.emplace_back(size, 1.0f);
  beginning.residuals = Dealt({}, scenario.workers, sizes_);
}

void JobOracle::Say(std::string wrong) {
  if (outcome_.wrong.size() < kMostWords) {
    outcome_.wrong.push_back(std::move(wrong));
  }
}

int64_t JobOracle::OnJoined(const Membership& membership) {
  ++num_joined_;
  std::vector<int> processes;
  for (const Member& member : membership.workers) {
    processes.push_back(member.pid);
  }
  const auto [found, is_new] = epochs_.try_emplace(membership.epoch);
  Epoch& epoch = found->second;
  if (!is_new) {
    if (epoch.processes != processes) {
      Say(absl::StrCat("members of epoch ", membership.epoch, " differ"));
    }
    return epoch.first;
  }
  epoch.processes = processes;
  epoch.servers = static_cast<int>(membership.servers.size());
  for (const auto& [step, state] : saved_) {
    if (state.is_complete) epoch.first = step;
  }
  epoch.end = epoch.first;
  const SavedState& state = saved_[epoch.first];
  const auto workers = static_cast<int>(processes.size());
  epoch.reference = ReferenceSums(scenario_.codec, sizes_, epoch.first,
                                  state.workers == workers
                                      ? state.residuals
                                      : Dealt(state.residuals, workers, sizes_),
                                  scenario_.hosts);
  outcome_.num_epochs = std::max(outcome_.num_epochs, membership.epoch);
  return epoch.first;
}

void JobOracle::OnCompared() {
  const Duration now = VirtualWorld::The()->passed();
  if (outcome_.num_steps++ == 0) first_sum_at_ = now;
  outcome_.trained = now - first_sum_at_;
}

void JobOracle::OnStep(uint64_t epoch, int64_t step, size_t tensor,
                       const Values& out) {
  Epoch& own = epochs_.at(epoch);
  own.end = std::max(own.end, step + 1);
  const Values& sum = own.reference.Sum(step)[tensor];
  OnCompared();
  for (size_t i = 0; i < sum.size(); ++i) {
    if (out[i] == sum[i]) continue;
    return Say(absl::StrCat("epoch ", epoch, ", step ", step, ", tensor ",
                            tensor, ", element ", i, ": ", out[i],
                            " where the members' sum is ", sum[i]));
  }
}

void JobOracle::Save(uint64_t epoch, int64_t step, int rank,
                     const OfTensors& weights, std::vector<std::string> texts) {
  Epoch& own = epochs_.at(epoch);
  SavedState& state = saved_[step];
  if (state.is_complete) return;  // by an epoch before
  if (state.epoch != epoch) state = {};
  state.epoch = epoch;
  const size_t num_workers = own.processes.size();
  if (state.weights.empty()) state.weights = weights;
  if (state.weights != weights) {
    Say(absl::StrCat("weights of worker/", rank, " differ after step ", step));
  }
  state.workers = static_cast<int>(num_workers);
  state.servers = own.servers;
  state.residuals = own.reference.Residuals(step);
  state.texts.resize(texts.size());
  for (size_t tensor = 0; tensor < texts.size(); ++tensor) {
    state.texts[tensor].resize(num_workers);
    state.texts[tensor][static_cast<size_t>(rank)] = std::move(texts[tensor]);
  }
}

void JobOracle::OnSaved(uint64_t epoch, int64_t step) {
  SavedState& state = saved_[step];
  state.is_complete |= state.epoch == epoch;
}

void JobOracle::OnNamed(int member, const std::string& by) {
  named_.insert(member);
  if (!MayDie(member)) {
    Say(absl::StrCat("member ", member,
                     ", to which nothing was done, is dead: ", by));
  }
}

void JobOracle::OnFatal(const FatalEvent& event) {
  for (const std::string& name : event.dead) {
    OnNamed(MemberIn(name), event.message);
  }
}

void JobOracle::OnEpochsEnd(const absl::Status& why) {
  const std::string text(why.message());
  if (absl::StrContains(text, "has joined the job")) return;
  for (size_t at = text.find('@'); at != std::string::npos;
       at = text.find('@', at + 1)) {
    const size_t colon = text.find(':', at);
    const size_t end = text.find_first_not_of("0123456789", colon + 1);
    OnNamed(MemberIn(text.substr(at, end - at)), text);
  }
}

void JobOracle::OnBlow(const Blow& blow) {
  const bool is_kill = blow.kind == Blow::Kind::kKill;
  outcome_.num_kills += is_kill ? 1 : 0;
  has_wrong_bytes_ |= blow.kind == Blow::Kind::kTamper;
  has_harm_ |= is_kill || has_wrong_bytes_ || blow.time >= kLongBlow;
  struck_.insert(blow.member);
  const bool is_of_two =
      blow.kind == Blow::Kind::kCut || blow.kind == Blow::Kind::kTamper;
  if (is_of_two) struck_.insert(blow.other);
  kill_counts_ = is_kill && ends_.empty() && num_joined_ == scenario_.workers &&
                 !scenario_.blows.empty() && scenario_.blows[0].at == blow.at;
}

// One that leaves in order ends what a death could begin.
void JobOracle::OnLeaving() {
  if (named_.empty()) kill_counts_ = false;
}

void JobOracle::OnEnd(int member, const absl::Status& status,
                      int64_t num_steps) {
  ends_[member] = {.status = status, .num_steps = num_steps};
  absl::StrAppend(&outcome_.story, "  ",
                  ToSeconds(VirtualWorld::The()->passed()), " s: member ",
                  member, " ends after ", num_steps,
                  " steps: ", status.ok() ? "OK" : status.ToString(), "\n");
}

void JobOracle::JudgeCode(int member, const End& end) {
  const bool is_faulty = has_harm_ || has_wrong_frames_;
  if (end.status.ok()) {
    if (is_worker(member) && end.num_steps != scenario_.steps) {
      Say(absl::StrCat("member ", member, " ends well after ", end.num_steps,
                       " of ", scenario_.steps, " steps"));
    }
    return;
  }
  const ExitCode code = ExitCodeOf(end.status);
  std::set<ExitCode> allowed;
  if (has_harm_) {
    allowed = {ExitCode::kPeerDied, ExitCode::kFenced, ExitCode::kServerLost,
               ExitCode::kSchedulerLost, ExitCode::kJoinTimeout};
  }
  if (scenario_.kills.every > Duration()) allowed.clear();
  if (has_wrong_frames_) {
    allowed.insert({ExitCode::kIntegrity, ExitCode::kMismatch});
  }
  if (has_wrong_bytes_) {
    allowed.insert(
        {ExitCode::kIntegrity, ExitCode::kMismatch, ExitCode::kAuthentication});
  }
  // Who stands still, cut off, while it joins finds its own deadline over.
  if (struck_.contains(member) && end.num_steps == 0) {
    allowed.insert(ExitCode::kTimeout);
  }
  // One that comes before a worker of the beginning has its place.
  const bool is_late = end.num_steps == 0 && is_worker(member) &&
                       std::ranges::find(scenario_.blows, Blow::Kind::kReplace,
                                         &Blow::kind) != scenario_.blows.end();
  if (is_late) allowed.insert(ExitCode::kMismatch);
  // A newcomer may come when there is no place for it, or no job any more.
  if (is_newcomer(member)) {
    allowed.insert({ExitCode::kMismatch, ExitCode::kJoinTimeout,
                    ExitCode::kSchedulerLost});
  }
  if (!allowed.contains(code)) {
    Say(absl::StrCat("member ", member, " ends with ", static_cast<int>(code),
                     is_faulty ? "" : ", where nothing was done to anyone",
                     ": ", end.status.message()));
  }
}

// A single death, when all were at work: it is named, and an elastic job goes
// on without a worker, or one of several servers.
void JobOracle::JudgeKill() {
  int num_blows = 0;
  int killed = kNobody;
  for (const Blow& blow : scenario_.blows) {
    if (blow.kind == Blow::Kind::kReplace) continue;
    ++num_blows;
    if (blow.kind == Blow::Kind::kKill) killed = blow.member;
  }
  if (num_blows != 1 || killed == kNobody || !kill_counts_ ||
      has_wrong_frames_) {
    return;
  }
  if (!named_.contains(killed) && killed != 0) {
    Say(absl::StrCat("nobody names member ", killed, ", which was killed"));
  }
  const bool is_server = !is_worker(killed);
  const bool goes_on = scenario_.is_elastic && killed != 0 &&
                       (!is_server || scenario_.servers > 1);
  for (const auto& [member, end] : ends_) {
    if (!is_worker(member) || member > scenario_.workers) continue;
    const ExitCode wanted = goes_on       ? ExitCode::kOk
                            : killed == 0 ? ExitCode::kSchedulerLost
                            : is_server   ? ExitCode::kServerLost
                                          : ExitCode::kPeerDied;
    const ExitCode code =
        end.status.ok() ? ExitCode::kOk : ExitCodeOf(end.status);
    if (code != wanted) {
      Say(absl::StrCat("member ", member, " ends with ", static_cast<int>(code),
                       " where it is ", static_cast<int>(wanted), ": ",
                       end.status.message()));
    }
  }
}

void JobOracle::JudgeEnd() {
  const int num_members = VirtualWorld::The()->num_members();
  for (int member = 0; member < num_members; ++member) {
    if (VirtualWorld::The()->is_dead(member)) continue;
    const auto found = ends_.find(member);
    if (found == ends_.end()) {
      Say(absl::StrCat("member ", member, " waits for ever"));
    } else {
      JudgeCode(member, found->second);
    }
  }
  JudgeKill();
  if (!scenario_.ledger.empty()) JudgeLedger();
}

// Servers have summed what workers had, and in an epoch that has ended at most
// one step more, of which no worker heard.
void JobOracle::JudgeLedger() {
  const LedgerCount count = CountLedger(scenario_.ledger);
  for (const std::string& wrong : count.wrong) Say(wrong);
  for (const auto& [number, epoch] : epochs_) {
    const int64_t made = epoch.end - epoch.first;
    const auto found = count.rounds.find(number);
    const int64_t summed = found == count.rounds.end() ? 0 : found->second;
    const bool has_ended = number < outcome_.num_epochs;
    if (summed < made || summed > made + (has_ended ? 1 : 0)) {
      Say(absl::StrCat("epoch ", number, ": servers have summed ", summed,
                       " steps, workers had ", made));
    }
    outcome_.num_made += made;
    outcome_.num_summed += summed;
  }
}

// The steps that count are those of each epoch until the next one begins.
void JobOracle::OnWeights(uint64_t epoch, const OfTensors& weights) {
  OfTensors counted = saved_[0].weights;
  const auto behind = epochs_.upper_bound(epoch);
  for (auto each = epochs_.begin(); each != behind; ++each) {
    const auto next = std::next(each);
    const int64_t end = next == behind ? scenario_.steps : next->second.first;
    for (int64_t step = each->second.first; step < end; ++step) {
      const OfTensors& sum = each->second.reference.Sum(step);
      for (size_t tensor = 0; tensor < sum.size(); ++tensor) {
        for (size_t i = 0; i < sum[tensor].size(); ++i) {
          counted[tensor][i] -= kRate * sum[tensor][i];
        }
      }
    }
  }
  if (counted != weights) Say("weights are not those of the steps that count");
}

int64_t JobOracle::newest_step() const {
  return epochs_.empty() ? 0 : epochs_.rbegin()->second.end;
}

Outcome JobOracle::TakeOutcome() {
  outcome_.trace = VirtualWorld::The()->trace();
  outcome_.passed = VirtualWorld::The()->passed();
  return outcome_;
}

}  // namespace telegrad::testing
