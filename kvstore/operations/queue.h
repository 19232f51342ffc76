#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/event.h"
#include "base/mutex.h"
#include "base/stream.h"
#include "kvstore/operations/request.h"

namespace telegrad::operations {

// One request of this rank with its memory, from its submission on.
struct Submission {
  Request request;
  const void* in = nullptr;
  void* out = nullptr;  // null: the result is kept in `kept`
  size_t out_elems = 0;
  // On a GPU: that of request.device, behind which `in` is ready.
  Stream stream = {};
  int64_t handle = 0;
  TimePoint submitted = {};
  TimePoint decided = {};
  Event ready = {};  // there; none in host memory

  // Set by the thread that runs it, before it is done.
  Buffer kept;                     // on request.device
  std::shared_ptr<Buffer> pinned;  // memory of a copy's `in` and `out`
  const void* result = nullptr;
  int64_t num_elems = 0;
  std::vector<int64_t> rows;  // by member, of what came from there

  bool is_done = false;
  absl::Status status = {};
};

// Where the result of `count` elements goes: into `out`, or what `mine` keeps,
// which `make` makes.
absl::StatusOr<std::byte*> PlaceResult(
    Submission& mine, size_t count,
    const std::function<absl::StatusOr<Buffer>(size_t)>& make =
        &Buffer::Create);

// Where callers hand requests to the thread that negotiates. Thread-safe.
class Queue {
 public:
  // FailedPrecondition: a request of that name and process set is under way.
  // After Close its error.
  absl::StatusOr<int64_t> Add(std::shared_ptr<Submission> submission);
  absl::StatusOr<bool> Poll(int64_t handle);
  // The operation's status; OK where it is not done by then.
  absl::Status Wait(int64_t handle, TimePoint deadline, bool* is_done);
  // Its own error, or the submission with its result, once it is done.
  absl::StatusOr<std::shared_ptr<const Submission>> Result(int64_t handle);
  absl::Status Release(int64_t handle);
  // Ends it on all ranks, unless it is ready on all before they hear of it.
  absl::Status Cancel(int64_t handle);

  // The thread's side. Returns when a request has waited for `cycle`, or a
  // caller waits for one, or at `until`, or Wake was called.
  std::vector<std::shared_ptr<Submission>> TakeNew(Duration cycle,
                                                   TimePoint until);
  // Callers have cancelled them, and they are under way.
  std::vector<std::shared_ptr<Submission>> TakeCancelled();
  void Wake();
  // Null of those that are not under way.
  std::vector<std::shared_ptr<Submission>> Find(
      const std::vector<int64_t>& handles);
  // With their results set; null ones are left out. Who waits hears it.
  void Finish(const std::vector<std::shared_ptr<Submission>>& submissions,
              const std::function<absl::Status(const Submission&)>& status_of);
  // All that is under way and all that comes ends with `why`.
  void Close(const absl::Status& why);

 private:
  absl::StatusOr<std::shared_ptr<Submission>> Known(int64_t handle) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishLocked(Submission& submission, absl::Status status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  struct NameHash {
    size_t operator()(const std::pair<int, std::string>& name) const {
      return std::hash<std::string>()(name.second) +
             static_cast<size_t>(name.first);
    }
  };

  mutable Mutex mutex_;
  CondVar done_, changed_;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  int64_t last_handle_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Submission>> new_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Submission>> cancelled_ ABSL_GUARDED_BY(mutex_);
  // Released ones that are under way, too.
  std::unordered_map<int64_t, std::shared_ptr<Submission>> under_way_
      ABSL_GUARDED_BY(mutex_);
  std::unordered_map<int64_t, std::shared_ptr<Submission>> handles_
      ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::pair<int, std::string>, int64_t, NameHash> names_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace telegrad::operations
