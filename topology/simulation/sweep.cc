#include <cmath>
#include <functional>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "topology/simulate.h"

namespace telegrad {
namespace {

constexpr size_t kMaxPoints = 10'000;

// Sets a field; false where it needs a whole number and this is none.
using Setter = std::function<bool(double, Scenario*)>;

Setter Whole(int Scenario::*field) {
  return [field](double value, Scenario* scenario) {
    scenario->*field = static_cast<int>(value);
    return scenario->*field == value;
  };
}

Setter Real(double Scenario::*field) {
  return [field](double value, Scenario* scenario) {
    scenario->*field = value;
    return true;
  };
}

bool SetBatch(double value, Scenario* scenario) {
  scenario->batch = value;
  if (scenario->images_per_s > 0) {
    scenario->compute_s = value / scenario->images_per_s;
  }
  return true;
}

bool SetComputeMs(double value, Scenario* scenario) {
  scenario->compute_s = value / 1e3;
  scenario->images_per_s = 0;
  return true;
}

const std::map<std::string, Setter>& NumericFields() {
  static const auto* const fields = new std::map<std::string, Setter>{
      {"workers", Whole(&Scenario::workers)},
      {"servers", Whole(&Scenario::servers)},
      {"gpus-per-node", Whole(&Scenario::gpus_per_node)},
      {"batch", SetBatch},
      {"link-gbps", Real(&Scenario::link_gbps)},
      {"cores", Real(&Scenario::cores)},
      {"compute-ms", SetComputeMs},
  };
  return *fields;
}

absl::Status Bad(absl::string_view axis, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("sweep '", axis, "': ", why,
                   "; write it like workers=1:1024:x2 or codec=none|2bit"));
}

bool ParseNumber(absl::string_view text, double* value) {
  return absl::SimpleAtod(text, value) && std::isfinite(*value);
}

// FIRST:LAST:xFACTOR or FIRST:LAST:+STEP; LAST counts when it is met.
absl::StatusOr<std::vector<std::string>> ParseRange(absl::string_view axis,
                                                    absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  double first = 0;
  double last = 0;
  double step = 0;
  if (parts.size() != 3 || parts[2].empty() || !ParseNumber(parts[0], &first) ||
      !ParseNumber(parts[1], &last) ||
      !ParseNumber(parts[2].substr(1), &step)) {
    return Bad(axis, "not FIRST:LAST:xFACTOR or FIRST:LAST:+STEP");
  }
  const bool grows = parts[2][0] == 'x';
  if (!(grows ? step > 1 && first > 0 : parts[2][0] == '+' && step > 0)) {
    return Bad(axis, "does not grow");
  }
  std::vector<std::string> values;
  const double end = last + 1e-9 * std::abs(last);
  for (double value = first; value <= end;
       value = grows ? value * step : value + step) {
    if (values.size() == kMaxPoints) return Bad(axis, "too many values");
    values.push_back(absl::StrFormat("%.9g", value));
  }
  if (values.empty()) return Bad(axis, "no values");
  return values;
}

struct Axis {
  std::string field = {};
  std::vector<std::string> values = {};
};

absl::StatusOr<std::vector<Axis>> ParseAxes(absl::string_view sweep) {
  std::vector<Axis> axes;
  double points = 1;
  for (const absl::string_view text : absl::StrSplit(sweep, ',')) {
    const std::vector<std::string> parts =
        absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (parts.size() != 2 || parts[1].empty()) return Bad(text, "no values");
    Axis axis{.field = parts[0]};
    const bool is_range = NumericFields().count(parts[0]) > 0 &&
                          parts[1].find(':') != std::string::npos;
    if (is_range) {
      ASSIGN_OR_RETURN(axis.values, ParseRange(text, parts[1]));
    } else {
      axis.values = absl::StrSplit(parts[1], '|');
    }
    points *= static_cast<double>(axis.values.size());
    axes.push_back(std::move(axis));
  }
  if (points > kMaxPoints) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the sweep has ", points, " combinations; at most ", kMaxPoints));
  }
  return axes;
}

}  // namespace

absl::Status SetField(absl::string_view name, absl::string_view value,
                      Scenario* scenario) {
  if (name == "codec") {
    scenario->codec = std::string(value);
    return absl::OkStatus();
  }
  if (name == "aggregation") {
    scenario->aggregation = std::string(value);
    return absl::OkStatus();
  }
  const auto found = NumericFields().find(std::string(name));
  if (found == NumericFields().end()) {
    std::vector<std::string> names = {"codec", "aggregation"};
    for (const auto& [each, setter] : NumericFields()) names.push_back(each);
    return absl::InvalidArgumentError(absl::StrCat("no field '", name,
                                                   "' to sweep; there are ",
                                                   absl::StrJoin(names, ", ")));
  }
  double number = 0;
  if (!ParseNumber(value, &number) || std::abs(number) > 1e9) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": '", value, "' is not a number up to 1e9"));
  }
  if (found->second(number, scenario)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": '", value, "' is not a whole number"));
}

absl::StatusOr<SweepResult> Sweep(const Scenario& scenario,
                                  const Calibration& calibration,
                                  absl::string_view sweep) {
  ASSIGN_OR_RETURN(const std::vector<Axis> axes, ParseAxes(sweep));
  SweepResult result;
  size_t points = 1;
  for (const Axis& axis : axes) {
    result.fields.push_back(axis.field);
    points *= axis.values.size();
  }
  for (size_t point = 0; point < points; ++point) {
    Scenario each = scenario;
    SweepPoint done;
    size_t rest = point;  // the last axis runs fastest
    size_t stride = points;
    for (const Axis& axis : axes) {
      stride /= axis.values.size();
      const std::string& value = axis.values[rest / stride];
      rest %= stride;
      RETURN_IF_ERROR(SetField(axis.field, value, &each));
      done.values.push_back(value);
    }
    ASSIGN_OR_RETURN(done.prediction, Simulate(each, calibration));
    result.points.push_back(std::move(done));
  }
  return result;
}

}  // namespace telegrad
