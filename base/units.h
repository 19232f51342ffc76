#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// "64KiB", "1MB", "4096": bytes. Decimal and binary suffixes differ.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);

// A link that is emulated; 0: not that part of it.
struct LinkSpec {
  double bytes_per_s = 0;
  double latency_s = 0;
};
constexpr double kMaxLinkLatencyS = 1;

// A rate, a latency, or both: "1gbit", "2.5Gbit/s", "5ms", "1gbit,200us",
// "none,5ms", "none".
absl::StatusOr<LinkSpec> ParseLink(absl::string_view text);

// "1.72 MB", "107.9 kB": decimal, three significant digits or so.
std::string FormatBytes(double bytes);

// "13.7 s", "1.37 ms", "15 us": three significant digits at most.
std::string FormatSeconds(double seconds);

}  // namespace telegrad
