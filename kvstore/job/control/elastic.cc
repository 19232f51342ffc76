#include "kvstore/job/control/elastic.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace telegrad {

absl::StatusOr<ElasticLimits> ParseElastic(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  const bool has_max = parts.first.size() < text.size();
  constexpr int kMost = 65535;  // ranks are u16 in frame headers
  ElasticLimits limits;
  const bool is_right =
      absl::SimpleAtoi(parts.first, &limits.min) && limits.min >= 1 &&
      limits.min <= kMost &&
      (!has_max || (absl::SimpleAtoi(parts.second, &limits.max) &&
                    limits.max >= limits.min && limits.max <= kMost));
  if (is_right) return limits;
  return absl::InvalidArgumentError(
      absl::StrCat("it takes MIN or MIN:MAX, numbers of workers from 1 to ",
                   kMost, ", such as 2 or 2:4"));
}

}  // namespace telegrad
