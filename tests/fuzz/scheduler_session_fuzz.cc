// libFuzzer: whole sessions of the scheduler. Each input is a job, elastic or
// not, and what its members say and do in any order, in virtual time: they
// join, meet in gathers, post, read, withdraw, suspect, fail, leave, vanish.
// Whoever is told something is there, epochs only go up, nobody has more
// answers than it asked for, and when all have gone the job is done in time.
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "kvstore/job/control/elastic.h"
#include "kvstore/job/control/scheduler_state.h"
#include "tests/fuzz/session_script.h"
#include "tests/fuzz/variants.h"

namespace telegrad {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class SchedulerSession {
 public:
  explicit SchedulerSession(Script script)
      : script_(script),
        options_(OptionsOf(script_.Next())),
        is_elastic_(script_.Next() % 2 == 0),
        job_(options_, "here", now_) {}

  void Run() {
    while (script_.has_more()) Act(script_.Next(), script_.Next());
    for (const ConnectionId each : std::set(open_)) Close(each);
    // Joins may take a minute, and their ends some seconds.
    for (int i = 0; i < 200 && !is_done(); ++i) Pass(milliseconds(900));
    Require(is_done());
  }

 private:
  static SchedulerOptions OptionsOf(uint8_t choice) {
    SchedulerOptions options;
    options.num_workers = 1 + choice % 4;
    options.num_servers = choice / 4 % 3;
    return options;
  }
  bool is_done() const { return job_.phase() == SchedulerState::Phase::kDone; }

  void Pass(Duration time) {
    now_ += time;
    job_.Tick(now_);
    Deliver();
  }

  void Close(ConnectionId which) {
    if (open_.erase(which) == 0) return;
    job_.OnClosed(which, absl::UnavailableError("closed"), now_);
    Deliver();
  }

  void Join(uint8_t choice) {
    const ConnectionId id = ++last_;
    open_.insert(id);
    JoinRecord join;
    join.wanted = {choice % 8 < 6 ? Role::kWorker : Role::kServer,
                   choice / 8 % 6 - 1};
    join.host = choice < 128 ? "here" : "there";
    join.pid = choice % 5 == 0 ? 7 : static_cast<int>(id) + 100;
    if (join.wanted.role == Role::kWorker) {
      join.facts = {{"--lr", choice % 16 == 15 ? "2" : "1"}};
      if (is_elastic_) join.facts.emplace_back(kElasticFact, "1:5");
    }
    Tell(id, join);
  }

  // What is refused ends its connection, as SchedulerConnections has it.
  void Tell(ConnectionId from, const Record& record) {
    if (!open_.contains(from)) return;
    Identity proved;
    if (const auto* join = std::get_if<JoinRecord>(&record)) {
      proved.node = join->wanted;
    }
    const absl::Status status = job_.OnRecord(from, proved, record, now_);
    Deliver();
    if (!status.ok()) Close(from);
  }

  void Act(uint8_t act, uint8_t choice) {
    const ConnectionId who = last_ == 0 ? 0 : 1 + choice % last_;
    const std::string name(1, static_cast<char>('a' + choice / 16 % 3));
    switch (act % 13) {
      case 0:
      case 1:
        return Join(script_.Next());
      case 2:
        return Pass(milliseconds(40 * choice));
      case 3:
        return Close(who);
      case 4:
        return Tell(who, BeatRecord{.step = choice, .note = "n"});
      case 5:
        return Gather(who, name);
      case 6:  // of all, as they come
        for (const ConnectionId each : std::set(open_)) Gather(each, name);
        return;
      case 7:
        return Tell(who, PostRecord{.name = name, .payload = "p"});
      case 8:
        ++asked_[who];
        return Tell(who, ReadRecord{.name = name});
      case 9:
        return Tell(who, WithdrawRecord{.name = name});
      case 10:
        return Tell(who, SuspectRecord{.peer = {Role::kWorker, choice / 64},
                                       .why = "no answer"});
      case 11:
        return Tell(who, LeaveRecord{});
      default:
        if (choice % 8 > 0) return Gather(who, kLettingIn);
        FatalEvent event{.code = ExitCode::kTimeout, .message = "m"};
        return Tell(who, FailRecord{event});
    }
  }

  void Gather(ConnectionId who, absl::string_view name) {
    asked_[who] += options_.num_workers + 5;  // as many as may ever be there
    Tell(who, GatherRecord{.name = std::string(name), .payload = "p"});
  }

  void Deliver() {
    for (const SchedulerState::Delivery& each : job_.TakeSends()) {
      Require(each.to > 0 && each.to <= last_);
      const auto record = DecodeRecord(each.frame->substr(4));
      Require(record.ok());
      if (const auto* start = std::get_if<StartRecord>(&*record)) {
        Require(start->epoch >= epoch_ && !start->workers.empty());
        epoch_ = start->epoch;
      }
      if (std::holds_alternative<GatheredRecord>(*record)) {
        Require(--asked_[each.to] >= 0);
      }
    }
  }

  Script script_;
  const SchedulerOptions options_;
  const bool is_elastic_;
  TimePoint now_{seconds(1000)};
  SchedulerState job_;
  std::set<ConnectionId> open_;
  std::map<ConnectionId, int> asked_;  // answers that it may have yet
  ConnectionId last_ = 0;
  uint64_t epoch_ = 0;
};

}  // namespace
}  // namespace telegrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  telegrad::SetLogThreshold(telegrad::Severity::kError);
  telegrad::SchedulerSession(telegrad::Script(data, size)).Run();
  return 0;
}
