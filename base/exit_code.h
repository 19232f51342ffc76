#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// Exit codes of every Telegrad program; part of the public contract
// (docs/user_guide.md). 20-25, 41 and 43 may be retried, 44 on another host,
// the others may not.
enum class ExitCode : int {
  kOk = 0,
  kUsage = 2,
  kWarnings = 3,  // a checking program found something to mind
  kFailures = 4,  // ... something that will fail
  kPeerDied = 20,
  kTimeout = 21,
  kFenced = 22,
  kServerLost = 23,
  kSchedulerLost = 24,
  kJoinTimeout = 25,
  kAuthentication = 30,
  kMismatch = 31,
  kResourceLimit = 32,
  kCancelled = 33,         // somebody ended the job; it did not fail
  kNoCheckpoint = 40,      // none that is whole, to resume from
  kCheckpointFailed = 41,  // several in a row could not be written
  kNumericFault = 42,
  kIntegrity = 43,
  kDeviceFault = 44,  // a GPU or its driver failed
  kInternal = 70,
};

// "peer_died" for kPeerDied and so on: the `reason` of the fatal line.
const char* ExitReason(ExitCode code);

// A status that carries the exit code of a process which ends because of it.
absl::Status WithExitCode(ExitCode code, absl::Status status);

// The code carried by `status`, else one chosen by its kind (InvalidArgument:
// usage, DeadlineExceeded: timeout, DataLoss: integrity, otherwise internal).
ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace telegrad
