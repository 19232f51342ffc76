#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace telegrad {

// Text for a reader that may be slow, stopped or a pager: what it does not take
// at once waits here, and nobody waits for it. Thread-safe.
class Output {
 public:
  explicit Output(int fd) : fd_(fd) {}
  // Once more than 1 MiB waits, further texts are left out. One that is gone
  // takes all.
  void Write(absl::string_view text);
  // Whether nothing waits any more; tries for so long.
  bool Flush(Duration patience = Duration::zero());
  // Whether a line that can be done without had better be.
  bool is_behind() const;
  int fd() const { return fd_; }

 private:
  bool WriteWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const int fd_;
  mutable Mutex mutex_;
  std::string waiting_ ABSL_GUARDED_BY(mutex_);
  size_t num_written_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes of it
};

// For last words: what `fd` takes of them within that time.
void WriteWithin(int fd, absl::string_view text, Duration patience);

}  // namespace telegrad
