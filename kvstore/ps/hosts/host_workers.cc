#include "kvstore/ps/hosts/host_workers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/exit_code.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "kvstore/job/path/data_path.h"
#include "kvstore/job/path/job_options.h"
#include "kvstore/server.h"

namespace telegrad {
namespace {

// The name of all meetings of a host's workers, at which the first one's text
// counts: a meeting of the whole job follows, something is told, or it is over.
constexpr char kMeeting[] = "tier1";
constexpr char kGather[] = "gather ";
constexpr char kTell[] = "tell ";
constexpr char kEnd[] = "end ";
// After the host's job has failed, for the whole job's verdict.
constexpr Duration kJobsVerdict = std::chrono::seconds(3);

// "end 3 2 a message": the status' code, its exit code.
std::string EndText(const absl::Status& status) {
  return absl::StrCat(kEnd, static_cast<int>(status.code()), " ",
                      static_cast<int>(ExitCodeOf(status)), " ",
                      status.message());
}

absl::Status ReadEnd(absl::string_view text) {
  const size_t first = std::min(text.find(' '), text.size());
  const size_t second = std::min(text.find(' ', first + 1), text.size());
  int code = 0;
  int exit_code = 0;
  if (!absl::SimpleAtoi(text.substr(0, first), &code) || code < 0 ||
      code > static_cast<int>(absl::StatusCode::kUnauthenticated) ||
      second <= first ||
      !absl::SimpleAtoi(text.substr(first + 1, second - first - 1),
                        &exit_code) ||
      exit_code < 0 || exit_code > 255) {
    return absl::InternalError("the worker that pushes said nothing of use");
  }
  if (code == 0) return absl::OkStatus();
  return WithExitCode(
      static_cast<ExitCode>(exit_code),
      absl::Status(static_cast<absl::StatusCode>(code),
                   text.substr(std::min(second + 1, text.size()))));
}

}  // namespace

// The job of the host's workers. Its end waits for all to have left.
struct HostWorkers::HostJob {
  ~HostJob() {
    group.reset();
    if (scheduler != nullptr) scheduler->Wait(nullptr).IgnoreError();
  }
  std::unique_ptr<Scheduler> scheduler;  // null where another one pushes
  std::unique_ptr<WorkerGroup> group;
};

SubGroup::SubGroup(WorkerGroup& job, WorkerGroup& path, Membership membership,
                   GatherCall gather)
    : job_(job),
      path_(path),
      membership_(std::move(membership)),
      gather_(std::move(gather)) {}

void SubGroup::OnFailure(std::function<void(const absl::Status&)> listener) {
  MutexLock lock(&mutex_);
  listener_ = std::move(listener);
  if (listener_ && !failure_.ok()) listener_(failure_);
}

void SubGroup::Deliver(const absl::Status& why) {
  MutexLock lock(&mutex_);
  if (!failure_.ok()) return;
  failure_ = why;
  if (listener_) listener_(why);
}

absl::StatusOr<std::unique_ptr<HostWorkers>> HostWorkers::Join(
    WorkerGroup& job, int num_threads) {
  std::unique_ptr<HostWorkers> workers(new HostWorkers(job));
  if (const absl::Status status = workers->JoinHost(num_threads);
      !status.ok()) {
    job.Fail(status);  // the others wait for us
    return status;
  }
  workers->MakePushers();
  workers->HearJob();
  if (workers->joined_ != nullptr) {
    workers->joined_->OnFailure(
        [host = workers.get()](const absl::Status& why) {
          host->OnHostFailure(why);
        });
    workers->watcher_ = StartThread([host = workers.get()] {
      const absl::Status verdict = host->AwaitVerdict();
      if (!verdict.ok()) host->joined_->Fail(verdict);
    });
  }
  return workers;
}

HostWorkers::~HostWorkers() {
  {
    MutexLock lock(&mutex_);
    is_leaving_ = true;
    changed_.NotifyAll();
  }
  job_.OnFailure(nullptr);
  if (joined_ == nullptr) return;
  if (watcher_.joinable()) watcher_.join();
  joined_->OnFailure(nullptr);
  joined_->Leave();
  job_.Keep(std::move(own_));
}

int HostWorkers::HostOf(int rank) const {
  const std::vector<int>& pushers = job_.data_path().plan.pushers;
  const std::vector<int> all =
      RanksThatPush(job_.data_path().plan, pushers.size());
  const int of = pushers[static_cast<size_t>(rank)];
  return static_cast<int>(std::ranges::find(all, of) - all.begin());
}

int HostWorkers::PlaceOf(int rank) const {
  const std::vector<int>& pushers = job_.data_path().plan.pushers;
  const auto index = static_cast<size_t>(rank);
  return static_cast<int>(
      std::count(pushers.begin(), pushers.begin() + rank, pushers[index]));
}

absl::Status HostWorkers::JoinHost(int num_threads) {
  const std::vector<int>& pushers = job_.data_path().plan.pushers;
  const int pusher = pushers[static_cast<size_t>(job_.rank())];
  for (int rank = 0; rank < job_.num_workers(); ++rank) {
    if (pushers[static_cast<size_t>(rank)] == pusher) ranks_.push_back(rank);
  }
  const int count = static_cast<int>(ranks_.size());
  const JobOptions& job = job_.options();
  const std::string job_id =
      absl::StrCat(job.job_id.substr(0, 200), "/host", HostOf(job_.rank()));
  std::string address;
  if (count > 1) own_ = std::make_shared<HostJob>();
  if (count > 1 && pusher == job_.rank()) {
    ASSIGN_OR_RETURN(own_->scheduler,
                     Scheduler::Start({.num_workers = count,
                                       .num_servers = count,
                                       .job_id = job_id,
                                       .secret = job.secret,
                                       .timing = job.timing,
                                       .cancellation = job.cancellation}));
    address = own_->scheduler->address();
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   job_.Gather("hosts", address));
  if (count == 1) return absl::OkStatus();
  JobOptions own{.scheduler_address = all[static_cast<size_t>(pusher)],
                 .job_id = job_id,
                 .secret = job.secret,
                 .wanted_rank = PlaceOf(job_.rank()),
                 .timing = job.timing,
                 .cancellation = job.cancellation,
                 .operation_timeout = job.operation_timeout,
                 .part = HostPart(num_threads),
                 .ranks_in_job = ranks_};
  // Workers of one host share its memory, whatever the job's network is.
  own.path.transport.name = TransportOf(NetworkKind::kTcp);
  absl::StatusOr<std::unique_ptr<WorkerGroup>> joined = JoinWorkers(own);
  if (!joined.ok()) {
    OnHostFailure(joined.status());
    HearJob();
    return AwaitVerdict();
  }
  own_->group = *std::move(joined);
  joined_ = own_->group.get();
  Membership membership = joined_->membership();
  for (size_t i = 0; i < ranks_.size(); ++i) {
    membership.workers[i].id.rank = ranks_[i];  // for messages
  }
  host_ = std::make_unique<SubGroup>(
      job_, *joined_, std::move(membership),
      [this](absl::string_view name, absl::string_view payload) {
        return GatherHost(name, payload);
      });
  return absl::OkStatus();
}

void HostWorkers::MakePushers() {
  const Plan& plan = job_.data_path().plan;
  const std::vector<Member>& all = job_.membership().workers;
  const bool pushes = ranks_.front() == job_.rank();
  const std::vector<int> ranks =
      pushes ? RanksThatPush(plan, all.size()) : RanksByPlace(plan, all.size());
  Membership membership = job_.membership();
  membership.self.rank =
      static_cast<int>(std::ranges::find(ranks, job_.rank()) - ranks.begin());
  membership.workers.clear();
  for (const int rank : ranks) {
    membership.workers.push_back(all[static_cast<size_t>(rank)]);
  }
  if (pushes) {
    pushers_ = std::make_unique<SubGroup>(
        job_, job_, std::move(membership),
        [this](absl::string_view name, absl::string_view payload) {
          return GatherPushers(name, payload);
        });
    return;
  }
  reader_ = std::make_unique<SubGroup>(
      job_, job_, std::move(membership),
      [](absl::string_view, absl::string_view payload) {
        return std::vector<std::string>{std::string(payload)};
      });
}

absl::Status HostWorkers::Say(absl::string_view text) {
  if (joined_ == nullptr) return absl::OkStatus();
  return GatherHost(kMeeting, text).status();
}

// Where the host's job has failed, by what the whole job says of it.
absl::StatusOr<std::vector<std::string>> HostWorkers::GatherHost(
    absl::string_view name, absl::string_view payload) {
  absl::StatusOr<std::vector<std::string>> all = joined_->Gather(name, payload);
  if (all.ok()) return all;
  {
    MutexLock lock(&mutex_);
    if (is_leaving_ || host_failure_.ok()) return all;
  }
  const absl::Status verdict = AwaitVerdict();
  return verdict.ok() ? all.status() : verdict;  // it is leaving now
}

// The whole job meets, as nobody else can.
absl::StatusOr<std::vector<std::string>> HostWorkers::GatherPushers(
    absl::string_view name, absl::string_view payload) {
  RETURN_IF_ERROR(Say(absl::StrCat(kGather, name)));
  ASSIGN_OR_RETURN(std::vector<std::string> all, job_.Gather(name, payload));
  std::vector<std::string> own;
  for (const int rank : RanksThatPush(job_.data_path().plan, all.size())) {
    own.push_back(std::move(all[static_cast<size_t>(rank)]));
  }
  return own;
}

absl::Status HostWorkers::Together(
    const std::function<absl::Status(const Tell&)>& call, const Tell& hear) {
  if (!pushes()) return Follow(hear);
  const absl::Status status = call([this](const std::string& text) {
    return Say(absl::StrCat(kTell, text));
  });
  const absl::Status told = Say(EndText(status));
  return status.ok() ? told : status;
}

absl::Status HostWorkers::Follow(const Tell& hear) {
  absl::Status heard;
  for (;;) {
    ASSIGN_OR_RETURN(const std::vector<std::string> all,
                     GatherHost(kMeeting, ""));
    absl::string_view text = all[0];
    if (absl::ConsumePrefix(&text, kGather)) {
      RETURN_IF_ERROR(job_.Gather(text, "").status());
    } else if (absl::ConsumePrefix(&text, kTell)) {
      heard.Update(hear(std::string(text)));
    } else {
      absl::ConsumePrefix(&text, kEnd);
      const absl::Status status = ReadEnd(text);
      return status.ok() ? heard : status;
    }
  }
}

void HostWorkers::HearJob() {
  job_.OnFailure([this](const absl::Status& why) { OnJobFailure(why); });
}

void HostWorkers::OnJobFailure(const absl::Status& why) {
  {
    MutexLock lock(&mutex_);
    job_failure_ = why;
    changed_.NotifyAll();
  }
  if (host_ != nullptr) host_->Deliver(why);
  if (pushers_ != nullptr) pushers_->Deliver(why);
  if (reader_ != nullptr) reader_->Deliver(why);
}

void HostWorkers::OnHostFailure(const absl::Status& why) {
  MutexLock lock(&mutex_);
  host_failure_ = why;
  changed_.NotifyAll();
}

// Not on the thread that tells of a failure, which holds a lock. OK: this
// worker leaves.
absl::Status HostWorkers::AwaitVerdict() {
  absl::Status host;
  {
    MutexLock lock(&mutex_);
    while (!is_leaving_ && job_failure_.ok() && host_failure_.ok()) {
      changed_.WaitUntil(&mutex_, Clock::now() + std::chrono::seconds(60));
    }
    const TimePoint until = Clock::now() + kJobsVerdict;
    while (!is_leaving_ && job_failure_.ok() && Clock::now() < until) {
      changed_.WaitUntil(&mutex_, until);
    }
    if (is_leaving_ || !job_failure_.ok()) return job_failure_;
    host = host_failure_;
  }
  const absl::Status why = WithExitCode(
      ExitCodeOf(host),
      absl::Status(host.code(),
                   absl::StrCat("among the workers of ", ToString(job_.id()),
                                "'s host: ", host.message())));
  job_.Fail(why);
  return why;
}

}  // namespace telegrad
