#include "kvstore/ps/server/aggregate_sync.h"

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
      num_missing_(slots_.size()),
      values_(slots_.size(), config.num_contributors, config.buffers) {
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
  slot.is_taken = true;
  values_.Pass(worker);
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
  InstallValue(sink);
  return slots_.size();
}

absl::Status SyncAggregator::OnPull(int worker, const PullHeader& pull,
                                    AnswerSink& sink) {
  const bool counts = static_cast<size_t>(worker) < slots_.size();
  if (pull.wants_broadcast) {
    if (counts && slots_[static_cast<size_t>(worker)].is_taken) {
      return absl::InvalidArgumentError(absl::StrCat(
          "pull of a value of key ", chunk().key, " within a round"));
    }
    RETURN_IF_ERROR(values_.OnPull(chunk(), worker, pull, SendTo(sink)));
    InstallValue(sink);
    return absl::OkStatus();
  }
  // A worker has one operation per key, so no round can end between, nor while
  // one that only reads, and does not count rounds, waits.
  if ((counts && pull.step != sum_.step()) || !has_current_) {
    return absl::InvalidArgumentError(
        absl::StrCat("pull of key ", chunk().key, " after ", pull.step,
                     " rounds, of which there were ", sum_.step()));
  }
  sink.Send(chunk(), format(),
            {.worker = worker,
             .type = FrameType::kValue,
             .step = pull.step,
             .priority = pull.priority,
             .result = current_,
             .contributors = static_cast<uint16_t>(slots_.size())});
  return absl::OkStatus();
}

absl::Status SyncAggregator::OnPropose(int worker, const PushHeader& propose,
                                       AnswerSink& sink) {
  return ProposeOfAll(sum_, slots_.size(), worker, propose, sink);
}

absl::StatusOr<Bytes> SyncAggregator::BeginValue(uint64_t index,
                                                 size_t num_bytes) {
  if (std::ranges::any_of(slots_, &Slot::is_taken)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "value ", index, " for key ", chunk().key, " within a round"));
  }
  return values_.Begin(chunk(), index, num_bytes);
}

absl::Status SyncAggregator::OnValue(int worker, int32_t priority,
                                     AnswerSink& sink) {
  RETURN_IF_ERROR(values_.End(chunk(), worker, priority));
  InstallValue(sink);
  return absl::OkStatus();
}

std::string SyncAggregator::WaitsFor(int worker) const {
  const bool is_open = std::ranges::any_of(slots_, &Slot::is_taken);
  if ((is_open && !slots_[static_cast<size_t>(worker)].is_taken) ||
      sum_.LacksProposalOf(worker)) {
    return absl::StrCat("step ", sum_.step() + 1);
  }
  return values_.WaitFor(worker) ? "a broadcast" : "";
}

// If there is one that all wait for.
void SyncAggregator::InstallValue(AnswerSink& sink) {
  const std::shared_ptr<Buffer> value = values_.next();
  if (value == nullptr) return;
  sum_.SetValue(value);
  current_ = {};
  current_.chunk.buffer = value;
  current_.chunk.payload = value->view();
  has_current_ = true;
  values_.Install(SendTo(sink));
}

}  // namespace telegrad
