#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/exit_code.h"
#include "topology/machine.h"

namespace telegrad {

// kUnknown: the machine does not show it (for want of rights, or of a probe).
enum class Level : uint8_t { kOk, kInfo, kUnknown, kWarn, kFail };

// What one check says: "[WARN] T04 mixed-link-layer: SENTENCE (EVIDENCE)", then
// a hint whose commands can be pasted.
struct Finding {
  std::string id;    // "T04"
  std::string name;  // "mixed-link-layer"
  Level severity = Level::kOk;
  std::string sentence = {};
  std::string evidence = {};
  std::string hint = {};
  std::string host = {};  // empty: of all hosts
  bool operator==(const Finding&) const = default;
};

// Speeds that T28 judges; measured, never assumed.
struct CodecSpeed {
  std::string codec;
  double encode_gbytes_per_s = 0;  // raw gradient bytes
  double decode_gbytes_per_s = 0;
  double break_even_gbps = 0;  // links slower than this gain
  double link_gbps = 0;        // 0: unknown
};

struct DoctorOptions {
  uint64_t registered_bytes = uint64_t{1} << 30;  // bytes that a job will pin
  int priority = 3;                               // our traffic class: DSCP 26
  int processes = 2;  // workers and servers on this machine
  std::optional<CodecSpeed> codec = {};
};

// Runs the checks of one machine (T01 to T31 without those that compare).
// Source of the checks: threads of NCCL, UCX, Horovod, BytePS and others, named
// in docs/doctor.md.
std::vector<Finding> Examine(const Machine& machine,
                             const DoctorOptions& options);

// Runs the checks that compare machines of one job: T07, T08, T13, T19, T20.
std::vector<Finding> Compare(std::span<const Machine> machines);

// kOk, kWarnings or kFailures, by the worst finding.
ExitCode ExitCodeOf(std::span<const Finding> findings);

std::string ToText(std::span<const Finding> findings);
// {"findings": [{"id", "name", "severity", "host", "sentence", "evidence",
// "hint"}], "failures", "warnings", "exit_code"}
std::string ToJson(std::span<const Finding> findings);
const char* Name(Level severity);  // "OK", "INFO", "UNKNOWN", "WARN", "FAIL"

}  // namespace telegrad
