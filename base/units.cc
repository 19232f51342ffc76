#include "base/units.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

struct Suffix {
  const char* text;
  double factor;
};

constexpr Suffix kByteSuffixes[] = {
    {"kib", 1024.0}, {"mib", 1048576.0}, {"gib", 1073741824.0},
    {"kb", 1e3},     {"mb", 1e6},        {"gb", 1e9},
    {"b", 1.0},      {"", 1.0},
};

constexpr Suffix kRateSuffixes[] = {
    {"kbit", 1e3 / 8},
    {"mbit", 1e6 / 8},
    {"gbit", 1e9 / 8},
    {"bit", 1.0 / 8},
};

template <size_t kCount>
absl::StatusOr<double> ParseWithSuffix(absl::string_view text,
                                       const Suffix (&suffixes)[kCount]) {
  const std::string lower = absl::AsciiStrToLower(text);
  for (const Suffix& suffix : suffixes) {
    absl::string_view number = lower;
    if (!absl::EndsWith(number, suffix.text)) continue;
    number.remove_suffix(absl::string_view(suffix.text).size());
    double value = 0;
    if (!absl::SimpleAtod(absl::StripAsciiWhitespace(number), &value) ||
        !std::isfinite(value) || value < 0 || value * suffix.factor > 9e18) {
      break;
    }
    return value * suffix.factor;
  }
  return absl::InvalidArgumentError("no such quantity");
}

}  // namespace

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  absl::StatusOr<double> bytes = ParseWithSuffix(text, kByteSuffixes);
  if (!bytes.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' is not a size; write it like 4096, 64KiB or 1MB"));
  }
  return static_cast<int64_t>(*bytes);
}

absl::StatusOr<double> ParseLinkRate(absl::string_view text) {
  if (text == "none" || text.empty()) return 0.0;
  absl::string_view rate = text;
  if (absl::EndsWithIgnoreCase(rate, "/s")) rate.remove_suffix(2);
  absl::StatusOr<double> value = ParseWithSuffix(rate, kRateSuffixes);
  if (!value.ok() || *value < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' is not a link rate; write it like 1gbit or 100mbit"));
  }
  return *value;
}

std::string FormatBytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000;
    ++unit;
  }
  if (unit == 0) return absl::StrFormat("%.0f B", bytes);
  return absl::StrFormat("%.*f %s", bytes < 10 ? 2 : (bytes < 100 ? 1 : 0),
                         bytes, kUnits[unit]);
}

}  // namespace telegrad
