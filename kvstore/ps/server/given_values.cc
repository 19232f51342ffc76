#include "kvstore/ps/server/given_values.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace telegrad {

absl::StatusOr<Bytes> GivenValues::Begin(const Chunk& chunk, uint64_t index,
                                         size_t num_bytes) {
  const size_t own_bytes = 4 * chunk.num_elems;
  if (num_bytes != own_bytes || arriving_ != nullptr || next_.has_value() ||
      index != num_given_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "value ", index, " of ", num_bytes, " bytes for key ", chunk.key,
        " chunk ", chunk.index, " of ", own_bytes, " bytes was not expected"));
  }
  arriving_ = buffers_.Get(num_bytes);
  return arriving_->view();
}

absl::Status GivenValues::End(const Chunk& chunk, int worker,
                              int32_t priority) {
  const Worker& giver = At(worker);
  if (giver.num_had != num_given_ || giver.pull.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("value ", num_given_, " for key ", chunk.key,
                     " of a worker that waits for it or the one before"));
  }
  next_ = {std::move(arriving_), worker, priority};
  return absl::OkStatus();
}

bool GivenValues::HaveAllTheLast() const {
  return std::ranges::all_of(workers_, [this](const Worker& worker) {
    return worker.num_had == num_given_;
  });
}

std::shared_ptr<Buffer> GivenValues::next() const {
  return next_.has_value() && HaveAllTheLast() ? next_->buffer : nullptr;
}

void GivenValues::Install(SendAnswer send) {
  const Value value = *std::exchange(next_, std::nullopt);
  last_ = {};
  last_.chunk.buffer = value.buffer;
  last_.chunk.payload = value.buffer->view();
  At(value.worker).num_had = ++num_given_;
  send({.worker = value.worker,
        .type = FrameType::kAck,
        .step = num_given_ - 1,
        .priority = value.priority,
        .result = last_,
        .contributors = contributors_,
        .is_given = true});
  AnswerPulls(send);
}

absl::Status GivenValues::OnPull(const Chunk& chunk, int worker,
                                 const PullHeader& pull, SendAnswer send) {
  Worker& taker = At(worker);
  if (taker.pull.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a second pull of key ", chunk.key, " chunk ", chunk.index,
                     " before the answer"));
  }
  if (pull.step != taker.num_had) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pull of key ", chunk.key, " after ", pull.step,
        " broadcasts was not expected of one that had ", taker.num_had));
  }
  taker.pull = pull;
  AnswerPulls(send);
  return absl::OkStatus();
}

bool GivenValues::WaitFor(int worker) const {
  const Worker& one = workers_[static_cast<size_t>(worker)];
  if (next_.has_value()) return one.num_had != num_given_;
  return arriving_ == nullptr && !one.pull.has_value() &&
         std::ranges::any_of(workers_, [](const Worker& other) {
           return other.pull.has_value();
         });
}

void GivenValues::AnswerPulls(SendAnswer send) {
  for (size_t worker = 0; worker < workers_.size(); ++worker) {
    Worker& taker = workers_[worker];
    if (!taker.pull.has_value() || taker.num_had == num_given_) continue;
    const PullHeader pull = *std::exchange(taker.pull, std::nullopt);
    taker.num_had = num_given_;
    send({.worker = static_cast<int>(worker),
          .type = FrameType::kValue,
          .step = pull.step,
          .priority = pull.priority,
          .result = last_,
          .contributors = contributors_});
  }
  if (HaveAllTheLast()) last_ = {};
}

}  // namespace telegrad
