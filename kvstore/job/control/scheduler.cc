#include "kvstore/job/control/scheduler.h"

#include <poll.h>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/socket.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "kvstore/job/control/metric_names.h"
#include "kvstore/job/control/scheduler_connections.h"
#include "kvstore/job/control/scheduler_state.h"

namespace telegrad {
namespace {

constexpr std::chrono::seconds kUntilTold{1};

class SchedulerImpl : public Scheduler {
 public:
  SchedulerImpl(const SchedulerOptions& options, UniqueFd listener,
                std::string address)
      : address_(std::move(address)),
        cancellation_(options.cancellation),
        job_id_(options.job_id),
        job_(options, OwnHostName(), Clock::now()),
        connections_(options, std::move(listener), &job_),
        registration_(AddTo(options.metrics,
                            [this](MetricsPage& page) { Collect(page); })) {
    thread_ = StartThread([this] { Run(); });
    if (cancellation_ == nullptr) return;
    cancel_id_ =
        cancellation_->Add([this](const FatalEvent& event) { Fail(event); });
  }
  ~SchedulerImpl() override {
    if (cancellation_ != nullptr) cancellation_->Remove(cancel_id_);
    is_stopping_ = true;
    wake_.Notify();
    thread_.join();
  }

  std::string address() const override { return address_; }

  absl::Status Wait(FatalEvent* event) override {
    MutexLock lock(&mutex_);
    while (!is_done_) {
      done_.WaitUntil(&mutex_, Clock::now() + std::chrono::seconds(1));
    }
    if (!failure_.has_value()) return absl::OkStatus();
    if (event != nullptr) *event = *failure_;
    return StatusOf(*failure_);
  }

  void Fail(const FatalEvent& event) override {
    {
      MutexLock lock(&mutex_);
      if (!wanted_failure_.has_value()) wanted_failure_ = event;
    }
    wake_.Notify();
  }

  void FailAndTell(const FatalEvent& event) override {
    Fail(event);
    const TimePoint deadline = Clock::now() + kUntilTold;
    MutexLock lock(&mutex_);
    while (!is_done_ && Clock::now() < deadline) {
      done_.WaitUntil(&mutex_, deadline);
    }
  }

 private:
  void Run() {
    while (!is_stopping_ && job_.phase() != SchedulerState::Phase::kDone) {
      connections_.PollOnce(wake_, job_.TickInterval());
      const TimePoint now = Clock::now();
      if (std::optional<FatalEvent> wanted = TakeWantedFailure()) {
        job_.Fail(*wanted, now);
      }
      job_.Tick(now);
      connections_.Deliver(now);
      MutexLock lock(&mutex_);
      counts_ = job_.counts();
    }
    connections_.CloseAll();
    MutexLock lock(&mutex_);
    is_done_ = true;
    failure_ = job_.failure();
    done_.NotifyAll();
  }

  void Collect(MetricsPage& page) {
    page.SetScope({{"role", "scheduler"}, {"rank", "0"}});
    page.Add(metric::kJobInfo, 1, {{"job_id", job_id_}});
    MutexLock lock(&mutex_);
    const std::pair<const char*, int64_t> peers[] = {
        {"worker", counts_.workers},
        {"server", counts_.servers},
        {"silent", counts_.silent}};
    for (const auto& [kind, count] : peers) {
      page.Add(metric::kPeers, static_cast<double>(count), {{"kind", kind}});
    }
    page.Add(metric::kRefused, static_cast<double>(counts_.refused),
             {{"what", "member"}});
  }

  std::optional<FatalEvent> TakeWantedFailure() {
    MutexLock lock(&mutex_);
    return std::exchange(wanted_failure_, std::nullopt);
  }

  const std::string address_;
  const std::shared_ptr<Cancellation> cancellation_;
  const std::string job_id_;
  int64_t cancel_id_ = 0;
  WakeEvent wake_;
  std::atomic<bool> is_stopping_{false};
  SchedulerState job_;                // only thread_ uses it
  SchedulerConnections connections_;  // only thread_ uses it

  Mutex mutex_;
  CondVar done_;
  bool is_done_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<FatalEvent> failure_ ABSL_GUARDED_BY(mutex_);
  std::optional<FatalEvent> wanted_failure_ ABSL_GUARDED_BY(mutex_);
  SchedulerState::Counts counts_ ABSL_GUARDED_BY(mutex_);
  Metrics::Registration registration_;
  std::thread thread_;
};

absl::Status CheckOptions(const SchedulerOptions& options) {
  if (options.num_workers < 1 || options.num_workers > kMaxMembers ||
      options.num_servers < 0 || options.num_servers > kMaxMembers) {
    return absl::InvalidArgumentError(
        absl::StrCat("a job of ", options.num_workers, " workers and ",
                     options.num_servers, " servers"));
  }
  if (options.port < 0 || options.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("port ", options.port, " is not in 0..65535"));
  }
  if (options.job_id.empty() || options.job_id.size() > 255) {
    return absl::InvalidArgumentError("job id of 1 to 255 bytes needed");
  }
  const std::string& host = options.bind_address;
  if (host.empty() || host == "*" || host == "0.0.0.0" || host == "::") {
    return absl::InvalidArgumentError(absl::StrCat(
        "bind address \"", host,
        "\" means every network of this machine; name one address, or \"any\" "
        "if that is wanted"));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> Listen(const SocketAddress& address) {
  absl::StatusOr<UniqueFd> listener = ListenOn(address);
  if (!absl::IsAlreadyExists(listener.status())) return listener;
  return WithExitCode(
      ExitCode::kUsage,
      absl::AlreadyExistsError(absl::StrCat(
          "the scheduler cannot listen at ", ToString(address),
          ", where another process does: end that, or name a free port")));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Start(
    const SchedulerOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  const bool is_any = options.bind_address == "any";
  ASSIGN_OR_RETURN(
      const std::vector<SocketAddress> addresses,
      Resolve(is_any ? "0.0.0.0" : options.bind_address, options.port));
  const SocketAddress& address = addresses.front();
  if (!IsLoopback(address) && !options.secret.has_key()) {
    const std::string what =
        absl::StrCat("the scheduler would listen on ", ToString(address),
                     " without a secret");
    if (!options.insecure) {
      return WithExitCode(
          ExitCode::kAuthentication,
          absl::FailedPreconditionError(
              absl::StrCat(what,
                           ": give --secret-file, or --insecure to accept that "
                           "anyone on that network may join")));
    }
    LogWarning(what, ", as asked for");
  }
  if (is_any) LogWarning("the scheduler listens on every network");
  ASSIGN_OR_RETURN(UniqueFd listener, Listen(address));
  ASSIGN_OR_RETURN(const SocketAddress bound, LocalAddress(listener.get()));
  std::string shown = ToString(bound);
  if (is_any) {
    ASSIGN_OR_RETURN(const HostPort parts, ParseHostPort(shown));
    shown = FormatHostPort(OwnHostName(), parts.port);
  }
  return std::unique_ptr<Scheduler>(
      new SchedulerImpl(options, std::move(listener), std::move(shown)));
}

}  // namespace telegrad
