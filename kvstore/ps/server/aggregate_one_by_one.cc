#include "kvstore/ps/server/aggregate_one_by_one.h"

#include <optional>
#include <utility>

#include "base/status_macros.h"

namespace telegrad {

// A worker has one push under way, so that this ends.
absl::StatusOr<bool> OneByOneAggregator::Run(int change, bool needs_checksum) {
  if (!changes_.Begin(change)) return false;
  bool is_due = false;
  while (const std::optional<int> next = changes_.Next()) {
    ASSIGN_OR_RETURN(const bool has_answers, Apply(*next, needs_checksum));
    is_due |= has_answers;
  }
  return is_due;
}

void OneByOneAggregator::NoteApplied(int change) {
  MutexLock lock(&mutex_);
  applied_.push_back(change);
}

std::vector<int> OneByOneAggregator::TakeApplied(GivenValues::SendAnswer send) {
  std::vector<int> applied;
  {
    MutexLock lock(&mutex_);
    applied.swap(applied_);
  }
  if (std::erase(applied, kValue) > 0) {
    value_ = nullptr;
    values_.Install(send);
  }
  return applied;
}

absl::StatusOr<Bytes> OneByOneAggregator::BeginValue(uint64_t index,
                                                     size_t num_bytes) {
  return values_.Begin(chunk(), index, num_bytes);
}

absl::Status OneByOneAggregator::OnValue(int worker, int32_t priority,
                                         AnswerSink& sink) {
  RETURN_IF_ERROR(values_.End(chunk(), worker, priority));
  return ApplyValue(sink);
}

absl::Status OneByOneAggregator::ApplyValue(AnswerSink& sink) {
  if (value_ != nullptr) return absl::OkStatus();
  value_ = values_.next();
  if (value_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool is_due, Run(kValue, false));
  if (is_due) num_between_ += Complete(sink);
  return absl::OkStatus();
}

}  // namespace telegrad
