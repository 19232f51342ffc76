#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"

namespace telegrad::fault {

enum class Fault : uint8_t {
  kDrop,
  kDelay,
  kDuplicate,
  kReorder,
  kFlip,
  kKill
};
constexpr size_t kNumFaults = 6;
constexpr std::array<const char*, kNumFaults> kFaultNames = {
    "drop", "delay", "duplicate", "reorder", "flip", "kill"};

struct Spec {
  std::array<double, kNumFaults> rates = {};  // shares of messages, in [0, 1]
  uint64_t seed = 0;
  Duration delay = std::chrono::milliseconds(5);

  double rate(Fault fault) const { return rates[static_cast<size_t>(fault)]; }
};

// "drop=0.01,flip=0.001,seed=7,delay_ms=20": entries in any order, each at most
// once. Errors: InvalidArgument names the entry and what is allowed.
absl::StatusOr<Spec> ParseSpec(absl::string_view text);

// What happens to one message. At most one of kDrop, kDuplicate and kReorder.
struct Fate {
  std::array<bool, kNumFaults> is_struck = {};
  uint64_t bit = 0;  // the one to flip, modulo the message's bits

  bool has(Fault fault) const { return is_struck[static_cast<size_t>(fault)]; }
};

// A pure function of its arguments. `link`: of the context; `index`: of the
// message on its link, from 0.
Fate DrawFate(const Spec& spec, uint64_t link, uint64_t index);

// "drop=0.01,...,seed=7": ParseSpec's inverse; only rates above 0.
std::string FormatSpec(const Spec& spec);

}  // namespace telegrad::fault
