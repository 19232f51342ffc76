#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvstore/options.h"

namespace re2 {
class RE2;
}

namespace telegrad {

// Multipliers of rates by patterns of tensors' names; the first that matches
// wins, as with --gc-rule.
struct RateRule {
  std::shared_ptr<const re2::RE2> pattern;  // null: all
  float factor = 1;
};
struct RateRules {
  std::vector<RateRule> lr;
  std::vector<RateRule> wd;
};

// "bias=0;conv.*=0.1", with `flag` for the message. InvalidArgument for what is
// no pattern or no factor.
absl::StatusOr<std::vector<RateRule>> ParseRateRules(absl::string_view flag,
                                                     absl::string_view text);

RateMultipliers RatesOf(const std::string& name, const RateRules& rules);

}  // namespace telegrad
