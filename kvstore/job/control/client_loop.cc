#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kvstore/job/control/client.h"
#include "kvstore/job/control/client_connect.h"

namespace telegrad {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// How long the scheduler may take to repeat our own failure to everyone.
Duration OwnFailureEcho(const ControlTiming& timing) {
  return std::max<Duration>(seconds(1), timing.dead / 5);
}

// When this process was: another one that gets its pid has another time.
uint64_t WhenBorn() {
  static const auto born = static_cast<uint64_t>(
      std::chrono::system_clock::now().time_since_epoch().count());
  return born;
}

void Say(const JoinRequest& request, const std::string& why_it_waits) {
  if (request.on_wait) return request.on_wait(why_it_waits);
  LogInfo(why_it_waits);
}

Duration Turn(const ControlTiming& timing) {
  return std::clamp<Duration>(timing.heartbeat / 2, milliseconds(5),
                              milliseconds(100));
}

}  // namespace

void JobClient::Run() {
  const TimePoint start = Clock::now();
  absl::StatusOr<FrameConnection> connection =
      ConnectToScheduler(request_, start + request_.timing.join, wake_,
                         [this] { return is_stopping_.load(); });
  if (!connection.ok()) return Close(connection.status(), nullptr);
  JoinRecord join;
  join.wanted = {request_.role, request_.wanted_rank};
  join.host = OwnHostName();
  join.pid = getpid();
  join.born = WhenBorn();
  join.facts = request_.facts;
  connection->Send(MakeFrame(EncodeRecord(join)));
  last_heard_ = last_turn_ = next_beat_ = Clock::now();
  // The scheduler's own deadline began before this one: it speaks first.
  start_by_ = last_heard_ + request_.timing.join + request_.timing.dead;
  Serve(*connection);
}

void JobClient::Serve(FrameConnection& connection) {
  while (!is_stopping_) {
    SendPosted(connection);
    PollOnce(connection);
    const absl::Status read = ReadRecords(connection);
    {
      MutexLock lock(&mutex_);
      if (is_closed_) return;
    }
    if (!read.ok()) {
      return LoseScheduler(read.message(), absl::IsDataLoss(read)
                                               ? ExitCode::kIntegrity
                                               : ExitCode::kSchedulerLost);
    }
    JudgeScheduler(Clock::now());
    MutexLock lock(&mutex_);
    if (is_closed_) return;
  }
  SendPosted(connection);  // a Fail just before the end
  Close(absl::CancelledError("join was given up"), nullptr);
}

void JobClient::SendPosted(FrameConnection& connection) {
  std::vector<Frame> posted;
  BeatRecord beat{.step = step_};
  {
    MutexLock lock(&mutex_);
    posted.swap(posted_);
    beat.note = note_;
  }
  for (Frame& frame : posted) connection.Send(std::move(frame));
  const TimePoint now = Clock::now();
  if (now >= next_beat_) {
    next_beat_ = now + request_.timing.heartbeat;
    connection.Send(MakeFrame(EncodeRecord(beat)));
  }
  connection.Flush();
}

void JobClient::PollOnce(FrameConnection& connection) {
  const short events =
      static_cast<short>(POLLIN | (connection.has_unsent() ? POLLOUT : 0));
  pollfd polled[] = {{.fd = wake_.fd(), .events = POLLIN, .revents = 0},
                     {.fd = connection.fd(), .events = events, .revents = 0}};
  const TimePoint now = Clock::now();
  poll(polled, 2, PollTimeoutMs(now, now + Turn(request_.timing)));
  if (polled[0].revents != 0) wake_.Clear();
}

absl::Status JobClient::ReadRecords(FrameConnection& connection) {
  const absl::Status read = connection.Read();
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<std::string> frame,
                     connection.Next(kMaxRecordBytes));
    if (!frame.has_value()) return read;
    last_heard_ = Clock::now();
    ASSIGN_OR_RETURN(const Record record, DecodeRecord(*frame));
    RETURN_IF_ERROR(OnRecord(record));
    MutexLock lock(&mutex_);
    if (is_closed_) return absl::OkStatus();
  }
}

absl::Status JobClient::OnRecord(const Record& record) {
  if (const auto* beat = std::get_if<BeatRecord>(&record)) {
    newcomers_ = beat->newcomers;
    if (!beat->note.empty()) {
      // As long as the scheduler says so: others have a step to end.
      start_by_ = last_heard_ + request_.timing.join + request_.timing.dead;
      if (!std::exchange(has_word_, true)) Say(request_, beat->note);
    }
    MutexLock lock(&mutex_);
    notes_ = beat->notes;
    left_ = beat->left;
    return absl::OkStatus();
  }
  if (const auto* rank = std::get_if<RankRecord>(&record)) {
    rank_ = rank->rank;
    return absl::OkStatus();
  }
  if (const auto* start = std::get_if<StartRecord>(&record)) {
    return OnStart(*start);
  }
  if (const auto* gathered = std::get_if<GatheredRecord>(&record)) {
    return OnGathered(*gathered);
  }
  if (const auto* abort = std::get_if<AbortRecord>(&record)) {
    Close(absl::OkStatus(), &abort->event);
    return absl::OkStatus();
  }
  if (const auto* refuse = std::get_if<RefuseRecord>(&record)) {
    FatalEvent event;
    event.code = static_cast<ExitCode>(refuse->code);
    event.message = absl::StrCat("the scheduler refuses: ", refuse->message);
    Close(absl::OkStatus(), &event);
    return absl::OkStatus();
  }
  const bool is_end = std::holds_alternative<EndRecord>(record);
  if (is_end || std::holds_alternative<ByeRecord>(record)) {
    MutexLock lock(&mutex_);
    has_ended_ = is_end;
    is_closed_ = true;
    changed_.NotifyAll();
    return absl::OkStatus();
  }
  if (const auto* missing = std::get_if<MissingRecord>(&record)) {
    MutexLock lock(&mutex_);
    if (const auto owed = owed_.find(missing->name); owed != owed_.end()) {
      owed_.erase(owed);
    } else if (gather_.has_value() && gather_->name == missing->name) {
      gather_->missing = missing->members;
      changed_.NotifyAll();
    }
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("a record that only members send");
}

absl::Status JobClient::OnStart(const StartRecord& record) {
  const size_t num_members = request_.role == Role::kWorker
                                 ? record.workers.size()
                                 : record.servers.size();
  MutexLock lock(&mutex_);
  if (is_joined_ || rank_ < 0 || static_cast<size_t>(rank_) >= num_members) {
    return absl::InvalidArgumentError("START out of order");
  }
  membership_.epoch = record.epoch;
  membership_.self = {request_.role, rank_};
  membership_.workers = record.workers;
  membership_.servers = record.servers;
  for (const auto* members : {&record.workers, &record.servers}) {
    for (const Member& member : *members) {
      if (member.pid == 0 || member.pid != record.scheduler.pid ||
          member.host != record.scheduler.host) {
        continue;
      }
      beside_scheduler_.push_back(
          absl::StrCat(ToString(member.id), "@", member.host, ":", member.pid));
    }
  }
  is_joined_ = true;
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::Status JobClient::OnGathered(const GatheredRecord& record) {
  MutexLock lock(&mutex_);
  // One that was withdrawn may have been on its way.
  if (!gather_.has_value() || gather_->name != record.name) {
    return absl::OkStatus();
  }
  const auto rank = static_cast<size_t>(record.rank);
  if (rank >= gather_->payloads.size()) {
    return absl::InvalidArgumentError("GATHERED with an unknown rank");
  }
  gather_->payloads[rank] = record.payload;
  // An answer to an earlier try under the same name may come as well.
  if (!gather_->has_come[rank]) ++gather_->num_received;
  gather_->has_come[rank] = true;
  changed_.NotifyAll();
  return absl::OkStatus();
}

void JobClient::JudgeScheduler(TimePoint now) {
  const Duration lateness = now - last_turn_ - Turn(request_.timing);
  last_turn_ = now;
  if (lateness > LateGuard(request_.timing)) {
    last_heard_ = std::min(now, last_heard_ + lateness);
    start_by_ += lateness;
  }
  bool is_unanswered = false;
  bool is_joined = false;
  {
    MutexLock lock(&mutex_);
    is_joined = is_joined_;
    is_unanswered = own_failure_.has_value() &&
                    now > own_failure_at_ + OwnFailureEcho(request_.timing);
  }
  if (is_unanswered) return LoseScheduler("does not answer");
  if (now - last_heard_ > request_.timing.dead) return LoseScheduler("silent");
  if (is_joined || now < start_by_) return;
  FatalEvent event;
  event.code = ExitCode::kJoinTimeout;
  event.message = "the scheduler has not started the job by the join deadline";
  Close(absl::OkStatus(), &event);
}

// Our own failure, if there is one, is why the job ends.
void JobClient::LoseScheduler(absl::string_view why, ExitCode code) {
  FatalEvent event;
  event.code = code;
  event.message =
      absl::StrCat("scheduler ", request_.scheduler_address, " lost: ", why);
  event.detect_ms =
      std::chrono::duration_cast<milliseconds>(Clock::now() - last_heard_)
          .count();
  {
    MutexLock lock(&mutex_);
    event.dead = beside_scheduler_;
    event.dead.push_back("scheduler");
    if (!beside_scheduler_.empty()) {
      absl::StrAppend(&event.message, "; in its process were ",
                      absl::StrJoin(beside_scheduler_, ", "));
    }
    if (own_failure_.has_value()) event = *own_failure_;
  }
  Close(absl::OkStatus(), &event);
}

// Before the start a failure is the join's result; later it is on_fatal's. That
// is called before anyone who waits is woken: it knows best how to end.
void JobClient::Close(absl::Status join_status, const FatalEvent* failure) {
  bool is_for_handler = false;
  FatalEvent event;
  if (failure != nullptr) event = *failure;
  {
    MutexLock lock(&mutex_);
    // A member that is leaving has nothing more to lose.
    is_for_handler = failure != nullptr && is_joined_ &&
                     !(is_leaving_ && event.code == ExitCode::kSchedulerLost);
    if (is_joined_) event.epoch = membership_.epoch;
  }
  if (is_for_handler && request_.on_fatal) {
    event.self = ToString(membership_.self);
    event.step = step_;
    request_.on_fatal(event);
  }
  MutexLock lock(&mutex_);
  is_closed_ = true;
  join_status_ = std::move(join_status);
  if (failure != nullptr) {
    failure_ = event;
    join_status_ = StatusOf(event);
  }
  changed_.NotifyAll();
}

}  // namespace telegrad
