#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "kvstore/forecast.h"
#include "trainer/networks/gpu_faults.h"
#include "trainer/report/run_facts.h"
#include "trainer/run/codec_table.h"
#include "trainer/run/evaluation.h"
#include "trainer/run/worker_run.h"

namespace telegrad {
namespace {

using Json = nlohmann::json;

std::string Serialize(const WorkerTotals& totals) {
  return Json{{"push_raw", totals.traffic.push_raw_bytes},
              {"push_wire", totals.traffic.push_wire_bytes},
              {"pull_raw", totals.traffic.pull_raw_bytes},
              {"pull_wire", totals.traffic.pull_wire_bytes},
              {"to_device", totals.traffic.to_device_bytes},
              {"from_device", totals.traffic.from_device_bytes},
              {"nonfinite", totals.traffic.num_nonfinite},
              {"largest", totals.traffic.max_staleness},
              {"mean", totals.traffic.mean_staleness},
              {"wait", totals.comm_wait_s},
              {"sha", totals.weights_sha256},
              {"peak", PeakMemoryBytes()},
              {"steps", totals.step_seconds},
              {"shares", ToText(totals.shares)}}
      .dump();
}

// Adds one worker's totals; `slowest` takes the maximum of each step.
absl::Status AddTotals(const Json& totals, RunSummary& summary,
                       std::vector<double>& slowest) {
  for (const char* name :
       {"push_raw", "push_wire", "pull_raw", "pull_wire", "to_device",
        "from_device", "nonfinite", "wait", "peak", "largest", "mean"}) {
    if (!totals.contains(name) || !totals[name].is_number()) {
      return absl::InternalError(absl::StrCat("a worker's totals lack ", name));
    }
  }
  summary.push_raw_bytes += totals["push_raw"].get<int64_t>();
  summary.push_wire_bytes += totals["push_wire"].get<int64_t>();
  summary.pull_raw_bytes += totals["pull_raw"].get<int64_t>();
  summary.pull_wire_bytes += totals["pull_wire"].get<int64_t>();
  summary.to_device_bytes += totals["to_device"].get<int64_t>();
  summary.from_device_bytes += totals["from_device"].get<int64_t>();
  summary.comm_wait_s += totals["wait"].get<double>();
  summary.worker_peak_bytes =
      std::max(summary.worker_peak_bytes, totals["peak"].get<int64_t>());
  if (totals.contains("steps") && totals["steps"].is_array()) {
    const Json& steps = totals["steps"];
    slowest.resize(std::max(slowest.size(), steps.size()), 0);
    for (size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].is_number()) {
        slowest[i] = std::max(slowest[i], steps[i].get<double>());
      }
    }
  }
  return absl::OkStatus();
}

void FillSteps(std::vector<double> slowest, RunSummary& summary) {
  if (slowest.empty()) return;
  std::sort(slowest.begin(), slowest.end());
  summary.step_seconds_min = slowest.front();
  summary.step_seconds_p50 = slowest[slowest.size() / 2];
}

// Workers and servers, and what carries data between them.
void FillMembers(const RunContext& context, RunSummary& summary) {
  const LaboratoryOptions& laboratory = context.options.laboratory;
  summary.workers = context.store.group().num_workers();
  summary.servers = context.store.group().num_servers();
  summary.link = context.options.link;
  summary.environment = DescribeEnvironment();
  for (const Device gpu : context.gpus) {
    summary.environment.push_back({"GPU", DescribeGpu(gpu)});
  }
  summary.transport = context.store.transport_details();
  if (laboratory.emulate_workers == 0) return;
  summary.workers = laboratory.emulate_workers;
  summary.servers = laboratory.emulated_servers;
  summary.transport = "none: emulated in one process";
}

void FillCodecs(const RunContext& context, RunSummary& summary) {
  const std::vector<TensorReport> reports = context.store.codecs().Report();
  summary.codec = absl::StrJoin(context.setting.compression.types(), ",");
  summary.reply = ReplyOf(reports);
  double all = 0, compressed = 0;
  for (const TensorReport& each : reports) {
    ++summary.num_tensors;
    all += static_cast<double>(each.num_elems);
    summary.num_small += absl::StartsWith(each.reason, "below ") ? 1 : 0;
    if (each.codec == "none") continue;
    ++summary.num_compressed;
    compressed += static_cast<double>(each.num_elems);
  }
  if (all > 0) summary.compressed_share = compressed / all;
}

// By tensor, where there are servers or parts of them to send to.
absl::Status FillTensors(const RunContext& context, RunSummary& summary) {
  const int parts =
      context.options.hosts_parts ? summary.workers : summary.servers;
  if (parts == 0) return absl::OkStatus();
  ForecastRequest request{.compression = context.setting.compression,
                          .update_on = context.setting.update_on,
                          .num_workers = summary.workers,
                          .num_servers = parts,
                          .chunk_elems = context.options.chunk_elems};
  request.compression.packing = context.packing;
  ASSIGN_OR_RETURN(const std::vector<TensorForecast> forecasts,
                   ForecastCompression(context.tensors, request));
  for (const TensorForecast& each : forecasts) {
    summary.tensors.push_back(
        {.tensor = each.report.name,
         .codec = each.report.codec,
         .reason = each.report.reason,
         .reply = each.report.reply,
         .elements = static_cast<int64_t>(each.report.num_elems),
         .push_bytes = static_cast<int64_t>(each.push_wire),
         .pull_bytes = static_cast<int64_t>(each.pull_wire)});
  }
  return absl::OkStatus();
}

// One file of each worker, and worker 0's step for the report.
absl::Status FillTimeline(RunContext& context, RunSummary& summary) {
  context.timeline.Finish();
  summary.timeline = context.timeline.Summary(context.tensors);
  const std::string prefix = TracePrefix(context.options.laboratory.timeline,
                                         context.setting.name, context.seed);
  if (prefix.empty()) return absl::OkStatus();
  const int rank = context.store.group().rank();
  return context.timeline.Write(absl::StrCat(prefix, "-worker", rank, ".json"),
                                rank, context.tensors);
}

}  // namespace

OptimizerConfig MakeOptimizer(const TrainOptions& options,
                              const Setting& setting, int num_workers) {
  OptimizerConfig config{
      .update_on = setting.update_on,
      .kind = options.optimizer,
      .sgd = {.learning_rate = options.lr,
              .momentum_rate = options.mom,
              .weight_decay = options.wd,
              .rescale = 1.0f / static_cast<float>(num_workers)},
      .adam = options.adam};
  // The decay, which no momentum sees then, weighs what one would have made of
  // it in the long run.
  if (setting.compression.momentum != PushMomentum::kNone &&
      options.local_steps == 0) {
    config.sgd.momentum_rate = 0;
    config.sgd.weight_decay /= 1 - options.mom;
  }
  if (options.strategy.has_value()) {
    config.sgd = StrategySgd(*options.strategy, num_workers, config.sgd);
    // Its decay is no part of a gradient that is summed.
    if (config.kind == OptimizerKind::kAdamW) {
      config.sgd.weight_decay = options.wd;
    }
  }
  return config;
}

void RunContext::Warn(const Straggler& straggler, int64_t step) {
  observer.OnNotice(ToText(straggler));
  if (straggler.is_again) return;
  warnings.push_back(absl::StrCat("at step ", step, ": ", ToText(straggler)));
}

absl::Status FillSummary(RunContext& context, const WorkerTotals& mine,
                         RunSummary& summary) {
  ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      GatherLarge(context.store.group(), "totals", Serialize(mine)));
  std::vector<double> slowest;
  std::vector<StepShares> shares;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Json totals = Json::parse(all[rank], nullptr, false);
    if (!totals.is_object() || totals.value("sha", "") != mine.weights_sha256) {
      return WithExitCode(
          ExitCode::kInternal,
          absl::InternalError(absl::StrCat(
              "weights of worker/", rank, " (",
              totals.is_object() ? totals.value("sha", "") : "",
              ") differ from those of worker/", context.store.group().rank(),
              " (", mine.weights_sha256, ")")));
    }
    RETURN_IF_ERROR(AddTotals(totals, summary, slowest));
    if (const auto each = ReadShares(totals.value("shares", ""))) {
      shares.push_back(*each);
    }
    if (context.store.traits().is_async) {
      summary.staleness.push_back(absl::StrFormat(
          "worker/%d: largest %d, mean %.2f", rank,
          totals["largest"].get<int64_t>(), totals["mean"].get<double>()));
    }
  }
  FillSteps(std::move(slowest), summary);
  for (const Straggler& each : FindStragglers(shares)) {
    summary.stragglers.push_back(ToText(each));
    context.observer.OnNotice(summary.stragglers.back());
  }
  const Setting& setting = context.setting;
  const TrainOptions& options = context.options;
  summary.setting = setting.name;
  summary.seed = context.seed;
  FillMembers(context, summary);
  summary.weights_sha256 = mine.weights_sha256;
  summary.network = options.network;
  summary.data = options.benchmark ? "synthetic" : options.data;
  FillCodecs(context, summary);
  summary.update_on = ToString(setting.update_on);
  summary.threshold = setting.threshold;
  summary.decisions = context.decisions;
  summary.warnings = context.warnings;
  summary.plan = context.plan;
  RETURN_IF_ERROR(FillTensors(context, summary));
  RETURN_IF_ERROR(FillTimeline(context, summary));
  if (options.link_spec.bytes_per_s > 0 && summary.steps > 0) {
    // Each pair of worker and server has a link of its own, full duplex; the
    // servers' shares are taken as equal.
    const auto busier = static_cast<double>(
        std::max(summary.push_wire_bytes, summary.pull_wire_bytes));
    summary.byte_limit_s = busier / static_cast<double>(summary.steps) /
                           (summary.workers * summary.servers) /
                           options.link_spec.bytes_per_s;
  }
  return absl::OkStatus();
}

std::string FirstOf(const std::string& details) {
  int depth = 0;
  const auto end = std::ranges::find_if(details, [&depth](char c) {
    depth += (c == '(' ? 1 : 0) - (c == ')' ? 1 : 0);
    return c == ',' && depth == 0;
  });
  return {details.begin(), end};
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
