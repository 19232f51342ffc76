#include "trainer/identity.h"

#include <CLI/CLI.hpp>
#include <map>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/environment.h"

namespace telegrad {
namespace {

bool DecidesNothing(const std::string& name) {
  static const std::set<std::string> kNames = {
      // Which runs there are.
      "--compare", "--gc-type", "--seed", "--jobs", "--continue",
      // What is shown and where it lies.
      "--out", "--explain", "--log-json", "--target", "--what-if", "--timeline",
      "--verbose", "--help", "--version",
      // A run that goes on ends with the same bits.
      "--checkpoint", "--checkpoint-every", "--keep", "--resume",
      "--show-checkpoint",
      // Who may join, and how long is waited.
      "--recalibrate", "--join-timeout", "--dead-timeout", "--op-timeout",
      "--job-id", "--secret-file", "--insecure"};
  return kNames.contains(name) || absl::StartsWith(name, "--internal-");
}

// "0.05" and "5e-2" are.
bool AreSame(const std::string& a, const std::string& b) {
  double x = 0, y = 0;
  return a == b ||
         (absl::SimpleAtod(a, &x) && absl::SimpleAtod(b, &y) && x == y);
}

std::string Shown(const std::string& value) {
  return value.empty() ? "not given" : absl::Utf8SafeCEscape(value);
}

}  // namespace

std::vector<FlagValue> IdentityOf(const CLI::App& app) {
  std::vector<FlagValue> identity = {{"telegrad", ProgramVersion(), ""}};
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (DecidesNothing(name)) continue;
    const std::string otherwise = option->get_default_str();
    identity.push_back({.name = name,
                        .value = option->count() > 0
                                     ? absl::StrJoin(option->results(), ",")
                                     : otherwise,
                        .default_value = otherwise});
  }
  return identity;
}

std::vector<EnvironmentFact> SummaryOf(const std::vector<FlagValue>& identity) {
  std::vector<EnvironmentFact> summary;
  for (const FlagValue& flag : identity) {
    if (AreSame(flag.value, flag.default_value)) continue;
    summary.push_back({flag.name, flag.value});
  }
  return summary;
}

std::string DifferenceTo(const std::vector<EnvironmentFact>& there,
                         const std::vector<FlagValue>& here) {
  std::map<std::string, std::string> values;
  for (const EnvironmentFact& fact : there) values[fact.what] = fact.value;
  std::vector<std::string> differences;
  const auto compare = [&](const std::string& name, const std::string& other,
                           const std::string& own) {
    if (AreSame(other, own)) return;
    differences.push_back(absl::StrCat(name, ": ", Shown(other), " there, ",
                                       Shown(own), " here"));
  };
  for (const FlagValue& flag : here) {
    const auto value = values.extract(flag.name);
    compare(flag.name, value.empty() ? flag.default_value : value.mapped(),
            flag.value);
  }
  for (const auto& [name, value] : values) compare(name, value, "");
  return absl::StrJoin(differences, "; ");
}

}  // namespace telegrad
