#include "trainer/launch/explain.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "kvstore/forecast.h"
#include "kvstore/states.h"
#include "kvstore/tuning/job_plan.h"
#include "kvstore/tuning/run_calibration.h"
#include "topology/limits.h"
#include "topology/plan.h"
#include "trainer/flags/profile.h"
#include "trainer/flags/training_flags.h"
#include "trainer/launch/measure_here.h"
#include "trainer/networks/framework.h"
#include "trainer/run/codec_table.h"

namespace telegrad {
namespace {

// A batch on which computing is measured takes about so long at most.
constexpr double kMeasuredSeconds = 1.0;
constexpr int kLeastMeasured = 4;  // samples

struct JobSize {
  int workers = 1;
  int servers = 0;  // servers that have parts
  bool is_one_host = true;
  bool is_emulated = false;  // all of it, in one process
};

absl::StatusOr<JobSize> JobSizeOf(const TrainOptions& options,
                                  const std::optional<Placement>& placement) {
  if (options.laboratory.emulate_workers > 0) {
    return JobSize{.workers = options.laboratory.emulate_workers,
                   .servers = options.laboratory.emulated_servers,
                   .is_emulated = true};
  }
  JobSize job{.workers = options.workers, .servers = options.servers};
  if (placement.has_value()) {
    ASSIGN_OR_RETURN(const Parts parts, PartsOf(*placement, options));
    job = {.workers = parts.num_workers,
           .servers = parts.num_servers,
           .is_one_host = false};
  }
  if (options.hosts_parts) job.servers = job.workers;
  return job;
}

// What computing a step takes, and how that is known.
struct Computing {
  double seconds = 0;
  std::string how = {};
};

absl::StatusOr<double> SecondsOfBatch(Network& network, const Dataset& noise,
                                      int samples) {
  std::vector<float> input(noise.values_per_sample() *
                           static_cast<size_t>(samples));
  std::vector<int64_t> labels(noise.labels_per_sample() *
                              static_cast<size_t>(samples));
  for (size_t i = 0; i < input.size(); ++i) {
    // Tokens of a text are bytes; images lie about 0.
    input[i] = noise.context > 0
                   ? static_cast<float>(i * 7 % 251)
                   : static_cast<float>(i * 7 % 251) / 125.0f - 1.0f;
  }
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<int64_t>(i) % noise.num_classes;
  }
  const TimePoint begin = Clock::now();
  network.ForwardBackward(input.data(), labels.data(), samples, {});
  RETURN_IF_ERROR(network.status());
  return SecondsSince(begin);
}

absl::StatusOr<Computing> MeasureComputing(const TrainOptions& options,
                                           const NetworkSpec& spec,
                                           int64_t least_batch,
                                           const JobSize& job) {
  ASSIGN_OR_RETURN(const Framework* framework, LoadFramework());
  RETURN_IF_ERROR(framework->configure(1, options.tf32));
  ASSIGN_OR_RETURN(const std::unique_ptr<Network> network,
                   framework->make_network(spec));
  Dataset shape;
  static_cast<SampleShape&>(shape) = SamplesOf(spec);
  const int wanted = options.batch_size;
  int samples =
      std::clamp(wanted, static_cast<int>(least_batch),
                 std::max(kLeastMeasured, static_cast<int>(least_batch)));
  // The first finds its memory.
  RETURN_IF_ERROR(SecondsOfBatch(*network, shape, samples).status());
  ASSIGN_OR_RETURN(double seconds, SecondsOfBatch(*network, shape, samples));
  if (samples < wanted && seconds * wanted / samples < kMeasuredSeconds) {
    samples = wanted;
    ASSIGN_OR_RETURN(seconds, SecondsOfBatch(*network, shape, samples));
  }
  const int cpus = UsableCpus();
  const double share =
      job.is_one_host && !job.is_emulated
          ? std::max(1.0, static_cast<double>(job.workers) / cpus)
          : 1.0;
  const double batches = static_cast<double>(wanted) / samples *
                         options.grad_accumulation * options.devices;
  Computing computing{.seconds = seconds * batches * share};
  computing.how = absl::StrFormat("%d samples in %s on a core of this machine",
                                  samples, FormatSeconds(seconds));
  if (share > 1) {
    absl::StrAppendFormat(&computing.how, ", %d workers on %d cores",
                          job.workers, cpus);
  }
  return computing;
}

// The tensors that a run exchanges, and what computing takes.
struct Workload {
  std::vector<TensorSpec> tensors = {};
  double hidden_bytes = 0;  // weights that Muon steps
  Computing computing = {.how = "none: ready-made gradients"};
};

absl::StatusOr<Workload> WorkloadOf(const TrainOptions& options,
                                    const JobSize& job) {
  Workload load;
  if (IsProfile(options.network)) {
    ASSIGN_OR_RETURN(load.tensors, LoadProfile(options.network));
    return load;
  }
  ASSIGN_OR_RETURN(NetworkSpec spec, RequestedSpec(options));
  if (!options.benchmark) {
    ASSIGN_OR_RETURN(const DatasetShape data,
                     FindDataset(options.data, RequestedData(options, spec)));
    Fit(data, spec);
  }
  ASSIGN_OR_RETURN(const NetworkShape shape, ShapeOf(spec));
  for (const Parameter& parameter : shape.parameters) {
    load.tensors.push_back({parameter.name, parameter.num_elements});
    if (!parameter.is_hidden) continue;
    load.hidden_bytes += 4.0 * static_cast<double>(parameter.num_elements);
  }
  ASSIGN_OR_RETURN(load.computing,
                   MeasureComputing(options, spec, shape.least_batch, job));
  return load;
}

size_t NumElems(const std::vector<TensorSpec>& tensors) {
  size_t sum = 0;
  for (const TensorSpec& tensor : tensors) sum += tensor.num_elems;
  return sum;
}

struct Totals {
  double raw = 0, push = 0, pull = 0, worker = 0, server = 0;
  double spared = 0;  // bytes of the optimizer's
};

Totals Sum(const std::vector<TensorForecast>& tensors) {
  Totals totals;
  for (const TensorForecast& each : tensors) {
    totals.raw += 4.0 * static_cast<double>(each.report.num_elems);
    totals.push += static_cast<double>(each.push_wire);
    totals.pull += static_cast<double>(each.pull_wire);
    totals.worker += static_cast<double>(each.worker_memory);
    totals.server += static_cast<double>(each.server_memory);
  }
  return totals;
}

std::string TensorLines(const std::vector<TensorForecast>& tensors) {
  size_t width = 6;
  for (const TensorForecast& each : tensors) {
    width = std::max(width, each.report.name.size());
  }
  const auto column = static_cast<int>(std::min<size_t>(width, 40));
  std::string text =
      absl::StrFormat("  %-*s %11s %11s %11s %6s  %-10s %-6s %s\n", column,
                      "tensor", "elements", "push bytes", "pull bytes", "bits",
                      "codec", "reply", "reason");
  for (const TensorForecast& each : tensors) {
    absl::StrAppendFormat(
        &text, "  %-*s %11d %11d %11d %6.2f  %-10s %-6s %s\n", column,
        each.report.name, each.report.num_elems, each.push_wire, each.pull_wire,
        8.0 * static_cast<double>(each.report.push_bytes) /
            static_cast<double>(each.report.num_elems),
        each.report.codec, each.report.reply, each.report.reason);
  }
  return text;
}

// Copies of the weights that a worker has: weights and gradients, what its
// optimizer keeps, and with local steps what the outer one does.
int CopiesOf(const TrainOptions& options, UpdateOn on) {
  const int states = on == UpdateOn::kServer
                         ? 0
                         : static_cast<int>(NumStateArrays(options.optimizer));
  const int own = options.devices * (2 + states);
  if (options.local_steps == 0) return own;
  return own + 2 + options.devices * (options.local_fragments > 1 ? 2 : 1);
}

std::string ByteLines(const TrainOptions& options, const Totals& totals,
                      const JobSize& job, UpdateOn on) {
  const auto bytes = [](double count) { return FormatBytes(count); };
  const double model = CopiesOf(options, on) * totals.raw - totals.spared;
  std::string text = absl::StrFormat(
      "  bytes of %s: each worker pushes %s of %s (ratio %.2f), pulls %s "
      "(%.2f); all workers %s\n",
      options.local_steps > 0
          ? absl::StrCat("an exchange, one in ", options.local_steps, " steps")
          : "a step",
      bytes(totals.push), bytes(totals.raw), totals.raw / totals.push,
      bytes(totals.pull), totals.raw / totals.pull,
      bytes(job.workers * (totals.push + totals.pull)));
  if (job.is_emulated) {
    const double codecs = job.workers * totals.worker + totals.server;
    return absl::StrFormat(
        "%s  memory: %s in one process (weights, gradients, optimizer %s; "
        "residuals, frames, sums %s), and what layers keep for backward\n",
        text, bytes(model + codecs), bytes(model), bytes(codecs));
  }
  absl::StrAppendFormat(
      &text,
      "  memory: a worker %s (weights, gradients, optimizer %s; residuals and "
      "frames %s), and what layers keep for backward",
      bytes(model + totals.worker), bytes(model), bytes(totals.worker));
  if (job.servers > 0) {
    absl::StrAppendFormat(&text, "; a server %s",
                          bytes(totals.server / job.servers));
  }
  return text + "\n";
}

// Figures of this machine's cores and of the codecs that tensors have.
absl::StatusOr<Calibration> MeasureFor(const std::vector<TensorReport>& plans,
                                       const Setting& setting,
                                       const JobSize& job,
                                       const TrainOptions& options,
                                       size_t num_elems) {
  std::set<std::string> codecs;
  for (const TensorReport& each : plans) codecs.insert(each.setting);
  const int processes = job.is_one_host ? job.workers + job.servers : 1;
  return MeasureHere(
      setting, codecs,
      {.num_elems = CalibrationElems(num_elems),
       .chunk_elems = options.chunk_elems,
       .num_workers = job.workers},
      std::min<double>(
          options.threads,
          UsableCpus() / static_cast<double>(std::max(1, processes))));
}

PlanRequest RequestOf(const TrainOptions& options, const Workload& load,
                      const std::vector<TensorReport>& plans,
                      const JobSize& job) {
  PlanRequest request{.workers = job.workers};
  request.profile = ProfileOf(options.network, load.tensors);
  request.tensor_codecs = CodecsOf(plans, /*is_choice=*/false);
  request.gc_type = "none";
  request.servers = options.hosts_parts ? 0 : job.servers;
  request.aggregation = {options.hosts_parts ? Aggregation::kColocatedServers
                                             : Aggregation::kDedicatedServers,
                         options.kv_store};
  if (!options.has_auto_chunk) {
    request.chunk_bytes = {static_cast<int64_t>(4 * options.chunk_elems),
                           "the size of this run's"};
  }
  // As --link emulates it: each pair of worker and server has a link.
  request.link_gbps = 8e-9 * options.link_spec.bytes_per_s *
                      std::max(1, job.servers - (options.hosts_parts ? 1 : 0));
  request.is_link_of_busy_servers = true;
  request.compute_s = load.computing.seconds;
  return request;
}

// With local steps all wait for the exchange, every so often.
std::string StepLines(const Plan& plan, const Workload& load, int local_steps) {
  std::string text = absl::StrFormat(
      "  step: %s expected: computing %s (%s), exchange %s, of which %s are "
      "not hidden behind backward; without compression the exchange takes %s\n",
      FormatSeconds(load.computing.seconds + (local_steps > 0
                                                  ? plan.comm_s / local_steps
                                                  : plan.exposed_s)),
      FormatSeconds(load.computing.seconds), load.computing.how,
      FormatSeconds(plan.comm_s), FormatSeconds(plan.exposed_s),
      FormatSeconds(plan.comm_dense_s));
  using Kind = Decision::Kind;
  for (const Decision& each : plan.decisions) {
    // Choices that machines decide are left out: none was asked.
    const bool is_known = each.what != Kind::kNetwork &&
                          each.what != Kind::kCards &&
                          each.what != Kind::kMemory;
    if (is_known) absl::StrAppend(&text, "  plan: ", ToText(each), "\n");
  }
  return text;
}

absl::StatusOr<std::string> ExplainSetting(const TrainOptions& options,
                                           const Setting& setting,
                                           const Workload& load,
                                           const JobSize& job) {
  ASSIGN_OR_RETURN(const std::vector<TensorForecast> tensors,
                   ForecastCompression(load.tensors,
                                       {.compression = setting.compression,
                                        .update_on = setting.update_on,
                                        .num_workers = job.workers,
                                        .num_servers = std::max(1, job.servers),
                                        .chunk_elems = options.chunk_elems}));
  std::string text =
      absl::StrCat("\n", setting.name, "\n", TensorLines(tensors));
  if (job.servers == 0) return text + "  one process: nothing is sent\n";
  Totals totals = Sum(tensors);
  // Muon keeps one array of a weight, and adamw two.
  if (options.has_muon) totals.spared = options.devices * load.hidden_bytes;
  absl::StrAppend(&text, ByteLines(options, totals, job, setting.update_on));
  if (job.is_emulated) {
    return absl::StrFormat(
        "%s  step: %s of computing expected (%s), one worker after the other; "
        "nothing is sent\n",
        text, FormatSeconds(load.computing.seconds), load.computing.how);
  }
  std::vector<TensorReport> reports;
  for (const TensorForecast& each : tensors) reports.push_back(each.report);
  ASSIGN_OR_RETURN(
      const Calibration calibration,
      MeasureFor(reports, setting, job, options, NumElems(load.tensors)));
  ASSIGN_OR_RETURN(
      const Plan plan,
      MakePlan({}, calibration, RequestOf(options, load, reports, job)));
  absl::StrAppend(&text, StepLines(plan, load, options.local_steps));
  if (setting.is_auto) {
    absl::StrAppend(&text,
                    "  auto: these are the codecs it may use; a run measures "
                    "first and sends floats where that is faster\n");
  }
  for (const std::string& line : PlanWarnings(reports, setting, options)) {
    absl::StrAppend(&text, "  ", line, "\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> ExplainRuns(
    const TrainOptions& options, const std::optional<Placement>& placement) {
  ASSIGN_OR_RETURN(const JobSize job, JobSizeOf(options, placement));
  ASSIGN_OR_RETURN(const Workload load, WorkloadOf(options, job));
  std::string text = absl::StrCat(
      options.network, " on ",
      options.benchmark ? "synthetic data" : options.data, ", ", job.workers,
      job.workers == 1 ? " worker, " : " workers, ",
      options.hosts_parts
          ? "a part of the sums in each"
          : absl::StrCat(job.servers, job.servers == 1 ? " server" : " servers",
                         job.is_emulated ? " in one process" : ""),
      ", --kv-store ", options.kv_store, ", --link ", options.link,
      ". Nothing is started.\n");
  for (const Setting& setting : options.settings) {
    const TrainOptions& own = OptionsOf(options, setting);
    ASSIGN_OR_RETURN(const JobSize size, JobSizeOf(own, placement));
    Setting settled = SettledOf(setting);
    PackingMode& packing = settled.compression.packing;
    const bool is_open = packing == PackingMode::kAuto;
    packing = ChoosePacking(packing, own.link_spec.bytes_per_s);
    ASSIGN_OR_RETURN(const std::string part,
                     ExplainSetting(own, settled, load, size));
    text += part;
    if (!is_open) continue;
    absl::StrAppend(
        &text, "  packing ", ToString(packing),
        own.link_spec.bytes_per_s > 0
            ? ": by --link\n"
            : " without --link; a run goes by the rate of its plan's link\n");
  }
  return text;
}

}  // namespace telegrad
