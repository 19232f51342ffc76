#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "kvstore/job/control/fatal_event.h"
#include "python/telegrad.h"

// What all parts of the C interface share.
namespace telegrad::c {

// Heartbeats aside, the scheduler sees a death within a second or so.
inline constexpr Duration kVerdictDelay = std::chrono::milliseconds(1500);

// Why a job has failed, as its scheduler says. Thread-safe.
class Verdict {
 public:
  void Set(const FatalEvent& event);
  std::optional<FatalEvent> Get() const;
  // Operations may know of a failure before the scheduler has judged it; who
  // died is known then.
  std::optional<FatalEvent> Await(TimePoint deadline) const;
  // The job goes on in that epoch; what ended earlier ones is over.
  void Forget(uint64_t epoch);

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::optional<FatalEvent> event_ ABSL_GUARDED_BY(mutex_);
};

// When `timeout_s` is over, at most a year: a clock does not count to infinity.
inline TimePoint After(double timeout_s) {
  constexpr double kYearS = 365 * 86400.0;
  return Clock::now() +
         FromSeconds(timeout_s > 0 ? std::min(timeout_s, kYearS) : 0);
}

// Fills `out`, which may be null, and gives its code.
int32_t Give(const absl::Status& status, telegrad_status* out);
// With what the job's scheduler says where that is why.
int32_t Give(const absl::Status& status, const Verdict* verdict,
             telegrad_status* out);
int32_t GiveText(const std::string& text, char* to, uint64_t to_bytes,
                 uint64_t* needed, telegrad_status* out);

// The process that made a handle; a child that was forked has its threads not.
class Owner {
 public:
  bool is_here() const { return pid_ == getpid(); }
  absl::Status Check() const;

 private:
  const pid_t pid_ = getpid();
};

// What a caller with an older header knows of `given`, over what is set in
// `standard`; both begin with their size, without which nothing is known.
template <typename T>
absl::Status TakeKnown(const T* given, T* standard) {
  if (given == nullptr) return absl::OkStatus();
  const uint32_t size = standard->size;
  if (given->size < sizeof(uint32_t)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a struct of size ", given->size, ": its _init function sets that"));
  }
  std::copy_n(reinterpret_cast<const char*>(given), std::min(given->size, size),
              reinterpret_cast<char*>(standard));
  standard->size = size;
  return absl::OkStatus();
}

// `standard` for a caller that knows `size` bytes of it.
template <typename T>
void SetKnown(T standard, uint64_t size, T* to) {
  standard.size =
      static_cast<uint32_t>(std::min<uint64_t>(size, sizeof(standard)));
  std::copy_n(reinterpret_cast<const char*>(&standard), standard.size,
              reinterpret_cast<char*>(to));
}

inline std::string TextOf(const char* text, const char* standard) {
  return text == nullptr ? standard : text;
}

}  // namespace telegrad::c
