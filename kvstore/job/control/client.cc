#include "kvstore/job/control/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/start_thread.h"
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

absl::Status CheckSizes(const char* what, absl::string_view name,
                        absl::string_view payload) {
  if (name.size() <= kMaxNameBytes && payload.size() <= kMaxGatherBytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": name of ", name.size(), " and payload of ",
                   payload.size(), " bytes"));
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
  thread_ = StartThread([this] { Run(); });
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

void JobClient::Queue(const Record& record) {
  Frame frame = MakeFrame(EncodeRecord(record));
  {
    MutexLock lock(&mutex_);
    if (is_closed_) return;
    posted_.push_back(std::move(frame));
  }
  wake_.Notify();
}

absl::Status JobClient::ClosedStatus() const {
  if (failure_.has_value()) return StatusOf(*failure_);
  return absl::FailedPreconditionError("this member has left the job");
}

absl::StatusOr<std::vector<std::string>> JobClient::Gather(
    absl::string_view name, absl::string_view payload, TimePoint deadline) {
  RETURN_IF_ERROR(CheckSizes("gather", name, payload));
  const GatherRecord question{.name = std::string(name),
                              .payload = std::string(payload)};
  return GatherBy(question, question.name, membership_.workers.size(),
                  deadline);
}

absl::Status JobClient::Post(absl::string_view name,
                             absl::string_view payload) {
  RETURN_IF_ERROR(CheckSizes("post", name, payload));
  {
    MutexLock lock(&mutex_);
    if (is_closed_ || is_leaving_) return ClosedStatus();
  }
  Queue(PostRecord{.name = std::string(name), .payload = std::string(payload)});
  return absl::OkStatus();
}

absl::StatusOr<std::string> JobClient::Read(absl::string_view name,
                                            TimePoint deadline) {
  RETURN_IF_ERROR(CheckSizes("read", name, ""));
  const ReadRecord question{.name = std::string(name)};
  ASSIGN_OR_RETURN(std::vector<std::string> answer,
                   GatherBy(question, question.name, 1, deadline));
  return std::move(answer[0]);
}

absl::Status JobClient::BeginGather(const std::string& name, size_t size) {
  MutexLock lock(&mutex_);
  if (is_closed_ || is_leaving_) return ClosedStatus();
  if (gather_.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "gather \"", name, "\" within gather \"", gather_->name, "\""));
  }
  gather_ = Exchange{};
  gather_->name = name;
  gather_->payloads.resize(size);
  gather_->has_come.resize(size);
  return absl::OkStatus();
}

JobClient::Exchange JobClient::EndGather() {
  Exchange ended = *std::exchange(gather_, std::nullopt);
  if (ended.is_withdrawn && !ended.missing.has_value()) {
    owed_.insert(ended.name);
  }
  return ended;
}

absl::StatusOr<std::vector<std::string>> JobClient::GatherBy(
    const Record& question, const std::string& name, size_t size,
    TimePoint deadline) {
  RETURN_IF_ERROR(BeginGather(name, size));
  Queue(question);
  // The scheduler is asked who is missing and has a little time to say so.
  TimePoint until = deadline;
  MutexLock lock(&mutex_);
  while (true) {
    Exchange& gather = *gather_;
    if (gather.num_received == gather.payloads.size()) {
      return EndGather().payloads;
    }
    const bool is_over = gather.missing.has_value() ||
                         (gather.is_withdrawn && Clock::now() >= until);
    if (is_closed_ || is_over) {
      const Exchange ended = EndGather();
      if (is_closed_) return ClosedStatus();
      return absl::DeadlineExceededError(absl::StrCat(
          "\"", name, "\": waiting for ",
          !ended.missing.has_value() ? "an answer of the scheduler"
          : ended.missing->empty()   ? "somebody to post it"
                                     : absl::StrJoin(*ended.missing, ", ")));
    }
    if (!gather.is_withdrawn && Clock::now() >= until) {
      gather.is_withdrawn = true;
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
  Queue(FailRecord{.event = event});
}

void JobClient::SuspectPeer(NodeId peer, absl::string_view why) {
  if (peer.role == Role::kScheduler) return;  // the heartbeat's own matter
  Queue(SuspectRecord{.peer = peer, .why = std::string(why)});
}

void JobClient::SetNote(std::string note) {
  note.resize(std::min(note.size(), kMaxNoteBytes));
  MutexLock lock(&mutex_);
  note_ = std::move(note);
}

std::vector<std::string> JobClient::Notes() {
  MutexLock lock(&mutex_);
  return notes_;
}

std::vector<int> JobClient::Left() {
  MutexLock lock(&mutex_);
  return left_;
}

void JobClient::Leave() {
  {
    MutexLock lock(&mutex_);
    if (is_closed_ || is_leaving_) return;
    is_leaving_ = true;
  }
  Queue(LeaveRecord{});
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
