#include "trainer/flags/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/command_line.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "compression/codec_spec.h"
#include "kvstore/tuning/auto_compression.h"
#include "kvstore/tuning/calibration_cache.h"
#include "topology/plan.h"
#include "trainer/data/dataset.h"
#include "trainer/flags/check_flags.h"
#include "trainer/flags/compression_flags.h"
#include "trainer/flags/given_plan.h"
#include "trainer/flags/optimizer_flags.h"
#include "trainer/flags/profile.h"
#include "trainer/flags/training_flags.h"
#include "trainer/flags/work_load.h"
#include "trainer/networks/network.h"

namespace telegrad {
namespace {

// The flags whose text needs a second look.
struct RawFlags {
  RawCompressionFlags compression;
  std::string seeds = "0";
  std::string chunk = "524288";
  RawOptimizerFlags optimizer;
  int benchmark = 0;
};

constexpr char kDescription[] =
    "Trains a network on several workers and compares what gradient "
    "compression does\nto accuracy, bytes and time. Without a launcher it "
    "starts its own scheduler,\nservers and workers on this machine; under "
    "mpirun, srun, torchrun-style or DMLC_*\nenvironments it takes role, rank "
    "and world from there.";

// In the words of tf_cnn_benchmarks.
void AddStrategyFlags(CLI::App& app, StrategyRequest& request) {
  const char* group = "TensorFlow's strategies";
  app.add_option("--variable-update", request.variable_update,
                 "instead of --kv-store and --update-on: parameter_server, "
                 "replicated, independent, horovod, distributed_replicated, "
                 "distributed_all_reduce, collective_all_reduce")
      ->group(group);
  app.add_option(
         "--local-parameter-device", request.local_parameter_device,
         "where parameter_server and replicated keep weights: cpu or gpu")
      ->group(group);
  app.add_option("--all-reduce-spec", request.all_reduce_spec,
                 "who sums in replicated and *_all_reduce: pscpu, psgpu, nccl, "
                 "xring, collective; by size pscpu:2k:xring, two levels "
                 "pscpu/xring")
      ->group(group);
}

void AddRunFlags(CLI::App& app, TrainOptions& options, RawFlags& raw) {
  const char* group = "Training";
  app.add_option("--seed", raw.seeds,
                 "seed of weights and order of samples; several, separated by "
                 "commas, are all run, and averaged")
      ->capture_default_str()
      ->group(group);
  app.add_option("--benchmark", raw.benchmark,
                 "1: synthetic data, speed only; with profile:NAME as network, "
                 "ready-made gradients of its sizes")
      ->capture_default_str()
      ->check(CLI::Range(0, 1))
      ->group(group);
  app.add_option("--num-batches", options.num_batches,
                 "end each epoch after so many batches; 0: the whole data")
      ->capture_default_str()
      ->check(&CheckNotNegative, "NONNEGATIVE")
      ->group(group);
  app.add_option("--disp-batches", options.display_batches,
                 "batches between two lines of progress; before each all sums "
                 "are waited for")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->group(group);
  app.add_option("--early-step", options.early_step,
                 "1: each tensor's weights are stepped when its sum is there, "
                 "and the next forward waits layer by layer; 0: all together")
      ->capture_default_str()
      ->check(CLI::Range(0, 1))
      ->group(group);
  app.add_flag("-v,--verbose", options.verbose,
               "show how the run was planned, and what was measured for that")
      ->group(group);
  app.add_option("--gpus", options.gpus,
                 "GPUs of this host: 0,1 or all; without it the CPU trains; "
                 "emulated: the CPU as if it were one, for tests")
      ->group(group);
  app.add_option("--gdr", options.gdr,
                 "whether network cards read and write the memory of GPUs "
                 "(GPUDirect RDMA): auto, by the plan; on; off")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--tf32", options.tf32,
               "let GPUs round factors of float32 to TF32: faster, less exact")
      ->group(group);
  app.add_option("--out", options.out,
                 "folder for metrics.jsonl, summary.json and report.html")
      ->capture_default_str()
      ->group(group);
}

void AddJobFlags(CLI::App& app, TrainOptions& options, RawFlags& raw) {
  AddMemberFlags(app, options);
  app.add_option("--devices,--num-gpus", options.devices,
                 "devices of a worker, each with a copy of the network and a "
                 "batch of its own, whose gradients are summed first")
      ->capture_default_str()
      ->check(CLI::Range(1, 64))
      ->group("Job");
  app.add_option("--tier1", options.tier_one,
                 "whether the workers of a host sum first, so that one of them "
                 "pushes: auto, by the plan, where there are several hosts; "
                 "off; on")
      ->check(CLI::IsMember({"auto", "off", "on"}))
      ->capture_default_str()
      ->group("Job");
  app.add_option("--work-load-list", options.work_load,
                 "how a worker's samples are divided among its devices: 3,1")
      ->delimiter(',')
      ->group("Job");
  app.add_option("--chunk-elems,--chunk", raw.chunk,
                 "elements that travel as one frame; auto: the planner's, "
                 "tensor by tensor: what codecs lose may then differ from "
                 "machine to machine")
      ->capture_default_str()
      ->group("Job");
}

void AddInternalFlags(CLI::App& app, TrainOptions& options) {
  app.add_option("--inject", options.inject)->group("");
  app.add_option("--inject-link", options.inject_link)->group("");
  app.add_option("--internal-role", options.internal_role)->group("");
  app.add_option("--internal-scheduler", options.internal_scheduler)->group("");
  app.add_option("--internal-rank", options.internal_rank)->group("");
  app.add_option("--internal-setting", options.internal_setting)->group("");
  app.add_option("--internal-seed", options.internal_seed)->group("");
  app.add_option("--internal-report-fd", options.internal_report_fd)->group("");
  app.add_option("--internal-job", options.internal_job)->group("");
}

absl::Status ParseSeeds(const std::string& list, TrainOptions& options) {
  for (const absl::string_view text : absl::StrSplit(list, ',')) {
    uint64_t seed = 0;
    if (!absl::SimpleAtoi(text, &seed)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--seed: '", text, "' is not a number; several have commas: 0,1,2"));
    }
    options.seeds.push_back(seed);
  }
  return absl::OkStatus();
}

absl::Status ParseChunk(const std::string& text, TrainOptions& options) {
  constexpr size_t kLeast = 32;
  constexpr size_t kMost = size_t{8} << 20;
  options.has_auto_chunk = text == "auto";
  if (options.has_auto_chunk) return absl::OkStatus();
  if (absl::SimpleAtoi(text, &options.chunk_elems) &&
      options.chunk_elems >= kLeast && options.chunk_elems <= kMost) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("--chunk-elems ", text,
                                                 ": it takes ", kLeast, " to ",
                                                 kMost, ", or auto"));
}

// `only`: the options are those of this setting.
absl::Status Finish(const CLI::App& app, const RawFlags& raw,
                    std::optional<size_t> only, TrainOptions& options) {
  if (!options.show_checkpoint.empty()) return absl::OkStatus();
  options.has_comparison = app.count("--compare") > 0;
  RETURN_IF_ERROR(FillSettings(raw.compression, options));
  RETURN_IF_ERROR(ParseSeeds(raw.seeds, options));
  if (only.has_value()) {
    options.settings = {std::move(options.settings[*only])};
    options.settings.front().flags.clear();
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() > 0) options.given.insert(option->get_name());
  }
  RETURN_IF_ERROR(FinishOptimizerFlags(raw.optimizer, options));
  RETURN_IF_ERROR(FinishMemberFlags(app, options));
  const std::string empty = ExplainEmpty(
      app,
      {"--checkpoint", "--out", "--tensorboard", "--lr-mult", "--wd-mult"});
  if (!empty.empty()) return absl::InvalidArgumentError(empty);
  options.benchmark = raw.benchmark == 1;
  if (!options.internal_job.empty()) options.job_id = options.internal_job;
  options.cache_folder =
      CalibrationFolder(std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"));
  options.laboratory.identity = IdentityOf(app);
  options.laboratory.facts = FactsOf(app);
  RETURN_IF_ERROR(ParseChunk(raw.chunk, options));
  RETURN_IF_ERROR(SettleGivenPlan(options));
  std::optional<Placement> placement;
  if (options.internal_role.empty() && options.scheduler.empty()) {
    ASSIGN_OR_RETURN(placement,
                     DetectPlacement([](const char* name) -> const char* {
                       return std::getenv(name);
                     }));
  }
  RETURN_IF_ERROR(SettleEmulation(placement, options));
  if (!only.has_value()) RETURN_IF_ERROR(CheckComparison(placement, options));
  ASSIGN_OR_RETURN(
      options.device_batches,
      SplitBatch(options.work_load, options.devices, options.batch_size));
  RETURN_IF_ERROR(SettleStrategy(placement, options));
  RETURN_IF_ERROR(SettleAutoStore(placement, options));
  RETURN_IF_ERROR(SettleStore(options));
  RETURN_IF_ERROR(SettleFewBits(options));
  RETURN_IF_ERROR(FinishTrainingFlags(options));
  RETURN_IF_ERROR(FinishLaboratoryFlags(options));
  return CheckFlags(options);
}

std::string Footer() {
  return absl::StrCat("Networks:\n", DescribeTrainable(), "Data:\n",
                      DescribeDatasets(), "Codecs:\n", DescribeCodecs(),
                      "KVStores:\n", DescribeKVStores(), "Transports:\n",
                      DescribeTransports());
}

// The program's flags, which fill `options` when they are parsed.
struct CommandLine {
  explicit CommandLine(TrainOptions& filled) : options(filled) {
    AddCompressionFlags(app, options, raw.compression);
    AddStrategyFlags(app, options.strategy_request);
    AddTrainingFlags(app, options);
    AddLaboratoryFlags(app, options.laboratory);
    AddOptimizerFlags(app, options, raw.optimizer);
    AddConsistencyFlags(app, options);
    AddRunFlags(app, options, raw);
    AddJobFlags(app, options, raw);
    AddInternalFlags(app, options);
    app.set_version_flag("--version", TELEGRAD_VERSION);
    app.footer(Footer);
    RefuseNan(app);
  }
  TrainOptions& options;
  RawFlags raw;
  CLI::App app{kDescription, "telegrad-train"};
};

// All of the command line, with the flags of setting `index` in the place of
// those that are there.
absl::StatusOr<TrainOptions> ParseOwn(int argc, char** argv,
                                      const TrainOptions& all, size_t index) {
  TrainOptions own;
  own.command_line = all.command_line;
  CommandLine line(own);
  std::vector<const char*> words(argv, argv + argc);
  for (const std::string& flag : all.settings[index].flags) {
    line.app.get_option(flag.substr(0, flag.find('=')))->take_last();
    words.push_back(flag.c_str());
  }
  try {
    line.app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  RETURN_IF_ERROR(Finish(line.app, line.raw, index, own));
  return own;
}

absl::Status SettleOwn(int argc, char** argv, TrainOptions& options) {
  // A process of one run has no others.
  const bool is_child = !options.internal_role.empty();
  const auto own_index = static_cast<size_t>(options.internal_setting);
  for (size_t i = 0; i < options.settings.size(); ++i) {
    Setting& setting = options.settings[i];
    if (setting.flags.empty() || (is_child && i != own_index)) continue;
    absl::StatusOr<TrainOptions> own = ParseOwn(argc, argv, options, i);
    if (!own.ok()) {
      return absl::Status(own.status().code(),
                          absl::StrCat("setting '", setting.name,
                                       "': ", own.status().message()));
    }
    if (is_child) {
      options = *std::move(own);
      options.internal_setting = 0;
      break;
    }
    setting.own = std::make_shared<TrainOptions>(*std::move(own));
  }
  return absl::OkStatus();
}

}  // namespace

TrainOptions ParseTrainOptions(int argc, char** argv, int* exit_code) {
  TrainOptions options;
  CommandLine line(options);
  *exit_code = -1;
  std::vector<std::string> given(argv, argv + argc);
  std::vector<char*> words;
  for (std::string& word : given) {
    if (word.starts_with("--")) {
      const size_t end = std::min(word.find('='), word.size());
      std::replace(word.begin(), word.begin() + static_cast<int64_t>(end), '_',
                   '-');
    }
    words.push_back(word.data());
  }
  for (int i = 0; i < argc; ++i) {
    absl::StrAppend(&options.command_line, i > 0 ? " " : "",
                    i > 0 ? argv[i] : "telegrad-train");
  }
  try {
    line.app.parse(argc, words.data());
  } catch (const CLI::ParseError& error) {
    *exit_code = ExitOfCommandLine(line.app, error);
    return options;
  }
  absl::Status status = Finish(line.app, line.raw, std::nullopt, options);
  if (status.ok()) status = SettleOwn(argc, words.data(), options);
  if (!status.ok()) {
    std::cerr << "telegrad-train: " << status.message() << "\n";
    *exit_code = static_cast<int>(ExitCode::kUsage);
  }
  return options;
}

}  // namespace telegrad
