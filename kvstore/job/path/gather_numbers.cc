#include "kvstore/job/path/gather_numbers.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

absl::StatusOr<std::vector<double>> ParseNumbers(size_t rank,
                                                 const std::string& text,
                                                 size_t count) {
  const std::vector<std::string> parts = absl::StrSplit(text, ' ');
  std::vector<double> numbers(count);
  bool is_good = parts.size() == count;
  for (size_t i = 0; is_good && i < count; ++i) {
    is_good = absl::SimpleAtod(parts[i], &numbers[i]) &&
              std::isfinite(numbers[i]) && numbers[i] >= 0;
  }
  if (is_good) return numbers;
  return absl::InvalidArgumentError(
      absl::StrCat("worker/", rank, " measured '",
                   absl::Utf8SafeCEscape(text.substr(0, 100)), "'; ", count,
                   " numbers were expected"));
}

// Everybody's numbers, by rank.
absl::StatusOr<std::vector<std::vector<double>>> GatherNumbers(
    WorkerGroup& group, absl::string_view name, std::span<const double> mine) {
  const std::string text =
      absl::StrJoin(mine, " ", [](std::string* out, double number) {
        absl::StrAppendFormat(out, "%.9g", number);
      });
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   group.Gather(name, text));
  if (all.size() != static_cast<size_t>(group.num_workers())) {
    return absl::InvalidArgumentError(absl::StrCat(
        all.size(), " workers answered, not ", group.num_workers()));
  }
  std::vector<std::vector<double>> numbers;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    ASSIGN_OR_RETURN(numbers.emplace_back(),
                     ParseNumbers(rank, all[rank], mine.size()));
  }
  return numbers;
}

}  // namespace

absl::Status GatherSlowest(WorkerGroup& group, absl::string_view name,
                           std::span<const SlowestNumber> numbers) {
  std::vector<double> mine;
  for (const SlowestNumber& number : numbers) mine.push_back(*number.value);
  ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all,
                   GatherNumbers(group, name, mine));
  for (size_t i = 0; i < numbers.size(); ++i) {
    double slowest = all[0][i];
    for (const std::vector<double>& each : all) {
      slowest = numbers[i].is_time ? std::max(slowest, each[i])
                                   : std::min(slowest, each[i]);
    }
    *numbers[i].value = slowest;
  }
  return absl::OkStatus();
}

void AppendNumbers(CodecFigures& codec, std::vector<SlowestNumber>* numbers) {
  numbers->push_back({&codec.call_s.value});
  for (const auto speed : kCodecSpeeds) {
    numbers->push_back({&(codec.*speed).value, /*is_time=*/false});
  }
}

}  // namespace telegrad
