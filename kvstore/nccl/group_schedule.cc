#include "kvstore/nccl/group_schedule.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "kvstore/engine/codec/checks.h"

namespace telegrad {
namespace {

// A device that has done something says so; in case it does not.
constexpr Duration kLookPause = std::chrono::milliseconds(1);
constexpr Duration kIdlePause = std::chrono::seconds(60);
// A bucket is closed with the tensor with which it has so many elements.
constexpr size_t kBucketElems = size_t{1} << 23;
constexpr size_t kMostInBucket = 64;
constexpr int64_t kMostUnderWay = 2;

}  // namespace

absl::Status GroupSchedule::Add(const std::shared_ptr<GroupOp>& op) {
  GroupTensor& tensor = *op->tensor;
  MutexLock lock(&mutex_);
  const bool lacks_value = op->kind == GroupKind::kPull && !tensor.has_value;
  RETURN_IF_ERROR(
      CheckTurn(tensor.spec, lacks_value, tensor.active != nullptr));
  if (tensor.spec.num_elems == 0) {
    tensor.has_value = true;
    op->ticket->Finish(absl::OkStatus());
    return absl::OkStatus();
  }
  tensor.active = op;
  waiting_.push_back(op);
  changed_.NotifyAll();
  return absl::OkStatus();
}

void GroupSchedule::AwaitQueued(const GroupTensor& tensor) {
  std::shared_ptr<GroupOp> before;
  {
    MutexLock lock(&mutex_);
    before = tensor.active;
  }
  if (before != nullptr) telegrad::AwaitQueued(before->ticket);
}

void GroupSchedule::Hurry() {
  MutexLock lock(&mutex_);
  hurries_ = !waiting_.empty();
  changed_.NotifyAll();
}

void GroupSchedule::Release(const std::shared_ptr<GroupOp>& op) {
  const TimePoint deadline = Clock::now() + kCancelGrace;
  MutexLock lock(&mutex_);
  if (std::erase(waiting_, op) > 0) op->tensor->active = nullptr;
  while (op->tensor->active == op && Clock::now() < deadline) {
    changed_.WaitUntil(&mutex_, deadline);
  }
}

void GroupSchedule::Close() {
  MutexLock lock(&mutex_);
  is_closed_ = true;
  changed_.NotifyAll();
}

int64_t GroupSchedule::num_buckets() const {
  MutexLock lock(&mutex_);
  return num_buckets_;
}

// Whether there was anything to begin.
bool GroupSchedule::BeginNext() {
  if (waiting_.empty()) return false;
  absl::c_stable_sort(waiting_, [](const auto& a, const auto& b) {
    return a->priority > b->priority;
  });
  const GroupKind kind = waiting_.front()->kind;
  size_t count = 0;
  size_t num_elems = 0;
  while (count < std::min(kMostInBucket, waiting_.size()) &&
         num_elems < kBucketElems && waiting_[count]->kind == kind) {
    num_elems += waiting_[count++]->tensor->spec.num_elems;
  }
  const bool gathers = count == waiting_.size() && count < kMostInBucket &&
                       num_elems < kBucketElems && !hurries_ && !is_closed_;
  if (gathers && num_under_way_ >= kMostUnderWay) return false;
  const auto end = waiting_.begin() + static_cast<ptrdiff_t>(count);
  auto bucket = std::make_shared<GroupBucket>();
  bucket->ops.assign(waiting_.begin(), end);
  bucket->statuses.resize(count);
  bucket->queued_left = bucket->ended_left = devices_.size();
  waiting_.erase(waiting_.begin(), end);
  hurries_ = hurries_ && !waiting_.empty();
  for (const auto& op : bucket->ops) {
    op->step = op->tensor->num_rounds;
    op->tensor->num_rounds +=
        kind == GroupKind::kPush || kind == GroupKind::kPushPull;
  }
  for (PerDevice& device : devices_) device.buckets.push_back(bucket);
  ++num_buckets_;
  ++num_under_way_;
  changed_.NotifyAll();
  return true;
}

std::shared_ptr<GroupBucket> GroupSchedule::Next(size_t device, bool is_idle,
                                                 bool* is_over) {
  const TimePoint until = Clock::now() + (is_idle ? kIdlePause : kLookPause);
  MutexLock lock(&mutex_);
  PerDevice& mine = devices_[device];
  while (mine.buckets.empty() && !BeginNext() && !mine.is_woken &&
         !(is_closed_ && is_idle) && Clock::now() < until) {
    changed_.WaitUntil(&mutex_, until);
  }
  mine.is_woken = false;
  *is_over = is_closed_ && is_idle && mine.buckets.empty();
  if (mine.buckets.empty()) return nullptr;
  std::shared_ptr<GroupBucket> next = std::move(mine.buckets.front());
  mine.buckets.pop_front();
  return next;
}

void GroupSchedule::Wake(size_t device) {
  MutexLock lock(&mutex_);
  devices_[device].is_woken = true;
  changed_.NotifyAll();
}

void GroupSchedule::Queued(GroupBucket& bucket) {
  {
    MutexLock lock(&mutex_);
    if (--bucket.queued_left > 0) return;
  }
  for (const auto& op : bucket.ops) op->ticket->Queued();
}

absl::Status GroupSchedule::End(GroupBucket& bucket,
                                const std::vector<absl::Status>& statuses) {
  {
    MutexLock lock(&mutex_);
    for (size_t i = 0; i < statuses.size(); ++i) {
      bucket.statuses[i].Update(statuses[i]);
    }
    if (--bucket.ended_left > 0) return absl::OkStatus();
    --num_under_way_;
    for (size_t i = 0; i < statuses.size(); ++i) {
      GroupTensor& tensor = *bucket.ops[i]->tensor;
      tensor.active = nullptr;
      tensor.has_value = tensor.has_value || bucket.statuses[i].ok();
    }
    changed_.NotifyAll();
  }
  absl::Status first;
  for (size_t i = 0; i < statuses.size(); ++i) {
    bucket.ops[i]->ticket->Finish(bucket.statuses[i]);
    first.Update(bucket.statuses[i]);
  }
  return first;
}

}  // namespace telegrad
