#include "kvstore/ps/server/aggregate_backups.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/status_macros.h"

namespace telegrad {

BackupAggregator::BackupAggregator(ChunkSum sum, const EngineConfig& config,
                                   int num_dropped)
    : OneByOneAggregator(static_cast<size_t>(config.num_contributors),
                         config.num_contributors, config.buffers),
      config_(config),
      num_dropped_(static_cast<size_t>(num_dropped)),
      sum_(std::move(sum)),
      slots_(static_cast<size_t>(config.num_contributors)) {
  current_.format = sum_.format();
}

void BackupAggregator::Follow() {
  if (std::ranges::any_of(slots_, &Slot::is_taken)) return;
  is_agreed_ = sum_.scale() != kNoScale;
  num_rounds_ = sum_.step();
}

// Beside a thread that applies changes: what is read of the sum never changes.
absl::StatusOr<Aggregator::Admission> BackupAggregator::Admit(
    int worker, const PushHeader& push) {
  RETURN_IF_ERROR(sum_.CheckAnyRound(push));
  Slot& slot = At(worker);
  if (push.step < slot.next) {
    return Admission{.target = {}, .is_duplicate = true};
  }
  Follow();
  if (slot.is_taken || push.step > num_rounds_ || !is_agreed_) {
    return absl::InvalidArgumentError(
        absl::StrCat("push for step ", push.step, " of key ", chunk().key,
                     " after ", num_rounds_.load(), " rounds, by one that ",
                     slot.is_taken ? "waits for an answer"
                     : is_agreed_  ? "has no step of that number"
                                   : "knows no scale"));
  }
  slot.is_taken = true;
  slot.next = push.step + 1;
  values().Pass(worker);
  slot.push = push;
  slot.frame = config_.buffers->Get(sum_.CodecOf(push).max_encoded_bytes());
  return Admission{.target = {slot.frame->data(), push.payload_bytes}};
}

absl::StatusOr<bool> BackupAggregator::OnPushed(int worker,
                                                bool needs_checksum) {
  const Slot& slot = slots_[static_cast<size_t>(worker)];
  RETURN_IF_ERROR(sum_.CodecOf(slot.push).Validate(
      ConstBytes(slot.frame->data(), slot.push.payload_bytes)));
  return Run(worker, needs_checksum);
}

absl::StatusOr<bool> BackupAggregator::Apply(int change, bool needs_checksum) {
  if (change == kValue) {
    sum_.SetValue(value());
    {
      MutexLock lock(&mutex_);
      current_.weights = {};
      current_.weights.chunk.buffer = value();
      current_.weights.chunk.payload = value()->view();
    }
    NoteApplied(kValue);
    return true;
  }
  Slot& slot = At(change);
  sum_.Note(slot.push.wish);
  slot.is_late = slot.push.step < sum_.step();
  if (slot.is_late) {
    RETURN_IF_ERROR(sum_.Hold(
        slot.push, ConstBytes(slot.frame->data(), slot.push.payload_bytes)));
    NoteApplied(change);
    return true;
  }
  fresh_.push_back(change);
  if (slot.push.takes_all) takes_all_ = true;
  const size_t num_needed = slots_.size() - (takes_all_ ? 0 : num_dropped_);
  if (fresh_.size() < num_needed) return false;
  RETURN_IF_ERROR(Sum(needs_checksum));
  for (const int worker : fresh_) NoteApplied(worker);
  fresh_.clear();
  takes_all_ = false;
  return true;
}

// Who missed the rounds in which something was agreed has other settings: what
// it has encoded counts by those.
absl::Status BackupAggregator::Sum(bool needs_checksum) {
  std::ranges::sort(fresh_);
  const ChunkSettings in_force = sum_.settings();
  payloads_.clear();
  for (const int worker : fresh_) {
    const Slot& slot = At(worker);
    const ConstBytes payload(slot.frame->data(), slot.push.payload_bytes);
    if (slot.push.settings.mode == in_force.mode &&
        slot.push.settings.scale == in_force.scale) {
      payloads_.push_back(payload);
    } else {
      RETURN_IF_ERROR(sum_.Hold(slot.push, payload));
    }
  }
  Current next;
  next.format = sum_.format();
  ASSIGN_OR_RETURN(next.weights.chunk, sum_.Sum(payloads_, nullptr, {}));
  if (needs_checksum) {
    const ConstBytes payload = next.weights.chunk.payload;
    next.weights.payload_crc32c = Crc32c(payload.data, payload.size);
  }
  next.record = next.weights.chunk.record;
  sum_.Finish(next.record);
  next.num_rounds = sum_.step();
  num_rounds_ = next.num_rounds;
  MutexLock lock(&mutex_);
  current_ = std::move(next);
  return absl::OkStatus();
}

size_t BackupAggregator::Complete(AnswerSink& sink) {
  size_t num_pushes = TakeNumBetween();
  const std::vector<int> applied = TakeApplied(SendTo(sink));
  Current now = current();
  now.weights.chunk.record = now.record;
  for (const int worker : applied) {
    Slot& slot = At(worker);
    const uint64_t late = slot.is_late ? now.num_rounds - slot.push.step : 0;
    sink.Send(
        chunk(), now.format,
        {.worker = worker,
         .type = slot.push.wants_reply ? FrameType::kReply : FrameType::kAck,
         .step = slot.push.step,
         .priority = slot.push.priority,
         .result = now.weights,
         .contributors =
             static_cast<uint16_t>(std::min<uint64_t>(late, kMaxStaleness)),
         .is_late = slot.is_late});
    slot.is_taken = false;
    slot.frame = nullptr;
    ++num_pushes;
  }
  return num_pushes;
}

absl::Status BackupAggregator::OnPull(int worker, const PullHeader& pull,
                                      AnswerSink& sink) {
  const bool counts = static_cast<size_t>(worker) < slots_.size();
  Follow();
  const Current now = current();
  const bool is_due = pull.wants_broadcast
                          ? counts
                          : now.weights.chunk.buffer != nullptr &&
                                (!counts || pull.step <= num_rounds_);
  if (!is_due || (counts && At(worker).is_taken)) {
    return absl::InvalidArgumentError(absl::StrCat("pull of key ", chunk().key,
                                                   " after ", pull.step,
                                                   " steps was not expected"));
  }
  if (pull.wants_broadcast) {
    RETURN_IF_ERROR(values().OnPull(chunk(), worker, pull, SendTo(sink)));
    return ApplyValue(sink);
  }
  sink.Send(chunk(), now.format,
            {.worker = worker,
             .type = FrameType::kValue,
             .step = pull.step,
             .priority = pull.priority,
             .result = now.weights,
             .contributors = static_cast<uint16_t>(slots_.size())});
  return absl::OkStatus();
}

absl::Status BackupAggregator::OnPropose(int worker, const PushHeader& propose,
                                         AnswerSink& sink) {
  return ProposeOfAll(sum_, slots_.size(), worker, propose, sink);
}

void BackupAggregator::OnLeft(int worker, AnswerSink& /*sink*/) {
  At(worker).has_left = true;
}

// A round does without as many as are dropped.
std::string BackupAggregator::WaitsFor(int worker) const {
  const auto index = static_cast<size_t>(worker);
  size_t num_left = slots_[index].has_left ? 0 : 1;
  num_left +=
      static_cast<size_t>(std::ranges::count(slots_, true, &Slot::has_left));
  const bool is_open = std::ranges::any_of(slots_, &Slot::is_taken);
  if ((is_open && !slots_[index].is_taken &&
       (takes_all_ || num_left > num_dropped_)) ||
      sum_.LacksProposalOf(worker)) {
    return absl::StrCat("step ", num_rounds_ + 1);
  }
  return values().WaitFor(worker) ? "a broadcast" : "";
}

BackupAggregator::Current BackupAggregator::current() {
  MutexLock lock(&mutex_);
  return current_;
}

}  // namespace telegrad
