#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// How many workers a job has that goes on when others die and lets others come.
struct ElasticLimits {
  int min = 0;  // with fewer it ends; 0: a death is its end
  int max = 0;  // 0: as many as it began with
};

// The fact that has a job's limits.
inline constexpr char kElasticFact[] = "--elastic";

// "2" or "2:4".
std::string ElasticText(const ElasticLimits& limits);
// Whether a job that begins with so many workers can have them, or has none;
// `name` says which option they are.
absl::Status CheckElastic(absl::string_view name, const ElasticLimits& limits,
                          int num_workers);
// Reads "MIN" or "MIN:MAX", of any bytes. InvalidArgument says what it takes.
absl::StatusOr<ElasticLimits> ParseElastic(absl::string_view text);

// The gather of all workers in which those that wait come in: it is void then,
// and an epoch begins. Nothing is under way, and a checkpoint has all.
inline constexpr char kLettingIn[] = "newcomers";

}  // namespace telegrad
