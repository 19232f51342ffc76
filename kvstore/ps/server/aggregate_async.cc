#include "kvstore/ps/server/aggregate_async.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/status_macros.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<AsyncAggregator>> AsyncAggregator::Make(
    const TensorLayout& layout, const Chunk& chunk, const EngineConfig& config,
    int num_workers, int64_t max_staleness, ChunkWeights kept) {
  std::vector<Slot> slots;
  for (int worker = 0; worker < num_workers; ++worker) {
    ASSIGN_OR_RETURN(ChunkSum sum, ChunkSum::Make(layout, chunk, config));
    if (worker > 0) sum.ShareWeights(slots.front().sum);
    slots.push_back({.sum = std::move(sum)});
  }
  return std::unique_ptr<AsyncAggregator>(new AsyncAggregator(
      std::move(slots), config, max_staleness, std::move(kept)));
}

AsyncAggregator::AsyncAggregator(std::vector<Slot> slots,
                                 const EngineConfig& config,
                                 int64_t max_staleness, ChunkWeights kept)
    : OneByOneAggregator(slots.size(), 1, config.buffers),
      config_(config),
      max_staleness_(max_staleness),
      slots_(std::move(slots)),
      has_kept_(kept.value != nullptr) {
  weights().value = std::move(kept.value);
  weights().state = std::move(kept.state);
}

absl::StatusOr<Aggregator::Admission> AsyncAggregator::Admit(
    int worker, const PushHeader& push) {
  Slot& slot = slots_[static_cast<size_t>(worker)];
  RETURN_IF_ERROR(slot.sum.CheckFormat(push));
  const bool is_taken = slot.phase == Phase::kTaken;
  if (push.step < slot.sum.step() ||
      (push.step == slot.sum.step() && is_taken)) {
    return Admission{.target = {}, .is_duplicate = true};
  }
  if (slot.phase != Phase::kEmpty) {
    return absl::InvalidArgumentError(
        absl::StrCat("push for step ", push.step, " of key ", chunk().key,
                     " before the last one was answered"));
  }
  RETURN_IF_ERROR(slot.sum.CheckSettings(push));
  slot.phase = Phase::kTaken;
  slot.push = push;
  slot.frame = config_.buffers->Get(slot.sum.codec().max_encoded_bytes());
  return Admission{.target = {slot.frame->data(), push.payload_bytes}};
}

absl::StatusOr<bool> AsyncAggregator::OnPushed(int worker,
                                               bool needs_checksum) {
  const Slot& slot = slots_[static_cast<size_t>(worker)];
  RETURN_IF_ERROR(slot.sum.codec().Validate(
      ConstBytes(slot.frame->data(), slot.push.payload_bytes)));
  return Run(worker, needs_checksum);
}

absl::StatusOr<bool> AsyncAggregator::Apply(int change, bool needs_checksum) {
  RoundResult weights;
  if (change == kValue) {
    if (std::exchange(has_kept_, false)) {
      const Buffer& kept = *slots_[0].sum.weights().value;
      std::memcpy(value()->data(), kept.data(), kept.size());
    }
    slots_[0].sum.SetValue(value());
    weights.chunk.buffer = value();
    weights.chunk.payload = value()->view();
  } else {
    Slot& slot = slots_[static_cast<size_t>(change)];
    const ConstBytes payload(slot.frame->data(), slot.push.payload_bytes);
    slot.sum.Note(slot.push.wish);
    ASSIGN_OR_RETURN(weights.chunk,
                     slot.sum.Sum({&payload, 1}, slot.frame, {}));
    slot.record = weights.chunk.record;
  }
  if (needs_checksum) {
    weights.payload_crc32c =
        Crc32c(weights.chunk.payload.data, weights.chunk.payload.size);
  }
  {
    MutexLock lock(&mutex_);
    current_ = std::move(weights);
  }
  NoteApplied(change);
  return true;
}

size_t AsyncAggregator::Complete(AnswerSink& sink) {
  size_t num_pushes = TakeNumBetween();
  for (const int worker : TakeApplied(SendTo(sink))) {
    Slot& slot = slots_[static_cast<size_t>(worker)];
    slot.phase = Phase::kApplied;
    slot.frame = nullptr;
    slot.sum.Finish(slot.record);
    ++num_pushes;
  }
  AnswerPushes(sink);
  return num_pushes;
}

// Answers workers that are not too far ahead.
void AsyncAggregator::AnswerPushes(AnswerSink& sink) {
  const uint64_t slowest = num_rounds();
  for (size_t worker = 0; worker < slots_.size(); ++worker) {
    Slot& slot = slots_[worker];
    if (slot.phase != Phase::kApplied || slot.has_left) continue;
    const uint64_t ahead = slot.sum.step() - slowest;
    if (max_staleness_ != kAnyStaleness &&
        ahead > static_cast<uint64_t>(max_staleness_)) {
      continue;
    }
    RoundResult answer = current();
    answer.chunk.record = slot.record;
    slot.phase = Phase::kEmpty;
    sink.Send(
        chunk(), slot.sum.format(),
        {.worker = static_cast<int>(worker),
         .type = slot.push.wants_reply ? FrameType::kReply : FrameType::kAck,
         .step = slot.push.step,
         .priority = slot.push.priority,
         .result = answer,
         .contributors =
             static_cast<uint16_t>(std::min<uint64_t>(ahead, kMaxStaleness))});
  }
}

absl::Status AsyncAggregator::OnPull(int worker, const PullHeader& pull,
                                     AnswerSink& sink) {
  const Slot& slot = slots_[static_cast<size_t>(worker)];
  const RoundResult weights = current();
  const bool is_due = pull.wants_broadcast || (pull.step == slot.sum.step() &&
                                               weights.chunk.buffer != nullptr);
  if (!is_due || slot.phase != Phase::kEmpty) {
    return absl::InvalidArgumentError(absl::StrCat("pull of key ", chunk().key,
                                                   " after ", pull.step,
                                                   " steps was not expected"));
  }
  if (pull.wants_broadcast) {
    RETURN_IF_ERROR(values().OnPull(chunk(), worker, pull, SendTo(sink)));
    return ApplyValue(sink);
  }
  sink.Send(chunk(), slot.sum.format(),
            {.worker = worker,
             .type = FrameType::kValue,
             .step = pull.step,
             .priority = pull.priority,
             .result = weights,
             .contributors = 1});
  return absl::OkStatus();
}

absl::Status AsyncAggregator::OnPropose(int worker, const PushHeader& propose,
                                        AnswerSink& sink) {
  ChunkSum& sum = slots_[static_cast<size_t>(worker)].sum;
  RETURN_IF_ERROR(sum.Propose(0, propose.wish.scale).status());
  SendAgreed(sum, worker, propose.priority, 1, sink);
  return absl::OkStatus();
}

// The last one stays the slowest.
void AsyncAggregator::OnLeft(int worker, AnswerSink& sink) {
  Slot& left = slots_[static_cast<size_t>(worker)];
  left.has_left = std::ranges::any_of(slots_, [&](const Slot& other) {
    return &other != &left && !other.has_left;
  });
  AnswerPushes(sink);
}

uint64_t AsyncAggregator::num_rounds() const {
  uint64_t slowest = std::numeric_limits<uint64_t>::max();
  for (const Slot& slot : slots_) {
    if (!slot.has_left) slowest = std::min(slowest, slot.sum.step());
  }
  return slowest;
}

RoundResult AsyncAggregator::current() {
  MutexLock lock(&mutex_);
  return current_;
}

}  // namespace telegrad
