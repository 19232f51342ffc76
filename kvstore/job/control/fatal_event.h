#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/exit_code.h"

namespace telegrad {

// Why a job ends early; what the fatal line of each process says.
struct FatalEvent {
  ExitCode code = ExitCode::kInternal;
  std::string message = {};            // for humans; names ranks and values
  std::vector<std::string> dead = {};  // "worker/2@host:pid"
  int64_t detect_ms = 0;            // from the last sign of life to the verdict
  std::string details_json = "{}";  // further fields, an object
  // >= 0: not the end, the job goes on without the dead. Who is told joins it
  // again and wants this rank.
  int seat = -1;
  // Who says so; a Job fills these in before on_fatal, the scheduler the epoch.
  std::string self = {};  // "worker/0", "launcher"
  uint64_t epoch = 0;
  int64_t step = 0;
};

// One line, no newline: {"event":"fatal","code":20,"reason":"peer_died",
// "dead":[...],"detect_ms":412,"epoch":1,"step":117,"self":"worker/0",
// "message":...} and the details.
std::string FatalLine(const FatalEvent& event);

// Unavailable with the event's exit code.
absl::Status StatusOf(const FatalEvent& event);
// The seat of the event whose StatusOf this is, if it has one; its epoch, else
// 0.
std::optional<int> SeatOf(const absl::Status& status);
uint64_t EpochOf(const absl::Status& status);

}  // namespace telegrad
