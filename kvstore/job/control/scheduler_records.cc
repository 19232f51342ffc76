#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kvstore/job/control/scheduler_state.h"

// What the job does about each record of a member.
namespace telegrad {
namespace {

// How long a member that others cannot reach may stay alive here.
constexpr std::chrono::seconds kSuspectGrace{2};

absl::Status Refused(absl::string_view why) {
  return WithExitCode(ExitCode::kMismatch, absl::FailedPreconditionError(why));
}

}  // namespace

absl::Status SchedulerState::OnRecord(ConnectionId from, const Identity& proved,
                                      const Record& record, TimePoint now) {
  RosterEntry* entry = roster_.Find(from);
  const auto* join = std::get_if<JoinRecord>(&record);
  if (join != nullptr) {
    if (entry != nullptr || newcomers_.Find(from) != nullptr) {
      return Refused("JOIN came twice");
    }
    const absl::Status joined = On(from, proved, *join, now);
    if (joined.ok() || phase_ != Phase::kJoining) return joined;
    if (const auto other = roster_.TakeOther(*join)) {
      parted_.insert(other->connection);
      Send(*other, RefuseRecord{.code = static_cast<int>(ExitCodeOf(joined)),
                                .message = std::string(joined.message())});
    }
    return joined;
  }
  if (parted_.contains(from)) return absl::OkStatus();
  if (RosterEntry* newcomer = newcomers_.Find(from)) {
    newcomer->last_seen = now;
    if (const auto* fail = std::get_if<FailRecord>(&record)) {
      Send(*newcomer, AbortRecord{fail->event});  // it alone ends
      newcomers_.Remove(from);
    }
    return absl::OkStatus();
  }
  if (entry == nullptr) return Refused("record before JOIN");
  if (entry->is_dead) return absl::OkStatus();  // it is told so at the verdict
  entry->last_seen = now;
  if (std::exchange(entry->is_silent, false)) {
    LogWarning(entry->Describe(), " recovered");
  }
  return OnMember(*entry, record, now);
}

absl::Status SchedulerState::On(ConnectionId from, const Identity& proved,
                                const JoinRecord& record, TimePoint now) {
  if (!(record.wanted == proved.node)) {
    return Refused(absl::StrCat("JOIN as ", ToString(record.wanted),
                                " after a handshake as ",
                                ToString(proved.node)));
  }
  if (record.version != kControlVersion) {
    return Refused(absl::StrCat("control protocol: version ", kControlVersion,
                                " here, ", record.version, " at ", record.host,
                                ":", record.pid));
  }
  if (failure_.has_value()) {
    return WithExitCode(failure_->code,
                        absl::UnavailableError(absl::StrCat(
                            "the job has ended: ", failure_->message)));
  }
  const bool takes_newcomers = phase_ == Phase::kRunning && min_workers_ > 0;
  if (phase_ != Phase::kJoining && !takes_newcomers) {
    return Refused(absl::StrCat("one member too many: all of the job's ",
                                roster_.entries().size(), " are there"));
  }
  if (takes_newcomers || !roster_.IsExpected(record)) {
    return Keep(from, record, now);
  }
  const absl::Status added = roster_.Add(from, record, now);
  if (!added.ok()) turned_away_ = record;
  if (turned_away_.has_value()) {
    // Its flags may be why it wants a place that is taken, or that is none; who
    // has the right ones may come later. Members of another job that came here
    // by mistake do this one no harm if it is complete soon.
    if (std::string text = roster_.DifferenceOf(*turned_away_); !text.empty()) {
      turned_away_.reset();
      next_word_ = std::min(next_word_, now + timing_.first_word);
      mismatch_ = std::move(text);
      if (!added.ok()) return Refused(mismatch_);
    }
  }
  RETURN_IF_ERROR(added);
  StartIfComplete(now);
  return absl::OkStatus();
}

absl::Status SchedulerState::Keep(ConnectionId from, const JoinRecord& record,
                                  TimePoint now) {
  RETURN_IF_ERROR(newcomers_.Add(from, record, roster_, now));
  next_beat_ = now;  // which tells it, and worker 0
  if (phase_ == Phase::kJoining && !has_death_) newcomers_.MoveTo(roster_);
  StartIfComplete(now);
  return absl::OkStatus();
}

absl::Status SchedulerState::OnMember(RosterEntry& from, const Record& record,
                                      TimePoint now) {
  if (const auto* beat = std::get_if<BeatRecord>(&record)) {
    from.step = beat->step;
    from.note = beat->note;
    return absl::OkStatus();
  }
  if (const auto* fail = std::get_if<FailRecord>(&record)) {
    Fail(fail->event, now);
    return absl::OkStatus();
  }
  if (phase_ == Phase::kJoining) return Refused("record before START");
  if (std::holds_alternative<LeaveRecord>(record)) return OnLeave(from, now);
  if (phase_ != Phase::kRunning) return absl::OkStatus();
  if (from.has_left) return Refused("record after LEAVE");
  if (const auto* gather = std::get_if<GatherRecord>(&record)) {
    return OnGather(from, *gather, now);
  }
  if (const auto* post = std::get_if<PostRecord>(&record)) {
    return OnPost(from, *post);
  }
  if (const auto* read = std::get_if<ReadRecord>(&record)) {
    return OnRead(from, *read);
  }
  if (const auto* withdraw = std::get_if<WithdrawRecord>(&record)) {
    OnWithdraw(from, *withdraw);
    return absl::OkStatus();
  }
  if (const auto* suspect = std::get_if<SuspectRecord>(&record)) {
    return OnSuspect(from, *suspect, now);
  }
  return Refused("a record that only the scheduler sends");
}

absl::Status SchedulerState::OnGather(RosterEntry& from,
                                      const GatherRecord& record,
                                      TimePoint now) {
  if (from.join.wanted.role != Role::kWorker) {
    return Refused("gather by a server");
  }
  if (from.gathered.has_value()) return Refused("gather within a gather");
  for (const RosterEntry& other : roster_.entries()) {
    if (other.join.wanted.role != Role::kWorker) continue;
    const bool is_elsewhere =
        other.gathered.has_value() && gather_name_ != record.name;
    if (other.has_left) {
      FailForLeft(other, record.name, now);
      return absl::OkStatus();
    }
    if (!is_elsewhere) continue;
    FatalEvent event;
    event.code = ExitCode::kMismatch;
    event.message = absl::StrCat(ToString(from.id()), " is at gather \"",
                                 record.name, "\" while ", ToString(other.id()),
                                 " is at \"", gather_name_, "\"");
    Fail(event, now);
    return absl::OkStatus();
  }
  gather_name_ = record.name;
  from.gathered = record.payload;
  FinishGather(now);
  return absl::OkStatus();
}

void SchedulerState::FailForLeft(const RosterEntry& left,
                                 absl::string_view gather, TimePoint now) {
  FatalEvent event{.code = ExitCode::kPeerDied};
  event.message = absl::StrCat(ToString(left.id()), " has left the job; \"",
                               gather, "\" of others waits for it");
  event.dead = {left.Describe()};
  Fail(event, now);
}

void SchedulerState::FinishGather(TimePoint now) {
  std::vector<RosterEntry*> workers;
  for (int rank = 0; rank < roster_.num_workers(); ++rank) {
    RosterEntry* worker = roster_.Find(NodeId{Role::kWorker, rank});
    if (worker == nullptr || !worker->gathered.has_value()) return;
    workers.push_back(worker);
  }
  if (gather_name_ == kLettingIn) {
    if (has_death_) return;  // they come in with its verdict
    FatalEvent event{.code = ExitCode::kPeerDied};
    for (const RosterEntry* newcomer : newcomers_.Ready(roster_)) {
      const bool is_part =
          roster_.has_parts() && newcomer->join.wanted.role == Role::kServer;
      if (is_part) continue;  // its worker says it
      absl::StrAppend(&event.message, event.message.empty() ? "" : ", ",
                      newcomer->Describe());
    }
    event.message.resize(std::min(event.message.size(), kMaxMessageBytes / 2));
    if (!event.message.empty()) {
      event.message += " has joined the job";
      return BeginEpoch(std::move(event), now);
    }
    for (RosterEntry* newcomer : NewcomersOf(roster_)) newcomer->is_new = false;
  }
  for (RosterEntry* worker : workers) {
    const Frame frame =
        MakeFrame(EncodeRecord(GatheredRecord{.name = gather_name_,
                                              .rank = worker->rank,
                                              .payload = *worker->gathered}));
    worker->gathered.reset();
    for (const RosterEntry* to : workers) {
      sends_.push_back({to->connection, frame});
    }
  }
}

absl::Status SchedulerState::OnPost(RosterEntry& from,
                                    const PostRecord& record) {
  posted_bytes_ += record.payload.size();
  if (++from.num_posts > kMaxPosts || posted_bytes_ > kMaxPostedBytes) {
    return Refused(absl::StrCat(ToString(from.id()), " posts ", from.num_posts,
                                " entries; all have ", posted_bytes_,
                                " bytes"));
  }
  const Frame answer = MakeFrame(EncodeRecord(
      GatheredRecord{.name = record.name, .payload = record.payload}));
  if (!posted_.emplace(record.name, answer).second) {
    return Refused(absl::StrCat(ToString(from.id()), " posts \"", record.name,
                                "\", which is there"));
  }
  for (RosterEntry& entry : roster_.entries()) {
    if (entry.reads != record.name) continue;
    entry.reads.reset();
    sends_.push_back({entry.connection, answer});
  }
  return absl::OkStatus();
}

absl::Status SchedulerState::OnRead(RosterEntry& from,
                                    const ReadRecord& record) {
  const auto num_members = static_cast<int>(roster_.entries().size());
  if (++from.num_reads > kMaxReadsPerMember * num_members) {
    return Refused(absl::StrCat(ToString(from.id()), " reads ", from.num_reads,
                                " entries"));
  }
  if (from.reads.has_value()) return Refused("read within a read");
  const auto found = posted_.find(record.name);
  if (found == posted_.end()) {
    from.reads = record.name;
  } else {
    sends_.push_back({from.connection, found->second});
  }
  return absl::OkStatus();
}

void SchedulerState::OnWithdraw(RosterEntry& from,
                                const WithdrawRecord& record) {
  MissingRecord answer{.name = record.name, .members = {}};
  if (from.gathered.has_value() && gather_name_ == record.name) {
    for (int rank = 0; rank < roster_.num_workers(); ++rank) {
      const RosterEntry* worker = roster_.Find(NodeId{Role::kWorker, rank});
      if (worker == nullptr || worker->gathered.has_value()) continue;
      answer.members.push_back(ToString(worker->id()));
    }
    from.gathered.reset();
  }
  if (from.reads == record.name) from.reads.reset();
  Send(from, answer);
}

absl::Status SchedulerState::OnSuspect(const RosterEntry& from,
                                       const SuspectRecord& record,
                                       TimePoint now) {
  const RosterEntry* peer = roster_.Find(record.peer);
  if (peer == nullptr) {
    return Refused(absl::StrCat("no member ", ToString(record.peer)));
  }
  if (peer->has_left) return absl::OkStatus();  // its connections end, too
  const TimePoint until = now + std::min<Duration>(kSuspectGrace, timing_.dead);
  if (suspicions_.Add(from.connection, peer->connection, record.why, until)) {
    LogWarning(peer->Describe(), " suspect: unreachable from ",
               ToString(from.id()), ": ", record.why);
  }
  return absl::OkStatus();
}

absl::Status SchedulerState::OnLeave(RosterEntry& from, TimePoint now) {
  Send(from, ByeRecord{});
  if (phase_ != Phase::kRunning) return absl::OkStatus();
  if (from.join.wanted.role == Role::kServer) {
    MarkDead(from, "left before the workers", now);
    return absl::OkStatus();
  }
  from.has_left = true;
  next_beat_ = now;  // which tells the others
  bool is_last = true;
  for (const RosterEntry& other : roster_.entries()) {
    if (other.join.wanted.role != Role::kWorker) continue;
    is_last = is_last && other.has_left;
    if (!other.gathered.has_value() || other.is_dead) continue;
    FailForLeft(from, gather_name_, now);
    return absl::OkStatus();
  }
  if (!is_last || has_death_) return absl::OkStatus();
  phase_ = Phase::kEnding;
  finish_by_ = now + timing_.teardown;
  for (const auto& [connection, newcomer] : newcomers_.all()) {
    Send(newcomer,
         RefuseRecord{.code = static_cast<int>(ExitCode::kJoinTimeout),
                      .message = "the job has ended in order before this "
                                 "member could come in"});
  }
  for (const RosterEntry& entry : roster_.entries()) {
    if (entry.join.wanted.role == Role::kServer && entry.is_connected) {
      Send(entry, EndRecord{});
    }
  }
  DoneIfAllGone();
  return absl::OkStatus();
}

}  // namespace telegrad
