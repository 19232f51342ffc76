#include "transport/job/client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

// The calls of a member; client_loop.cc has the thread behind them.
namespace telegrad {
namespace {

// A wait is cut into turns, so that each one has a deadline.
TimePoint NextTurn(TimePoint deadline) {
  return std::min<TimePoint>(deadline, Clock::now() + std::chrono::seconds(1));
}

absl::Status TooLong(absl::string_view what, size_t max_bytes) {
  return absl::InvalidArgumentError(
      absl::StrCat("join: ", what, " is longer than ", max_bytes, " bytes"));
}

absl::Status CheckOffers(const TransportOffers& offers) {
  const size_t count = offers.names.size();
  for (const std::string& name : offers.names) {
    if (name.size() > kMaxNameBytes) return TooLong("offer", kMaxNameBytes);
  }
  for (const auto* all : {&offers.addresses, &offers.striped_addresses}) {
    if (count > kMaxOffers || (!all->empty() && all->size() != count)) {
      return absl::InvalidArgumentError(
          absl::StrCat("join: ", count, " transports with ", all->size(),
                       " addresses, at most ", kMaxOffers));
    }
    for (const std::string& address : *all) {
      if (address.size() > kMaxAddressBytes) {
        return TooLong("data address", kMaxAddressBytes);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRequest(const JoinRequest& request) {
  if (request.role == Role::kScheduler) {
    return absl::InvalidArgumentError("join: a scheduler does not join");
  }
  if (request.wanted_rank < -1 || request.wanted_rank >= kMaxMembers) {
    return absl::InvalidArgumentError(
        absl::StrCat("join: rank ", request.wanted_rank));
  }
  if (request.job_id.empty() || request.job_id.size() > 255) {
    return absl::InvalidArgumentError("join: job id of 1 to 255 bytes needed");
  }
  if (request.shared.size() > MostShared(request.role)) {
    return TooLong("shared", MostShared(request.role));
  }
  if (request.data_address.size() > kMaxAddressBytes) {
    return TooLong("data address", kMaxAddressBytes);
  }
  RETURN_IF_ERROR(CheckOffers(request.offers));
  if (request.facts.size() > kMaxFacts) {
    return absl::InvalidArgumentError("join: too many facts");
  }
  for (const auto& [name, value] : request.facts) {
    if (name.size() > kMaxFactBytes || value.size() > kMaxFactBytes) {
      return TooLong(absl::StrCat("fact ", name.substr(0, 64)), kMaxFactBytes);
    }
  }
  return ParseHostPort(request.scheduler_address).status();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Job>> Job::Join(const JoinRequest& request) {
  RETURN_IF_ERROR(CheckRequest(request));
  auto client = std::make_unique<JobClient>(request);
  RETURN_IF_ERROR(client->AwaitJoin());
  return client;
}

JobClient::JobClient(const JoinRequest& request) : request_(request) {
  thread_ = std::thread([this] { Run(); });
  if (request_.cancellation == nullptr) return;
  cancel_id_ = request_.cancellation->Add(
      [this](const FatalEvent& event) { Fail(event); });
}

JobClient::~JobClient() {
  if (request_.cancellation != nullptr) {
    request_.cancellation->Remove(cancel_id_);
  }
  is_stopping_ = true;
  wake_.Notify();
  thread_.join();
}

// The thread ends the join by its deadlines, so this need not have one.
absl::Status JobClient::AwaitJoin() {
  MutexLock lock(&mutex_);
  while (!is_joined_ && !is_closed_) {
    changed_.WaitUntil(&mutex_, NextTurn(TimePoint::max()));
  }
  return is_joined_ ? absl::OkStatus() : join_status_;
}

void JobClient::Post(const Record& record) {
  Frame frame = MakeFrame(EncodeRecord(record));
  {
    MutexLock lock(&mutex_);
    if (is_closed_) return;
    posted_.push_back(std::move(frame));
  }
  wake_.Notify();
}

absl::Status JobClient::ClosedStatus() const {
  if (failure_.has_value()) {
    return WithExitCode(failure_->code,
                        absl::UnavailableError(failure_->message));
  }
  return absl::FailedPreconditionError("this member has left the job");
}

absl::StatusOr<std::vector<std::string>> JobClient::Gather(
    absl::string_view name, absl::string_view payload, TimePoint deadline) {
  if (name.size() > kMaxNameBytes || payload.size() > kMaxGatherBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("gather: name of ", name.size(), " and payload of ",
                     payload.size(), " bytes"));
  }
  const GatherRecord question{.name = std::string(name),
                              .payload = std::string(payload)};
  return GatherBy(question, question.name, membership_.workers.size(),
                  deadline);
}

absl::StatusOr<std::string> JobClient::AskServer(int rank, TimePoint deadline) {
  const NodeId id{Role::kServer, rank};
  if (rank < 0 || static_cast<size_t>(rank) >= membership_.servers.size()) {
    return absl::InvalidArgumentError(absl::StrCat("no ", ToString(id)));
  }
  ASSIGN_OR_RETURN(
      std::vector<std::string> answer,
      GatherBy(AskRecord{.rank = rank}, ToString(id), 1, deadline));
  return std::move(answer[0]);
}

absl::Status JobClient::BeginGather(const std::string& name, size_t size) {
  MutexLock lock(&mutex_);
  if (is_closed_ || is_leaving_) return ClosedStatus();
  if (gather_.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "gather \"", name, "\" within gather \"", gather_->name, "\""));
  }
  gather_.emplace();
  gather_->name = name;
  gather_->payloads.resize(size);
  gather_->has_come.resize(size);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> JobClient::GatherBy(
    const Record& question, const std::string& name, size_t size,
    TimePoint deadline) {
  RETURN_IF_ERROR(BeginGather(name, size));
  Post(question);
  // The scheduler is asked who is missing and has a little time to say so.
  TimePoint until = deadline;
  bool has_asked = false;
  MutexLock lock(&mutex_);
  while (true) {
    Exchange& gather = *gather_;
    if (gather.num_received == gather.payloads.size()) {
      return std::exchange(gather_, std::nullopt)->payloads;
    }
    const bool is_over =
        gather.missing.has_value() || (has_asked && Clock::now() >= until);
    if (is_closed_ || is_over) {
      const Exchange ended = *std::exchange(gather_, std::nullopt);
      if (is_closed_) return ClosedStatus();
      return absl::DeadlineExceededError(absl::StrCat(
          "gather \"", name, "\": waiting for ",
          ended.missing.has_value() ? absl::StrJoin(*ended.missing, ", ")
                                    : "an answer of the scheduler"));
    }
    if (!has_asked && Clock::now() >= until) {
      has_asked = true;
      until = Clock::now() + std::chrono::seconds(1);
      posted_.push_back(MakeFrame(EncodeRecord(WithdrawRecord{.name = name})));
      wake_.Notify();
    }
    changed_.WaitUntil(&mutex_, NextTurn(until));
  }
}

void JobClient::Fail(const FatalEvent& event) {
  {
    MutexLock lock(&mutex_);
    if (is_closed_ || own_failure_.has_value()) return;
    own_failure_ = event;
    own_failure_at_ = Clock::now();
  }
  Post(FailRecord{.event = event});
}

void JobClient::SuspectPeer(NodeId peer, absl::string_view why) {
  if (peer.role == Role::kScheduler) return;  // the heartbeat's own matter
  Post(SuspectRecord{.peer = peer, .why = std::string(why)});
}

void JobClient::Leave() {
  {
    MutexLock lock(&mutex_);
    if (is_closed_ || is_leaving_) return;
    is_leaving_ = true;
  }
  Post(LeaveRecord{});
  const TimePoint deadline = Clock::now() + request_.timing.teardown;
  MutexLock lock(&mutex_);
  while (!is_closed_ && Clock::now() < deadline) {
    changed_.WaitUntil(&mutex_, NextTurn(deadline));
  }
}

absl::Status JobClient::WaitForEnd(TimePoint deadline) {
  MutexLock lock(&mutex_);
  while (!is_closed_) {
    if (Clock::now() >= deadline) {
      return absl::DeadlineExceededError(
          "workers have not left by the deadline");
    }
    changed_.WaitUntil(&mutex_, NextTurn(deadline));
  }
  return has_ended_ ? absl::OkStatus() : ClosedStatus();
}

}  // namespace telegrad
