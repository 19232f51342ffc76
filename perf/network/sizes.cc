#include "perf/network/sizes.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace telegrad::perf {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 40;
constexpr size_t kMaxSizes = 1000;

absl::StatusOr<size_t> ParseSize(absl::string_view text) {
  absl::string_view digits = absl::StripAsciiWhitespace(text);
  int shift = 0;
  if (absl::ConsumeSuffix(&digits, "K") || absl::ConsumeSuffix(&digits, "k")) {
    shift = 10;
  } else if (absl::ConsumeSuffix(&digits, "M")) {
    shift = 20;
  } else if (absl::ConsumeSuffix(&digits, "G")) {
    shift = 30;
  }
  uint64_t value = 0;
  if (!absl::SimpleAtoi(digits, &value) || value > (kMaxBytes >> shift)) {
    return absl::InvalidArgumentError(
        absl::StrCat("size \"", text, "\" is not a number of bytes up to ",
                     kMaxBytes, " with K, M or G"));
  }
  return static_cast<size_t>(value << shift);
}

absl::StatusOr<std::vector<size_t>> Sweep(absl::string_view first,
                                          absl::string_view last,
                                          absl::string_view step) {
  ASSIGN_OR_RETURN(size_t size, ParseSize(first));
  ASSIGN_OR_RETURN(const size_t end, ParseSize(last));
  const bool multiplies = absl::ConsumePrefix(&step, "x");
  if (!multiplies && !absl::ConsumePrefix(&step, "+")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "step \"", step, "\" of a sweep is neither xFACTOR nor +BYTES"));
  }
  ASSIGN_OR_RETURN(const size_t amount, ParseSize(step));
  if (size > end || amount < (multiplies ? 2 : 1) ||
      (multiplies && size == 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("sweep ", first, ":", last, ":", multiplies ? "x" : "+",
                     step, " does not go from a size up to a larger one"));
  }
  std::vector<size_t> sizes;
  for (; size <= end && sizes.size() <= kMaxSizes;
       size = multiplies ? size * amount : size + amount) {
    sizes.push_back(size);
  }
  return sizes;
}

}  // namespace

absl::StatusOr<std::vector<size_t>> ParseSizes(absl::string_view text) {
  std::vector<size_t> sizes;
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() == 2 || parts.size() == 3) {
    ASSIGN_OR_RETURN(
        sizes, Sweep(parts[0], parts[1], parts.size() == 3 ? parts[2] : "x2"));
  } else {
    for (const std::string& part :
         std::vector<std::string>(absl::StrSplit(text, ','))) {
      ASSIGN_OR_RETURN(const size_t size, ParseSize(part));
      sizes.push_back(size);
    }
  }
  if (sizes.size() > kMaxSizes) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" has more than ", kMaxSizes, " sizes"));
  }
  return sizes;
}

std::string FormatSize(size_t bytes) {
  const char* const units[] = {"", "K", "M", "G"};
  int unit = 0;
  for (; unit < 3 && bytes >= 1024 && bytes % 1024 == 0; ++unit) bytes /= 1024;
  return absl::StrCat(bytes, units[unit]);
}

}  // namespace telegrad::perf
