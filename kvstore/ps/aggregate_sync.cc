#include "kvstore/ps/aggregate_sync.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/status_macros.h"

namespace telegrad {

SyncAggregator::SyncAggregator(ChunkSum sum, const EngineConfig& config)
    : config_(config),
      sum_(std::move(sum)),
      slots_(static_cast<size_t>(config.num_contributors)),
      num_missing_(slots_.size()) {
  payloads_.reserve(slots_.size());
}

absl::StatusOr<Aggregator::Admission> SyncAggregator::Admit(
    int worker, const PushHeader& push) {
  RETURN_IF_ERROR(sum_.CheckFormat(push));
  Slot& slot = slots_[static_cast<size_t>(worker)];
  if (push.step < sum_.step() || (push.step == sum_.step() && slot.is_taken)) {
    return Admission{.target = {}, .is_duplicate = true};
  }
  RETURN_IF_ERROR(sum_.CheckSettings(push));
  sum_.TakeFormat(push.format);
  slot.is_taken = true;
  slot.lacks_value = false;  // or it does not want it
  slot.push = push;
  slot.frame = config_.buffers->Get(sum_.codec().max_encoded_bytes());
  return Admission{.target = {slot.frame->data(), push.payload_bytes}};
}

absl::StatusOr<bool> SyncAggregator::OnPushed(int worker, bool needs_checksum) {
  const Slot& slot = slots_[static_cast<size_t>(worker)];
  RETURN_IF_ERROR(sum_.codec().Validate(
      ConstBytes(slot.frame->data(), slot.push.payload_bytes)));
  if (num_missing_.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  RETURN_IF_ERROR(Sum(needs_checksum));
  return true;
}

// Alone with the chunk: all payloads are there, and nothing is admitted before
// Complete.
absl::Status SyncAggregator::Sum(bool needs_checksum) {
  payloads_.clear();
  for (const Slot& slot : slots_) {
    payloads_.emplace_back(slot.frame->data(), slot.push.payload_bytes);
    sum_.Note(slot.push.wish);
  }
  // The first frame is nobody else's: float sums may go there.
  ASSIGN_OR_RETURN(summed_.chunk, sum_.Sum(payloads_, slots_[0].frame, {}));
  summed_.payload_crc32c.reset();
  if (needs_checksum) {
    const ConstBytes payload = summed_.chunk.payload;
    summed_.payload_crc32c = Crc32c(payload.data, payload.size);
  }
  return absl::OkStatus();
}

size_t SyncAggregator::Complete(AnswerSink& sink) {
  const PayloadFormat payload_format = format();
  for (size_t worker = 0; worker < slots_.size(); ++worker) {
    Slot& slot = slots_[worker];
    sink.Send(
        chunk(), payload_format,
        {.worker = static_cast<int>(worker),
         .type = slot.push.wants_reply ? FrameType::kReply : FrameType::kAck,
         .step = sum_.step(),
         .priority = slot.push.priority,
         .result = summed_,
         .contributors = static_cast<uint16_t>(slots_.size())});
    slot.is_taken = false;
    slot.frame = nullptr;
  }
  sum_.Finish(summed_.chunk.record);
  num_missing_ = slots_.size();
  current_ = std::exchange(summed_, {});
  has_current_ = true;
  AnswerPulls(sink);
  return slots_.size();
}

absl::Status SyncAggregator::OnPull(int worker, const PullHeader& pull,
                                    AnswerSink& sink) {
  // A worker has one operation per key, so no round can end between.
  const bool is_due =
      pull.wants_broadcast
          ? pull.step + 1 >= num_values_ && pull.step <= num_values_
          : pull.step == sum_.step() && has_current_;
  if (!is_due) {
    return absl::InvalidArgumentError(
        absl::StrCat("pull of key ", chunk().key, " after ", pull.step,
                     pull.wants_broadcast ? " broadcasts" : " rounds",
                     ", of which there were ",
                     pull.wants_broadcast ? num_values_ : sum_.step()));
  }
  Slot& slot = slots_[static_cast<size_t>(worker)];
  if (slot.pull.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a second pull of key ", chunk().key, " chunk ",
                     chunk().index, " before the answer"));
  }
  slot.pull = pull;
  AnswerPulls(sink);
  return absl::OkStatus();
}

void SyncAggregator::AnswerPulls(AnswerSink& sink) {
  if (!has_current_) return;
  for (size_t worker = 0; worker < slots_.size(); ++worker) {
    std::optional<PullHeader>& pull = slots_[worker].pull;
    if (!pull.has_value()) continue;
    if (pull->wants_broadcast ? num_values_ <= pull->step
                              : pull->step != sum_.step()) {
      continue;
    }
    sink.Send(chunk(), format(),
              {.worker = static_cast<int>(worker),
               .type = FrameType::kValue,
               .step = pull->step,
               .priority = pull->priority,
               .result = current_,
               .contributors = static_cast<uint16_t>(slots_.size())});
    if (pull->wants_broadcast) slots_[worker].lacks_value = false;
    pull.reset();
  }
  if (next_value_.has_value() && HaveAllTheValue()) {
    Install(*std::exchange(next_value_, std::nullopt), sink);
  }
}

absl::Status SyncAggregator::OnPropose(int worker, const PushHeader& propose,
                                       AnswerSink& sink) {
  ASSIGN_OR_RETURN(const bool is_agreed,
                   sum_.Propose(worker, propose.wish.scale));
  if (!is_agreed) return absl::OkStatus();
  RoundResult agreed;
  agreed.chunk.record.settings = sum_.settings();
  agreed.chunk.record.agreed = sum_.settings();
  for (size_t each = 0; each < slots_.size(); ++each) {
    sink.Send(chunk(), format(),
              {.worker = static_cast<int>(each),
               .type = FrameType::kAgree,
               .step = sum_.step(),
               .priority = propose.priority,
               .result = agreed,
               .contributors = static_cast<uint16_t>(slots_.size())});
  }
  return absl::OkStatus();
}

absl::StatusOr<Bytes> SyncAggregator::BeginValue(uint64_t index,
                                                 size_t num_bytes) {
  const bool is_between_rounds =
      std::none_of(slots_.begin(), slots_.end(),
                   [](const Slot& slot) { return slot.is_taken; });
  const size_t own_bytes = 4 * chunk().num_elems;
  if (num_bytes != own_bytes || arriving_value_ != nullptr ||
      next_value_.has_value() || index != num_values_ || !is_between_rounds) {
    return absl::InvalidArgumentError(
        absl::StrCat("value ", index, " of ", num_bytes, " bytes for key ",
                     chunk().key, " chunk ", chunk().index, " of ", own_bytes,
                     " bytes was not expected"));
  }
  arriving_value_ = config_.buffers->Get(num_bytes);
  return arriving_value_->view();
}

// Whoever has the last value may give the next one, while others still ask for
// the last.
absl::Status SyncAggregator::OnValue(int worker, int32_t priority,
                                     AnswerSink& sink) {
  Value value = {std::move(arriving_value_), worker, priority};
  if (HaveAllTheValue()) {
    Install(std::move(value), sink);
  } else {
    next_value_ = std::move(value);
  }
  return absl::OkStatus();
}

bool SyncAggregator::HaveAllTheValue() const {
  return std::ranges::none_of(slots_, &Slot::lacks_value);
}

void SyncAggregator::Install(Value value, AnswerSink& sink) {
  sum_.SetValue(value.buffer);
  current_ = {};
  current_.chunk.payload = value.buffer->view();
  current_.chunk.buffer = std::move(value.buffer);
  has_current_ = true;
  sink.Send(chunk(), format(),
            {.worker = value.worker,
             .type = FrameType::kAck,
             .step = num_values_,
             .priority = value.priority,
             .result = current_,
             .contributors = static_cast<uint16_t>(slots_.size())});
  ++num_values_;
  for (Slot& slot : slots_) slot.lacks_value = true;
  slots_[static_cast<size_t>(value.worker)].lacks_value = false;
  AnswerPulls(sink);
}

}  // namespace telegrad
