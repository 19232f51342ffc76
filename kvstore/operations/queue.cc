#include "kvstore/operations/queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace telegrad::operations {

absl::StatusOr<std::byte*> PlaceResult(
    Submission& mine, size_t count,
    const std::function<absl::StatusOr<Buffer>(size_t)>& make) {
  mine.num_elems = static_cast<int64_t>(count);
  void* out = mine.out;
  if (out == nullptr || mine.out_elems != count) {
    ASSIGN_OR_RETURN(mine.kept, make(count * SizeOf(mine.request.dtype)));
    out = mine.kept.data();
  }
  mine.result = out;
  return static_cast<std::byte*>(out);
}

absl::StatusOr<int64_t> Queue::Add(std::shared_ptr<Submission> submission) {
  const Request& request = submission->request;
  MutexLock lock(&mutex_);
  if (!closed_.ok()) return closed_;
  const auto name = names_.try_emplace({request.set, request.name}, 0);
  if (!name.second) {
    return absl::FailedPreconditionError(
        absl::StrCat(ToString(request.kind), " \"", request.name,
                     "\": one of this name is under way; wait for it, or take "
                     "another name"));
  }
  const int64_t handle = ++last_handle_;
  name.first->second = handle;
  submission->handle = handle;
  submission->submitted = Clock::now();
  under_way_[handle] = submission;
  handles_[handle] = submission;
  new_.push_back(std::move(submission));
  if (new_.size() == 1) changed_.NotifyAll();
  return handle;
}

absl::StatusOr<std::shared_ptr<Submission>> Queue::Known(int64_t handle) const {
  const auto found = handles_.find(handle);
  if (found != handles_.end()) return found->second;
  return absl::InvalidArgumentError(
      absl::StrCat("handle ", handle,
                   handle > 0 && handle <= last_handle_
                       ? " was waited for, or released, before"
                       : " was never given"));
}

absl::StatusOr<bool> Queue::Poll(int64_t handle) {
  MutexLock lock(&mutex_);
  const auto known = Known(handle);
  if (!known.ok()) return known.status();
  return (*known)->is_done;
}

absl::Status Queue::Wait(int64_t handle, TimePoint deadline, bool* is_done) {
  MutexLock lock(&mutex_);
  const auto known = Known(handle);
  *is_done = !known.ok() || (*known)->is_done;
  if (!known.ok()) return known.status();
  const std::shared_ptr<Submission> submission = *known;
  if (!*is_done) {
    ++num_waiting_;
    changed_.NotifyAll();
    while (!submission->is_done && Clock::now() < deadline) {
      done_.WaitUntil(&mutex_, deadline);
    }
    --num_waiting_;
    *is_done = submission->is_done;
  }
  return *is_done ? submission->status : absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Submission>> Queue::Result(
    int64_t handle) {
  MutexLock lock(&mutex_);
  const auto known = Known(handle);
  if (!known.ok()) return known.status();
  if (!(*known)->is_done) {
    return absl::FailedPreconditionError(
        absl::StrCat("handle ", handle, " is under way: wait for it"));
  }
  if (!(*known)->status.ok()) return (*known)->status;
  return *known;
}

absl::Status Queue::Release(int64_t handle) {
  MutexLock lock(&mutex_);
  const auto known = Known(handle);
  handles_.erase(handle);
  return known.status();
}

absl::Status Queue::Cancel(int64_t handle) {
  MutexLock lock(&mutex_);
  const auto known = Known(handle);
  if (!known.ok()) return known.status();
  cancelled_.push_back(*known);
  changed_.NotifyAll();
  return absl::OkStatus();
}

std::vector<std::shared_ptr<Submission>> Queue::TakeCancelled() {
  MutexLock lock(&mutex_);
  std::erase_if(cancelled_, [](const auto& one) { return one->is_done; });
  return std::exchange(cancelled_, {});
}

std::vector<std::shared_ptr<Submission>> Queue::TakeNew(Duration cycle,
                                                        TimePoint until) {
  MutexLock lock(&mutex_);
  for (;;) {
    const TimePoint at =
        new_.empty() ? until : std::min(until, new_.front()->submitted + cycle);
    if (is_woken_ || !cancelled_.empty() ||
        (!new_.empty() && num_waiting_ > 0) || Clock::now() >= at) {
      break;
    }
    changed_.WaitUntil(&mutex_, at);
  }
  return std::exchange(new_, {});
}

void Queue::Wake() {
  MutexLock lock(&mutex_);
  is_woken_ = true;
  changed_.NotifyAll();
}

std::vector<std::shared_ptr<Submission>> Queue::Find(
    const std::vector<int64_t>& handles) {
  std::vector<std::shared_ptr<Submission>> all;
  all.reserve(handles.size());
  MutexLock lock(&mutex_);
  for (const int64_t handle : handles) {
    const auto found = under_way_.find(handle);
    all.push_back(found == under_way_.end() ? nullptr : found->second);
  }
  return all;
}

void Queue::Finish(
    const std::vector<std::shared_ptr<Submission>>& submissions,
    const std::function<absl::Status(const Submission&)>& status_of) {
  MutexLock lock(&mutex_);
  for (const auto& submission : submissions) {
    if (submission == nullptr) continue;
    FinishLocked(*submission, status_of(*submission));
  }
  done_.NotifyAll();
}

void Queue::FinishLocked(Submission& submission, absl::Status status) {
  submission.status = std::move(status);
  submission.is_done = true;
  names_.erase({submission.request.set, submission.request.name});
  under_way_.erase(submission.handle);  // may be the last one that holds it
}

void Queue::Close(const absl::Status& why) {
  MutexLock lock(&mutex_);
  if (closed_.ok()) closed_ = why;
  new_.clear();
  while (!under_way_.empty()) {
    const std::shared_ptr<Submission> last = under_way_.begin()->second;
    FinishLocked(*last, why);
  }
  done_.NotifyAll();
}

}  // namespace telegrad::operations
