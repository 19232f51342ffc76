#include "base/exit_code.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace telegrad {
namespace {

constexpr char kPayloadUrl[] = "telegrad/exit_code";

}  // namespace

const char* ExitReason(ExitCode code) {
  if (static_cast<int>(code) > 128) return "cancelled";  // by a signal
  switch (code) {
    case ExitCode::kOk:
      return "ok";
    case ExitCode::kUsage:
      return "usage";
    case ExitCode::kWarnings:
      return "warnings";
    case ExitCode::kFailures:
      return "failures";
    case ExitCode::kPeerDied:
      return "peer_died";
    case ExitCode::kTimeout:
      return "operation_timeout";
    case ExitCode::kFenced:
      return "fenced";
    case ExitCode::kServerLost:
      return "server_lost";
    case ExitCode::kSchedulerLost:
      return "scheduler_lost";
    case ExitCode::kJoinTimeout:
      return "join_timeout";
    case ExitCode::kAuthentication:
      return "authentication";
    case ExitCode::kMismatch:
      return "mismatch";
    case ExitCode::kResourceLimit:
      return "resource_limit";
    case ExitCode::kCancelled:
      return "cancelled";
    case ExitCode::kNoCheckpoint:
      return "no_checkpoint";
    case ExitCode::kCheckpointFailed:
      return "checkpoint_failed";
    case ExitCode::kNumericFault:
      return "numeric_fault";
    case ExitCode::kIntegrity:
      return "integrity";
    case ExitCode::kDeviceFault:
      return "device_fault";
    case ExitCode::kInternal:
      return "internal";
  }
  return "unknown";
}

absl::Status WithExitCode(ExitCode code, absl::Status status) {
  if (!status.ok()) {
    status.SetPayload(kPayloadUrl,
                      absl::Cord(absl::StrCat(static_cast<int>(code))));
  }
  return status;
}

ExitCode ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return ExitCode::kOk;
  int code = 0;
  if (const auto payload = status.GetPayload(kPayloadUrl);
      payload && absl::SimpleAtoi(std::string(*payload), &code)) {
    return static_cast<ExitCode>(code);
  }
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return ExitCode::kUsage;
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kTimeout;
    case absl::StatusCode::kDataLoss:
      return ExitCode::kIntegrity;
    case absl::StatusCode::kResourceExhausted:
      return ExitCode::kResourceLimit;
    case absl::StatusCode::kUnauthenticated:
      return ExitCode::kAuthentication;
    default:
      return ExitCode::kInternal;
  }
}

}  // namespace telegrad
