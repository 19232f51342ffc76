#include "kvstore/job/path/worker_group.h"

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/json_fields.h"
#include "base/mutex.h"
#include "base/process_memory.h"
#include "base/status_macros.h"
#include "kvstore/job/control/fatal_event.h"
#include "kvstore/job/control/job.h"
#include "kvstore/job/flight/flight_log.h"
#include "kvstore/job/path/data_path.h"
#include "kvstore/job/path/hosted_part.h"
#include "kvstore/job/path/job_options.h"

namespace telegrad {
namespace {

using Json = nlohmann::ordered_json;

// A listener, told once.
class Failure {
 public:
  void Set(const absl::Status& why) {
    MutexLock lock(&mutex_);
    if (!why_.ok()) return;
    why_ = why;
    if (listener_) listener_(why_);
  }
  void SetListener(std::function<void(const absl::Status&)> listener) {
    MutexLock lock(&mutex_);
    listener_ = std::move(listener);
    if (listener_ && !why_.ok()) listener_(why_);
  }

 private:
  Mutex mutex_;  // held while the listener runs, which must not come back here
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
  std::function<void(const absl::Status&)> listener_ ABSL_GUARDED_BY(mutex_);
};

// What was joined through a scheduler.
class JoinedGroup : public WorkerGroup {
 public:
  explicit JoinedGroup(const JobOptions& options) : options_(options) {}
  ~JoinedGroup() override {
    kept_.clear();
    control_.reset();  // its thread calls until here
  }

  absl::Status Join();

  const Membership& membership() const override {
    return control_->membership();
  }
  const JobOptions& options() const override { return options_; }
  const DataPath& data_path() const override { return path_; }
  absl::StatusOr<std::vector<std::string>> Gather(
      absl::string_view name, absl::string_view payload) override {
    return control_->Gather(name, payload,
                            Clock::now() + options_.operation_timeout);
  }
  void SuspectPeer(NodeId peer, absl::string_view why) override {
    control_->SuspectPeer(peer, why);
  }
  void SetStep(int64_t step) override { control_->SetStep(step); }
  void SetNote(std::string note) override {
    control_->SetNote(std::move(note));
  }
  std::vector<std::string> Notes() const override { return control_->Notes(); }
  void Fail(const absl::Status& why) override;
  void OnFailure(std::function<void(const absl::Status&)> listener) override {
    failure_.SetListener(std::move(listener));
  }
  std::optional<int> seat() const override {
    return seat_ < 0 ? std::nullopt : std::optional<int>(seat_);
  }
  std::optional<int> FailOrGoOn(const absl::Status& why) override {
    Fail(why);
    control_->WaitForEnd(Clock::now() + options_.timing.dead).IgnoreError();
    return seat();
  }
  int elder() const override { return elder_; }
  std::vector<int> Left() const override { return control_->Left(); }
  int Newcomers() const override { return control_->Newcomers(); }
  void Leave() override { control_->Leave(); }
  void Keep(std::shared_ptr<void> part) override {
    MutexLock lock(&mutex_);
    kept_.push_back(std::move(part));
  }

 private:
  absl::Status WhyNotJoined(const absl::Status& own);
  absl::Status FindPath();
  absl::Status FindElder();

  JobOptions options_;
  Failure failure_;
  std::atomic<int> seat_{-1};
  int elder_ = 0;
  DataPath path_;
  std::unique_ptr<HostedPart> part_;  // ends when the others have left
  Mutex mutex_;
  std::vector<std::shared_ptr<void>> kept_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Job> control_;
};

absl::Status JoinedGroup::Join() {
  RETURN_IF_ERROR(CheckPath(options_.path.transport));
  if (options_.part != nullptr) part_ = std::make_unique<HostedPart>(options_);
  JoinRequest request = JoinRequestOf(options_, Role::kWorker);
  request.on_fatal = [this, tell = request.on_fatal](const FatalEvent& event) {
    tell(event);
    seat_ = event.seat;
    if (event.seat >= 0 && options_.on_epoch) options_.on_epoch(event);
    failure_.Set(StatusOf(event));
  };
  absl::StatusOr<std::unique_ptr<Job>> joined = Job::Join(request);
  if (!joined.ok()) return WhyNotJoined(joined.status());
  control_ = *std::move(joined);
  absl::Status status = FindPath();
  if (status.ok() && options_.elastic.min > 0) status = FindElder();
  if (!status.ok()) Fail(status);  // the others wait for us
  return status;
}

// A part that could not join is why the worker waited in vain.
absl::Status JoinedGroup::WhyNotJoined(const absl::Status& own) {
  if (part_ == nullptr) return own;
  const absl::Status part = part_->Cancel(own);
  const bool is_cause = ExitCodeOf(own) == ExitCode::kJoinTimeout &&
                        !part.ok() &&
                        ExitCodeOf(part) != ExitCode::kJoinTimeout &&
                        ExitCodeOf(part) != ExitCode::kCancelled;
  return is_cause ? part : own;
}

absl::Status JoinedGroup::FindPath() {
  const TimePoint deadline = Clock::now() + options_.timing.join;
  ASSIGN_OR_RETURN(
      path_, AgreeOnPath(*control_, options_.path, options_.secret, deadline));
  ASSIGN_OR_RETURN(path_.server_addresses, ReadAddresses(*control_, deadline));
  return absl::OkStatus();
}

absl::Status JoinedGroup::FindElder() {
  uint64_t& since = options_.since_epoch;
  if (since == 0) since = control_->membership().epoch;
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   control_->Gather("elder", absl::StrCat(since),
                                    Clock::now() + options_.timing.join));
  uint64_t oldest = UINT64_MAX;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    uint64_t its = 0;
    if (!absl::SimpleAtoi(all[rank], &its)) {
      return WithExitCode(ExitCode::kMismatch,
                          absl::InvalidArgumentError(absl::StrCat(
                              "worker/", rank, " sent no number of an epoch")));
    }
    if (its < oldest) elder_ = static_cast<int>(rank);
    oldest = std::min(oldest, its);
  }
  return absl::OkStatus();
}

void JoinedGroup::Fail(const absl::Status& why) {
  if (why.ok()) return;
  failure_.Set(why);
  FatalEvent event{.code = ExitCodeOf(why), .message = {}, .dead = {}};
  event.message = std::string(why.message());
  if (const auto details = why.GetPayload("telegrad/details")) {
    event.details_json = std::string(*details);
  }
  control_->Fail(event);
}

class SoloGroup : public WorkerGroup {
 public:
  explicit SoloGroup(const JobOptions& options) : options_(options) {
    membership_.self = {Role::kWorker, 0};
    membership_.workers.resize(1);
    membership_.workers[0].id = membership_.self;
    membership_.workers[0].host = "localhost";
  }
  const Membership& membership() const override { return membership_; }
  const JobOptions& options() const override { return options_; }
  const DataPath& data_path() const override { return path_; }
  absl::StatusOr<std::vector<std::string>> Gather(
      absl::string_view, absl::string_view payload) override {
    return std::vector<std::string>{std::string(payload)};
  }
  void SuspectPeer(NodeId, absl::string_view) override {}
  void SetStep(int64_t) override {}
  void Fail(const absl::Status& why) override {
    if (!why.ok()) failure_.Set(why);
  }
  void OnFailure(std::function<void(const absl::Status&)> listener) override {
    failure_.SetListener(std::move(listener));
  }
  void Leave() override {}

 private:
  const JobOptions options_;
  Failure failure_;
  Membership membership_;
  DataPath path_;
};

// "threshold: worker/0 has 0.5, worker/1 has 0.25"; empty: no difference.
std::string Difference(const Json& first, const Json& other, size_t rank) {
  const auto differs = [&](const std::string& name, const Json& a,
                           const Json& b) {
    const auto has = [&name](const Json& facts) -> std::string {
      const auto found = facts.find(name);
      if (found == facts.end() || !found->is_string()) return "has none";
      return absl::StrCat("has ", found->get<std::string>());
    };
    return has(a) == has(b) ? ""
                            : absl::StrCat(name, ": worker/0 ", has(first),
                                           ", worker/", rank, " ", has(other));
  };
  for (const Json* facts : {&first, &other}) {
    for (const auto& [name, value] : facts->items()) {
      if (std::string text = differs(name, first, other); !text.empty()) {
        return text;
      }
    }
  }
  return "";
}

}  // namespace

JoinRequest JoinRequestOf(const JobOptions& options, Role role) {
  Facts facts = options.facts;
  facts.emplace_back("resend", options.path.transport.resend ? "on" : "off");
  facts.emplace_back("encryption", Name(options.path.transport.encryption));
  facts.emplace_back("version", TELEGRAD_VERSION);
  if (role == Role::kWorker && options.elastic.min > 0) {
    facts.emplace_back(kElasticFact, ElasticText(options.elastic));
  }
  return {.scheduler_address = options.scheduler_address,
          .role = role,
          .wanted_rank = options.wanted_rank,
          .facts = std::move(facts),
          .job_id = options.job_id,
          .secret = options.secret,
          .encryption = options.path.transport.encryption,
          .timing = options.timing,
          .cancellation = options.cancellation,
          .on_wait = options.on_wait,
          .on_fatal = [tell = options.on_fatal,
                       flight = options.flight](const FatalEvent& event) {
            const bool is_end = event.seat < 0;
            if (!is_end || !tell) return;
            FatalEvent told = event;
            if (flight) told.message += flight->WriteAtEnd(event.dead);
            tell(told);
          }};
}

int WorkerGroup::num_pushers() const {
  return static_cast<int>(
      RanksThatPush(data_path().plan, membership().workers.size()).size());
}

absl::StatusOr<std::unique_ptr<WorkerGroup>> JoinWorkers(
    const JobOptions& options) {
  JobOptions own = options;
  for (;;) {
    auto group = std::make_unique<JoinedGroup>(own);
    const absl::Status status = group->Join();
    if (status.ok()) return group;
    const std::optional<int> seat = SeatOf(status);
    if (own.elastic.min == 0 || !seat.has_value()) return status;
    own.wanted_rank = *seat;  // somebody has died meanwhile
  }
}

absl::Status LetIn(WorkerGroup& group) {
  return group.Gather(kLettingIn, "").status();
}

absl::StatusOr<std::unique_ptr<WorkerGroup>> JoinNextEpoch(
    std::unique_ptr<WorkerGroup> ended) {
  const std::optional<int> seat = ended->seat();
  JobOptions options = ended->options();
  if (options.elastic.min == 0 || !seat.has_value()) {
    return absl::FailedPreconditionError(
        "the epoch has not ended: nobody has died, and nobody was let in");
  }
  options.wanted_rank = *seat;
  ended.reset();
  ReturnFreeMemory();
  return JoinWorkers(options);
}

std::unique_ptr<WorkerGroup> MakeSoloGroup(const JobOptions& options) {
  return std::make_unique<SoloGroup>(options);
}
std::unique_ptr<WorkerGroup> MakeSoloGroup() { return MakeSoloGroup({}); }

std::string FactsText(const Facts& facts) {
  Json json = Json::object();
  for (const auto& [fact, value] : facts) json[fact] = value;
  return json.dump();
}

absl::Status AgreeOnFacts(WorkerGroup& group, absl::string_view name,
                          const Facts& facts) {
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   group.Gather(name, FactsText(facts)));
  std::vector<Json> parsed;
  for (const std::string& text : all) {
    parsed.push_back(ParseJson<Json>(text));
    if (parsed.back().is_object()) continue;
    return WithExitCode(
        ExitCode::kMismatch,
        absl::InvalidArgumentError(absl::StrCat(
            "worker/", parsed.size() - 1, " sent no settings for ", name)));
  }
  for (size_t rank = 1; rank < parsed.size(); ++rank) {
    const std::string text = Difference(parsed[0], parsed[rank], rank);
    if (text.empty()) continue;
    return WithExitCode(ExitCode::kMismatch,
                        absl::FailedPreconditionError(text));
  }
  return absl::OkStatus();
}

}  // namespace telegrad
