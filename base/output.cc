#include "base/output.h"

#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace telegrad {
namespace {

constexpr size_t kMostWaitingBytes = size_t{1} << 20;
// A pipe holds 64 KiB, whose rest is left for what has to be said.
constexpr int kBehindBytes = 40 * 1024;

bool TakesMore(int fd, Duration patience) {
  pollfd polled{.fd = fd, .events = POLLOUT, .revents = 0};
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
  return poll(&polled, 1, static_cast<int>(std::clamp<int64_t>(ms, 0, 100))) >
         0;
}

}  // namespace

void Output::Write(absl::string_view text) {
  MutexLock lock(&mutex_);
  if (waiting_.size() - num_written_ > kMostWaitingBytes) return;
  waiting_.append(text.data(), text.size());
  WriteWaiting();
}

// A pipe that takes anything takes PIPE_BUF bytes, without blocking.
bool Output::WriteWaiting() {
  while (num_written_ < waiting_.size()) {
    if (!TakesMore(fd_, Duration::zero())) return false;
    const size_t size =
        std::min<size_t>(waiting_.size() - num_written_, PIPE_BUF);
    const ssize_t count = write(fd_, waiting_.data() + num_written_, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return false;
    if (count <= 0) break;
    num_written_ += static_cast<size_t>(count);
  }
  waiting_.clear();
  num_written_ = 0;
  return true;
}

bool Output::Flush(Duration patience) {
  const TimePoint deadline = Clock::now() + patience;
  for (;;) {
    {
      MutexLock lock(&mutex_);
      if (WriteWaiting()) return true;
    }
    const TimePoint now = Clock::now();
    if (now >= deadline) return false;
    TakesMore(fd_, deadline - now);
  }
}

bool Output::is_behind() const {
  MutexLock lock(&mutex_);
  int unread = 0;
  return !waiting_.empty() ||
         (ioctl(fd_, FIONREAD, &unread) == 0 && unread > kBehindBytes);
}

void WriteWithin(int fd, absl::string_view text, Duration patience) {
  Output output(fd);
  output.Write(text);
  output.Flush(patience);
}

}  // namespace telegrad
