#include "python/c/status.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exit_code.h"
#include "base/log.h"

#ifndef TELEGRAD_VERSION
#error "CMake gives the version"
#endif

namespace telegrad::c {
namespace {

struct CodeName {
  absl::StatusCode from;
  telegrad_code to;
};

constexpr CodeName kCodes[] = {
    {absl::StatusCode::kOk, TELEGRAD_OK},
    {absl::StatusCode::kInvalidArgument, TELEGRAD_INVALID_ARGUMENT},
    {absl::StatusCode::kOutOfRange, TELEGRAD_INVALID_ARGUMENT},
    {absl::StatusCode::kNotFound, TELEGRAD_NOT_FOUND},
    {absl::StatusCode::kAlreadyExists, TELEGRAD_FAILED_PRECONDITION},
    {absl::StatusCode::kFailedPrecondition, TELEGRAD_FAILED_PRECONDITION},
    {absl::StatusCode::kUnimplemented, TELEGRAD_UNIMPLEMENTED},
    {absl::StatusCode::kUnavailable, TELEGRAD_UNAVAILABLE},
    {absl::StatusCode::kDeadlineExceeded, TELEGRAD_DEADLINE_EXCEEDED},
    {absl::StatusCode::kCancelled, TELEGRAD_CANCELLED},
    {absl::StatusCode::kDataLoss, TELEGRAD_DATA_LOSS},
    {absl::StatusCode::kResourceExhausted, TELEGRAD_RESOURCE_EXHAUSTED},
    {absl::StatusCode::kUnauthenticated, TELEGRAD_UNAUTHENTICATED},
};

template <size_t kSize>
void CopyText(absl::string_view text, char (&to)[kSize]) {
  const size_t size = std::min(text.size(), kSize - 1);
  if (size > 0) std::memcpy(to, text.data(), size);  // else data may be null
  to[size] = '\0';
}

int32_t CodeOf(const absl::Status& status) {
  for (const CodeName& code : kCodes) {
    if (code.from == status.code()) return code.to;
  }
  return TELEGRAD_INTERNAL;
}

}  // namespace

void Verdict::Set(const FatalEvent& event) {
  {
    MutexLock lock(&mutex_);
    if (event_.has_value() && event_->seat < 0) return;
    event_ = event;
  }
  changed_.NotifyAll();
}

void Verdict::Forget(uint64_t epoch) {
  MutexLock lock(&mutex_);
  if (event_.has_value() && event_->seat >= 0 && event_->epoch < epoch) {
    event_.reset();
  }
}

std::optional<FatalEvent> Verdict::Get() const {
  MutexLock lock(&mutex_);
  return event_;
}

std::optional<FatalEvent> Verdict::Await(TimePoint deadline) const {
  MutexLock lock(&mutex_);
  while (!event_.has_value() && Clock::now() < deadline) {
    changed_.WaitUntil(&mutex_, deadline);
  }
  return event_;
}

int32_t Give(const absl::Status& status, telegrad_status* out) {
  const int32_t code = CodeOf(status);
  if (out == nullptr) return code;
  out->code = code;
  out->exit_code = static_cast<int32_t>(ExitCodeOf(status));
  out->dead[0] = '\0';
  CopyText(status.message(), out->message);
  return code;
}

int32_t Give(const absl::Status& status, const Verdict* verdict,
             telegrad_status* out) {
  if (status.ok() || verdict == nullptr) return Give(status, out);
  std::optional<FatalEvent> event = verdict->Get();
  if (!event.has_value() && status.code() == absl::StatusCode::kUnavailable) {
    event = verdict->Await(Clock::now() + kVerdictDelay);
  }
  // What the caller did wrong, and what it cancelled, is its own.
  const bool is_own = status.code() == absl::StatusCode::kInvalidArgument ||
                      status.code() == absl::StatusCode::kUnimplemented;
  if (!event.has_value() || is_own) return Give(status, out);
  int32_t code = Give(
      WithExitCode(event->code, absl::UnavailableError(event->message)), out);
  if (event->seat >= 0) code = TELEGRAD_EPOCH_ENDED;
  if (out == nullptr) return code;
  out->code = code;
  CopyText(absl::StrJoin(event->dead, "\n"), out->dead);
  return code;
}

int32_t GiveText(const std::string& text, char* to, uint64_t to_bytes,
                 uint64_t* needed, telegrad_status* out) {
  const uint64_t size = text.size() + 1;
  if (needed != nullptr) *needed = size;
  if (to == nullptr || to_bytes < size) {
    const int32_t code =
        Give(absl::ResourceExhaustedError(absl::StrCat(
                 "the text has ", size, " bytes, the buffer has ", to_bytes)),
             out);
    if (out != nullptr) out->code = TELEGRAD_TOO_SMALL;
    return code == TELEGRAD_OK ? code : TELEGRAD_TOO_SMALL;
  }
  std::memcpy(to, text.c_str(), size);
  return Give(absl::OkStatus(), out);
}

absl::Status Owner::Check() const {
  if (is_here()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "this handle belongs to process ", pid_, ", of which this process, ",
      getpid(), ", was forked; only that one can use it"));
}

}  // namespace telegrad::c

extern "C" {

const char* telegrad_version(void) { return TELEGRAD_VERSION; }

int32_t telegrad_abi(void) { return TELEGRAD_ABI; }

void telegrad_set_log_level(int32_t level) {
  telegrad::SetLogThreshold(level <= 0   ? telegrad::Severity::kInfo
                            : level == 1 ? telegrad::Severity::kWarning
                                         : telegrad::Severity::kError);
}

}  // extern "C"
