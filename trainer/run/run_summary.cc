#include <algorithm>

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

void FillSteps(std::vector<double> slowest, RunSummary& summary) {
  if (slowest.empty()) return;
  std::sort(slowest.begin(), slowest.end());
  summary.step_seconds_min = slowest.front();
  summary.step_seconds_p50 = slowest[slowest.size() / 2];
}

// Where workers do not wait for each other.
void AddStaleness(RunContext& context, size_t rank, const GivenTotals& given,
                  RunSummary& summary) {
  const bool drops = context.store.extras().backups != nullptr;
  if (!drops && !context.store.traits().is_async) return;
  std::string text = absl::StrFormat("worker/%d: largest %d, mean %.2f", rank,
                                     given.max_staleness, given.mean_staleness);
  if (drops) {
    absl::StrAppend(&text, ", late ", given.num_late, " pushes of chunks, ",
                    given.num_left_out, " steps left out");
  }
  context.observer.OnNotice(absl::StrCat(
      drops ? "steps behind the others, " : "steps ahead of the slowest, ",
      text));
  summary.staleness.push_back(std::move(text));
}

// What all workers add up to; their weights must be the same.
absl::Status FillTotals(RunContext& context, const WorkerTotals& mine,
                        RunSummary& summary) {
  WorkerGroup& group = context.store.group();
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   GatherLarge(group, "totals", ToText(mine)));
  std::vector<double> slowest;
  std::vector<StepShares> shares;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto given = AddTotals(all[rank], summary, slowest);
    if (!given.ok()) {
      return WithExitCode(
          ExitCode::kMismatch,
          absl::InternalError(absl::StrCat(
              "worker/", rank, "'s totals: ", given.status().message())));
    }
    if (given->weights_sha256 != mine.weights_sha256) {
      return WithExitCode(
          ExitCode::kInternal,
          absl::InternalError(absl::StrCat(
              "weights of worker/", rank, " (", given->weights_sha256,
              ") differ from those of worker/", group.rank(), " (",
              mine.weights_sha256, ")")));
    }
    if (given->shares.has_value()) shares.push_back(*given->shares);
    AddStaleness(context, rank, *given, summary);
  }
  FillSteps(std::move(slowest), summary);
  for (const Straggler& each : FindStragglers(shares)) {
    summary.stragglers.push_back(ToText(each));
    context.observer.OnNotice(summary.stragglers.back());
  }
  return absl::OkStatus();
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
  const std::string base = TraceBaseOf(context);
  if (base.empty()) return absl::OkStatus();
  return context.timeline.Write(base, context.store.group().rank(),
                                context.tensors);
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

std::string TraceBaseOf(const RunContext& context) {
  const std::string prefix = TracePrefix(context.options.laboratory.timeline,
                                         context.setting.name, context.seed);
  return prefix.empty()
             ? ""
             : absl::StrCat(prefix, "-worker", context.store.group().rank());
}

void RunContext::Warn(const Straggler& straggler, int64_t step) {
  observer.OnNotice(ToText(straggler));
  metrics.CountStraggler(straggler.who, straggler.cause);
  if (straggler.is_again) return;
  warnings.push_back(absl::StrCat("at step ", step, ": ", ToText(straggler)));
}

absl::Status FillSummary(RunContext& context, const WorkerTotals& mine,
                         RunSummary& summary) {
  RETURN_IF_ERROR(FillTotals(context, mine, summary));
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

std::string SealedOf(const std::string& details) {
  for (const char* begin : {", encryption ", ", isolated fabric"}) {
    const size_t found = details.rfind(begin);
    if (found != std::string::npos) return details.substr(found);
  }
  return "";
}

}  // namespace telegrad
