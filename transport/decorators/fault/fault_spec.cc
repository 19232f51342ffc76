#include "transport/decorators/fault/fault_spec.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace telegrad::fault {
namespace {

constexpr double kMaxDelayMs = 60'000;

absl::Status Malformed(absl::string_view entry, absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("fault: \"", entry, "\": ", allowed));
}

absl::Status ParseRate(absl::string_view entry, absl::string_view value,
                       double* rate) {
  // The negation refuses NaN, too.
  if (!absl::SimpleAtod(value, rate) || !(*rate >= 0 && *rate <= 1)) {
    return Malformed(entry, "a rate is a number in [0, 1]");
  }
  return absl::OkStatus();
}

absl::Status ParseEntry(absl::string_view entry, Spec* spec,
                        std::set<std::string>* seen) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(entry, absl::MaxSplits('=', 1));
  const auto& [name, value] = parts;
  if (!seen->insert(std::string(name)).second) {
    return Malformed(entry, "given twice");
  }
  if (name == "seed") {
    if (absl::SimpleAtoi(value, &spec->seed)) return absl::OkStatus();
    return Malformed(entry, "a seed is an unsigned 64-bit integer");
  }
  if (name == "delay_ms") {
    double ms = 0;
    if (!absl::SimpleAtod(value, &ms) || !(ms >= 0 && ms <= kMaxDelayMs)) {
      return Malformed(entry, "milliseconds are a number in [0, 60000]");
    }
    spec->delay = FromSeconds(ms / 1000);
    return absl::OkStatus();
  }
  const auto* known = std::find(kFaultNames.begin(), kFaultNames.end(), name);
  if (known == kFaultNames.end()) {
    return Malformed(entry,
                     "known are drop, delay, duplicate, reorder, flip and kill "
                     "(rates), seed and delay_ms, each as name=value");
  }
  const auto index = static_cast<size_t>(known - kFaultNames.begin());
  return ParseRate(entry, value, &spec->rates[index]);
}

}  // namespace

absl::StatusOr<Spec> ParseSpec(absl::string_view text) {
  Spec spec;
  std::set<std::string> seen;
  for (absl::string_view entry : absl::StrSplit(text, ',')) {
    RETURN_IF_ERROR(ParseEntry(entry, &spec, &seen));
  }
  return spec;
}

Fate DrawFate(const Spec& spec, uint64_t link, uint64_t index) {
  Random random(spec.seed, link << 40 ^ index);
  Fate fate;
  for (size_t i = 0; i < kNumFaults; ++i) {
    // Each fault has a draw of its own, so that one rate does not move the
    // other faults. The grid of 2^-24 is below 1, so a rate of 1 always hits.
    fate.is_struck[i] =
        static_cast<double>(random.NextUniform()) < spec.rates[i];
  }
  fate.bit = random.NextU64();
  bool is_taken = false;  // a message has one of these three fates
  for (Fault fault : {Fault::kDrop, Fault::kDuplicate, Fault::kReorder}) {
    bool& is_struck = fate.is_struck[static_cast<size_t>(fault)];
    is_struck = is_struck && !is_taken;
    is_taken |= is_struck;
  }
  return fate;
}

std::string FormatSpec(const Spec& spec) {
  std::string text;
  for (size_t i = 0; i < kNumFaults; ++i) {
    if (spec.rates[i] == 0) continue;
    absl::StrAppend(&text, kFaultNames[i], "=", spec.rates[i], ",");
  }
  const auto us =
      std::chrono::duration_cast<std::chrono::microseconds>(spec.delay);
  absl::StrAppend(&text, "seed=", spec.seed,
                  ",delay_ms=", static_cast<double>(us.count()) / 1000);
  return text;
}

}  // namespace telegrad::fault
