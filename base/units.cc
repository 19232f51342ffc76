#include "base/units.h"

#include <cmath>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
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

constexpr Suffix kTimeSuffixes[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1.0}};

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

absl::StatusOr<double> ParseLinkRate(absl::string_view text) {
  if (text == "none") return 0.0;
  if (absl::EndsWithIgnoreCase(text, "/s")) text.remove_suffix(2);
  ASSIGN_OR_RETURN(const double rate, ParseWithSuffix(text, kRateSuffixes));
  if (rate < 1) return absl::InvalidArgumentError("no link is so slow");
  return rate;
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

absl::StatusOr<LinkSpec> ParseLink(absl::string_view text) {
  if (text.empty()) return LinkSpec();
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  const auto latency = ParseWithSuffix(parts.back(), kTimeSuffixes);
  const bool is_latency_alone = parts.size() == 1 && latency.ok();
  const auto rate = is_latency_alone ? absl::StatusOr<double>(0.0)
                                     : ParseLinkRate(parts.front());
  const bool is_short =
      parts.size() == 1 || (parts.size() == 2 && latency.ok());
  if (!rate.ok() || !is_short) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text,
                     "' is not a link; write a rate, a latency or "
                     "both: 1gbit, 5ms, 100mbit,200us, none"));
  }
  const LinkSpec link = {*rate, latency.value_or(0)};
  if (link.latency_s > kMaxLinkLatencyS) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "': the latency of a link is at most ",
                     kMaxLinkLatencyS, " s"));
  }
  return link;
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

std::string FormatSeconds(double seconds) {
  // What would be rounded to 1000 of a unit is 1 of the next.
  if (seconds >= 999.5) return absl::StrFormat("%.0f s", seconds);
  if (seconds >= 0.9995) return absl::StrFormat("%.3g s", seconds);
  if (seconds >= 0.9995e-3) return absl::StrFormat("%.3g ms", seconds * 1e3);
  return absl::StrFormat("%.3g us", seconds * 1e6);
}

}  // namespace telegrad
