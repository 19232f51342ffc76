#include "trainer/flags/identity.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "trainer/report/run_facts.h"

namespace telegrad {
namespace {

using enum FlagGroup;

// tests/system/alike_test.py compares it with the flags of --help.
constexpr std::pair<FlagGroup, const char*> kGroups[] = {
    {kRuns,
     "--checkpoint --checkpoint-every --compare --elastic --gc-type "
     "--reshard-residuals --resume --seed"},
    {kResults,
     "--adam-freeze-after --all-reduce-spec --batch-size --benchmark "
     "--beta1 --beta2 --bn-stats --chunk-elems --clip-norm --data "
     "--devices --drop-slowest --dtype --emulate-workers --epsilon --gc-allow "
     "--gc-dense-1d --gc-guard --gc-min-bytes --gc-momentum "
     "--gc-nonfinite --gc-normalize --gc-packing "
     "--gc-reply --gc-rule --gc-threshold --gc-warmup-steps "
     "--grad-accumulation --image-shape --kv-store --label-smoothing "
     "--local-fragments --local-parameter-device --local-steps "
     "--loss-scale --max-staleness --mom --network --num-batches "
     "--num-classes --num-examples --num-layers --optimizer --outer-mom "
     "--pad-size --random-crop --random-mirror --tf32 --tier1 --update-on "
     "--variable-update --wd --wd-1d --wd-mult --work-load-list"},
    {kSteps,
     "--eval-every --lr --lr-factor --lr-mult --lr-scaling --lr-schedule "
     "--lr-step-epochs --num-epochs --outer-lr --servers --warmup-epochs "
     "--workers --workers-serve"},
    {kPath,
     "--connections --encryption --gdr --link --plan --rails --resend "
     "--tls --transport"},
    {kTimes,
     "--bind --disp-batches --early-step --gpus --scheduler "
     "--tcp-congestion --threads"},
    {kProcess,
     "--continue --dead-timeout --help --insecure --job-id --jobs "
     "--join-timeout --op-timeout --recalibrate --secret-file --version"},
    {kShown,
     "--explain --flight-recorder --keep --ledger --log-json --metrics-file "
     "--metrics-port --out "
     "--show-checkpoint --target --tensorboard "
     "--timeline --verbose --what-if"}};

FlagValue ValueOf(const CLI::Option& option) {
  const std::string otherwise = option.get_default_str();
  return {.name = option.get_name(),
          .value = option.count() > 0 ? absl::StrJoin(option.results(), ",")
                                      : otherwise,
          .default_value = otherwise};
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

FlagGroup GroupOf(const std::string& name) {
  if (name.empty()) return kProcess;  // hidden: between our own processes
  for (const auto& [group, names] : kGroups) {
    for (const absl::string_view each : absl::StrSplit(names, ' ')) {
      if (each == name) return group;
    }
  }
  return kResults;
}

std::vector<FlagValue> IdentityOf(const CLI::App& app) {
  std::vector<FlagValue> identity = {{"telegrad", ProgramVersion(), ""}};
  for (const CLI::Option* option : app.get_options()) {
    const FlagGroup group = GroupOf(option->get_name());
    if (group == kRuns || group == kProcess || group == kShown) continue;
    identity.push_back(ValueOf(*option));
  }
  return identity;
}

Facts FactsOf(const CLI::App& app) {
  Facts facts;
  for (const CLI::Option* option : app.get_options()) {
    const FlagValue flag = ValueOf(*option);
    const FlagGroup group = GroupOf(flag.name);
    if (group != kRuns && group != kResults && group != kSteps) continue;
    // A launcher decides how many there are unless the flag does.
    const bool is_number = flag.name == "--servers" || flag.name == "--workers";
    std::string value = is_number && option->count() == 0 ? "" : flag.value;
    if (flag.name == "--data" && !absl::StartsWith(value, "digits")) {
      value = value.substr(0, value.find(':'));
    }
    uint64_t whole = 0;  // all digits of a seed count
    double number = 0;   // "5e-2" is 0.05
    if (!absl::SimpleAtoi(value, &whole) && absl::SimpleAtod(value, &number)) {
      value = absl::StrFormat("%.9g", number);
    }
    facts.emplace_back(flag.name, absl::Utf8SafeCEscape(value));
  }
  return facts;
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
