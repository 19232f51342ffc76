#include "kvstore/job/control/elastic.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace telegrad {

std::string ElasticText(const ElasticLimits& limits) {
  return limits.max == 0 ? absl::StrCat(limits.min)
                         : absl::StrCat(limits.min, ":", limits.max);
}

absl::Status CheckElastic(absl::string_view name, const ElasticLimits& limits,
                          int num_workers) {
  const auto refuse = [&](const auto&... range) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " of ", num_workers, " workers: it takes ", range...));
  };
  if (limits.min == 0 && limits.max == 0) return absl::OkStatus();
  if (limits.min < 1 || limits.min > num_workers) {
    return refuse("as MIN 1 to ", num_workers, ", not ", limits.min);
  }
  if (limits.max == 0 || limits.max >= num_workers) return absl::OkStatus();
  return refuse("as MAX ", num_workers, " or more, not ", limits.max);
}

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
