#include "trainer/run/worker_totals.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "base/json_fields.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

using Json = nlohmann::json;

// Sums of what workers say stay numbers.
void AddCount(JsonFields& totals, const char* name, int64_t& sum) {
  const auto count = totals.Integer<int64_t>(name, 0);
  sum += std::min(count, std::numeric_limits<int64_t>::max() - sum);
}

}  // namespace

std::string ToText(const WorkerTotals& totals) {
  return Json{{"push_raw", totals.traffic.push_raw_bytes},
              {"push_wire", totals.traffic.push_wire_bytes},
              {"pull_raw", totals.traffic.pull_raw_bytes},
              {"pull_wire", totals.traffic.pull_wire_bytes},
              {"to_device", totals.traffic.to_device_bytes},
              {"from_device", totals.traffic.from_device_bytes},
              {"largest", totals.traffic.max_staleness},
              {"mean", totals.traffic.mean_staleness},
              {"late", totals.traffic.num_late},
              {"left_out", totals.num_left_out},
              {"wait", totals.comm_wait_s},
              {"sha", totals.weights_sha256},
              {"peak", PeakMemoryBytes()},
              {"steps", totals.step_seconds},
              {"shares", ToText(totals.shares)}}
      .dump();
}

absl::StatusOr<GivenTotals> AddTotals(absl::string_view text,
                                      RunSummary& summary,
                                      std::vector<double>& slowest) {
  const Json json = ParseJson(text);
  JsonFields totals(json, "field '$0' $1");
  AddCount(totals, "push_raw", summary.push_raw_bytes);
  AddCount(totals, "push_wire", summary.push_wire_bytes);
  AddCount(totals, "pull_raw", summary.pull_raw_bytes);
  AddCount(totals, "pull_wire", summary.pull_wire_bytes);
  AddCount(totals, "to_device", summary.to_device_bytes);
  AddCount(totals, "from_device", summary.from_device_bytes);
  summary.comm_wait_s += totals.NumberOrNan("wait");
  summary.worker_peak_bytes =
      std::max(summary.worker_peak_bytes, totals.Integer<int64_t>("peak", 0));
  const Json& steps = totals.List("steps");
  slowest.resize(std::max(slowest.size(), steps.size()), 0);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].is_number()) {
      slowest[i] = std::max(slowest[i], steps[i].get<double>());
    }
  }
  GivenTotals given{.weights_sha256 = absl::Utf8SafeCEscape(totals.Text("sha")),
                    .max_staleness = totals.Integer<int64_t>("largest"),
                    .mean_staleness = totals.NumberOrNan("mean"),
                    .num_late = totals.Integer<int64_t>("late", 0),
                    .num_left_out = totals.Integer<int64_t>("left_out", 0),
                    .shares = ReadShares(totals.Text("shares"))};
  RETURN_IF_ERROR(totals.status());
  return given;
}

int64_t PeakMemoryBytes() {
  std::FILE* file = std::fopen("/proc/self/status", "r");
  if (file == nullptr) return 0;
  char line[256];
  long kib = 0;
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::sscanf(line, "VmHWM: %ld kB", &kib) == 1) break;
  }
  std::fclose(file);
  return int64_t{1024} * kib;
}

}  // namespace telegrad
