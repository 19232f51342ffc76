#include "trainer/launch/what_if.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/tuning/job_plan.h"
#include "topology/simulate.h"
#include "trainer/launch/measure_here.h"

namespace telegrad {
namespace {

// The means of a setting's seeds.
struct Measured {
  const RunSummary* run = nullptr;  // the first
  double step_s = 0;
  double compute_s = 0;
  double steps = 0;  // to the target, else all; 0: it was never reached
};

Measured MeasuredOf(const std::vector<const RunSummary*>& runs, double target) {
  Measured measured{.run = runs.front()};
  double reached = 0;
  for (const RunSummary* run : runs) {
    const double steps = std::max<double>(1, static_cast<double>(run->steps));
    const double step = run->step_seconds_p50 > 0 ? run->step_seconds_p50
                                                  : run->seconds / steps;
    const double wait = run->comm_wait_s / std::max(1, run->workers) / steps;
    measured.step_s += step;
    measured.compute_s += std::max(0.0, step - wait);
    const MetricPoint* const at = target > 0 ? FirstAt(*run, target) : nullptr;
    if (target > 0 && at == nullptr) continue;
    ++reached;
    measured.steps += target > 0 ? static_cast<double>(at->step) : steps;
  }
  const auto count = static_cast<double>(runs.size());
  measured.step_s /= count;
  measured.compute_s /= count;
  if (reached > 0) measured.steps /= reached;
  return measured;
}

Scenario ScenarioOf(const TrainOptions& options, const Setting& setting,
                    const Measured& measured) {
  const RunSummary& run = *measured.run;
  Scenario scenario{.workers = run.workers,
                    .servers = options.hosts_parts ? 0 : run.servers,
                    .batch = static_cast<double>(options.batch_size),
                    .compute_s = measured.compute_s};
  std::vector<TensorSpec> tensors;
  bool has_codec = false;
  for (const TensorBytes& tensor : run.tensors) {
    tensors.push_back({tensor.tensor, static_cast<size_t>(tensor.elements)});
    has_codec |= tensor.codec != "none";
  }
  scenario.profile = ProfileOf(run.network, tensors);
  if (has_codec) scenario.codec = setting.compression.type;
  scenario.min_codec_elems = (setting.compression.min_bytes + 3) / 4;
  scenario.aggregation =
      Name(options.hosts_parts ? Aggregation::kColocatedServers
                               : Aggregation::kDedicatedServers);
  scenario.chunk_elems = static_cast<int64_t>(options.chunk_elems);
  scenario.overlap = !options.early_step ? Overlap::kBackward : Overlap::kFull;
  return scenario;
}

WhatIfRow Predict(Scenario scenario, Calibration calibration,
                  const Measured& measured, const NamedLink& link) {
  WhatIfRow row{.setting = measured.run->setting,
                .link = link.name,
                .bytes_per_s = link.spec.bytes_per_s,
                .latency_s = link.spec.latency_s};
  // As --link emulates it: each pair of worker and server has a link.
  const double gbps = 8e-9 * link.spec.bytes_per_s;
  const int workers = scenario.workers;
  scenario.link_gbps = gbps * (scenario.servers > 0 ? scenario.servers
                                                    : std::max(1, workers - 1));
  scenario.server_link_gbps = gbps * workers;
  for (LinkFigures& figures : calibration.links) {
    if (figures.name != scenario.transport) continue;
    figures.latency_s.value += link.spec.latency_s;
    Figure& frame = figures.frame_latency_s;
    if (frame.value > 0) frame.value += link.spec.latency_s;
  }
  const absl::StatusOr<Prediction> prediction = Simulate(scenario, calibration);
  if (!prediction.ok()) {
    row.why_not = std::string(prediction.status().message());
    return row;
  }
  row.step_s = prediction->step_s;
  row.total_s = prediction->step_s * measured.steps;
  return row;
}

absl::Status AppendRows(const TrainOptions& options, const Setting& setting,
                        const std::vector<const RunSummary*>& runs,
                        std::vector<NamedLink> links,
                        std::vector<WhatIfRow>& rows) {
  const Measured measured = MeasuredOf(runs, options.laboratory.target);
  if (measured.run->tensors.empty()) return absl::OkStatus();
  const Scenario scenario = ScenarioOf(options, setting, measured);
  ASSIGN_OR_RETURN(
      const Calibration calibration,
      MeasureHere(setting, {scenario.codec},
                  {.num_elems = CalibrationElems(
                       static_cast<size_t>(scenario.profile.num_elems())),
                   .chunk_elems = options.chunk_elems,
                   .num_workers = scenario.workers},
                  options.threads));
  const auto key = [](const NamedLink& link) {
    return std::pair(link.spec.bytes_per_s, link.spec.latency_s);
  };
  const NamedLink own = {options.link, options.link_spec};
  const bool is_listed = absl::c_any_of(
      links, [&](const NamedLink& link) { return key(link) == key(own); });
  if (!is_listed && own.spec.bytes_per_s > 0) links.push_back(own);
  std::ranges::stable_sort(links, {}, key);
  for (const NamedLink& link : links) {
    rows.push_back(Predict(scenario, calibration, measured, link));
    if (key(link) == key(own)) rows.back().measured_step_s = measured.step_s;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<WhatIfRow>> WhatIf(
    const TrainOptions& options, const std::vector<RunSummary>& runs) {
  std::vector<WhatIfRow> rows;
  if (options.laboratory.what_if.empty()) return rows;
  ASSIGN_OR_RETURN(const std::vector<NamedLink> links,
                   ParseLinks(options.laboratory.what_if));
  for (const Setting& setting : options.settings) {
    std::vector<const RunSummary*> own;
    for (const RunSummary& run : runs) {
      if (run.setting == setting.name) own.push_back(&run);
    }
    if (own.empty()) continue;
    RETURN_IF_ERROR(
        AppendRows(OptionsOf(options, setting), setting, own, links, rows));
  }
  return rows;
}

}  // namespace telegrad
