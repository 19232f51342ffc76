#include "trainer/flags/rate_rules.h"

#include <re2/re2.h>

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace telegrad {
namespace {

float FactorOf(const std::string& name, const std::vector<RateRule>& rules) {
  for (const RateRule& rule : rules) {
    if (rule.pattern == nullptr || RE2::PartialMatch(name, *rule.pattern)) {
      return rule.factor;
    }
  }
  return 1;
}

}  // namespace

absl::StatusOr<std::vector<RateRule>> ParseRateRules(absl::string_view flag,
                                                     absl::string_view text) {
  std::vector<RateRule> rules;
  for (absl::string_view part : absl::StrSplit(text, ';')) {
    part = absl::StripAsciiWhitespace(part);
    if (part.empty()) continue;
    const size_t at = part.rfind('=');
    RateRule rule;
    const bool has_factor =
        at != absl::string_view::npos && at > 0 &&
        absl::SimpleAtof(part.substr(at + 1), &rule.factor) &&
        std::isfinite(rule.factor) && rule.factor >= 0;
    if (!has_factor) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, ": '", part,
                       "' is not PATTERN=FACTOR with a factor of 0 or more"));
    }
    const std::string pattern(part.substr(0, at));
    if (pattern != "*") {
      rule.pattern = std::make_shared<const RE2>(pattern, RE2::Quiet);
      if (!rule.pattern->ok()) {
        return absl::InvalidArgumentError(absl::StrCat(
            flag, ": pattern '", pattern, "': ", rule.pattern->error()));
      }
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

RateMultipliers RatesOf(const std::string& name, const RateRules& rules) {
  return {.lr = FactorOf(name, rules.lr), .wd = FactorOf(name, rules.wd)};
}

}  // namespace telegrad
