#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// "64KiB", "1MB", "4096": bytes. Decimal and binary suffixes differ.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);

// "1gbit", "100mbit", "2.5Gbit/s", "none": bytes per second; 0 for "none".
absl::StatusOr<double> ParseLinkRate(absl::string_view text);

// "1.72 MB", "107.9 kB": decimal, three significant digits or so.
std::string FormatBytes(double bytes);

}  // namespace telegrad
