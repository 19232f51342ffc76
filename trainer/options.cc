#include "trainer/options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "compression/codec_spec.h"
#include "kvstore/tuning/auto_compression.h"
#include "kvstore/tuning/calibration_cache.h"
#include "topology/plan.h"
#include "trainer/check_inputs.h"
#include "trainer/cluster.h"
#include "trainer/dataset.h"
#include "trainer/given_plan.h"
#include "trainer/network.h"
#include "trainer/optimizer_flags.h"
#include "trainer/profile.h"
#include "trainer/training_flags.h"
#include "trainer/work_load.h"

namespace telegrad {
namespace {

// The flags whose text needs a second look.
struct RawFlags {
  std::string gc_type = "none";
  std::string gc_allow = kDefaultAllowed;
  std::string compare;
  std::string threshold = "auto";
  std::string rules;
  std::string min_bytes = "64KiB";
  std::string reply = "auto";
  std::string guard = "on";
  int64_t warmup_steps = 0;
  std::string packing = "plain";
  std::string nonfinite = "error";
  std::string update_on = "worker";
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

void AddCompressionFlags(CLI::App& app, RawFlags& raw) {
  const char* group = "Compression";
  app.add_option("--compare", raw.compare,
                 "settings to run and compare, separated by commas: a codec, "
                 "then +reply=, +packing=, +threshold=, +update-on=, "
                 "+min-bytes=, +warmup-steps=: none,2bit,2bit+reply=reencode")
      ->group(group);
  app.add_option("--gc-type", raw.gc_type,
                 "codec when --compare is not given; its options follow after "
                 "colons: topk:0.01, int8:block=256; auto: the fastest of "
                 "--gc-allow where and while it makes steps faster, else none")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--gc-threshold", raw.threshold,
         "the threshold of codecs that have one. auto: a power of two "
         "per tensor that follows its scale; a number: in units of the "
         "gradient as pushed (mean over the worker's batch); 0.5:batch: "
         "MXNet's unit (sum over the batch); 2rms: auto, this factor")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--gc-rule", raw.rules,
         "codecs for some tensors, PATTERN=CODEC separated by ';', the "
         "first that matches wins: 'bn|bias=none;fc.*=2bit:auto;*=int8'; "
         "patterns are regular expressions (RE2) searched for in names")
      ->group(group);
  app.add_option("--gc-warmup-steps", raw.warmup_steps,
                 "the first so many steps go dense")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->group(group);
}

// What else decides what compression does.
void AddPolicyFlags(CLI::App& app, TrainOptions& options, RawFlags& raw) {
  const char* group = "Compression";
  app.add_option("--gc-allow", raw.gc_allow,
                 "codecs that --gc-type auto may use, separated by commas, the "
                 "preferred one first: fp16,int8:block=256,2bit")
      ->capture_default_str()
      ->group(group);
  app.add_flag("--recalibrate", options.recalibrate,
               "measure the link, the cores and the codecs anew, whatever is "
               "kept in ~/.cache/telegrad")
      ->group(group);
  app.add_option("--gc-guard", raw.guard,
                 "on: a tensor whose codec harms goes dense; off: never")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off"}))
      ->group(group);
  app.add_flag("--gc-dense-1d", options.gc_dense_1d,
               "tensors of one dimension, biases and normalisation, go dense, "
               "as a --gc-rule before the others")
      ->group(group);
  app.add_option("--gc-min-bytes", raw.min_bytes,
                 "smaller tensors (float32) go dense unless a rule names them")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--gc-reply", raw.reply,
         "servers' answers. sum: exact; reencode: codes, with their own "
         "residual; dense: float32; auto: sum if possible, else reencode")
      ->capture_default_str()
      ->group(group);
  app.add_option("--gc-packing", raw.packing,
                 "2bit's bytes: plain, radix (fewer), auto (by the link)")
      ->capture_default_str()
      ->group(group);
  app.add_option("--gc-nonfinite", raw.nonfinite,
                 "NaN or infinite gradients: error (exit 42), skip (the step, "
                 "by all workers), zero, propagate (as MXNet)")
      ->capture_default_str()
      ->group(group);
  app.add_option("--update-on", raw.update_on,
                 "who runs the optimizer: worker, or server (MXNet's way; "
                 "weights come back dense)")
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-store", options.kv_store,
                 "who sums what; auto: servers if there are any and they are "
                 "no slower, else allreduce")
      ->capture_default_str()
      ->group(group);
}

// In the words of tf_cnn_benchmarks, which has underscores.
void AddStrategyFlags(CLI::App& app, StrategyRequest& request) {
  const char* group = "TensorFlow's strategies";
  app.add_option("--variable-update,--variable_update", request.variable_update,
                 "instead of --kv-store and --update-on: parameter_server, "
                 "replicated, independent, horovod, distributed_replicated, "
                 "distributed_all_reduce, collective_all_reduce")
      ->group(group);
  app.add_option("--local-parameter-device,--local_parameter_device",
                 request.local_parameter_device,
                 "of parameter_server and replicated: cpu or gpu")
      ->group(group);
  app.add_option("--all-reduce-spec,--all_reduce_spec", request.all_reduce_spec,
                 "who sums in replicated and *_all_reduce: pscpu, psgpu, nccl, "
                 "xring, collective; by size pscpu:2k:xring, two levels "
                 "pscpu/xring")
      ->group(group);
}

void AddRunFlags(CLI::App& app, TrainOptions& options, RawFlags& raw) {
  const char* group = "Training";
  app.add_option("--seed", raw.seeds,
                 "of weights and order of samples; several, separated by "
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
                 "GPUs of this host: 0,1 or all; without it the CPU trains")
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
  app.add_option("--devices", options.devices,
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
  app.add_option("--work-load-list,--work_load_list", options.work_load,
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
  app.add_option("--internal-role", options.internal_role)->group("");
  app.add_option("--internal-scheduler", options.internal_scheduler)->group("");
  app.add_option("--internal-rank", options.internal_rank)->group("");
  app.add_option("--internal-setting", options.internal_setting)->group("");
  app.add_option("--internal-seed", options.internal_seed)->group("");
  app.add_option("--internal-report-fd", options.internal_report_fd)->group("");
  app.add_option("--internal-job", options.internal_job)->group("");
}

absl::Status FillSettings(const RawFlags& raw, TrainOptions& options) {
  Setting base;
  CompressionConfig& gc = base.compression;
  gc.batch_size = options.batch_size;
  ASSIGN_OR_RETURN(gc.threshold, ParseThreshold(raw.threshold));
  base.threshold = raw.threshold;
  RETURN_IF_ERROR(ParseAllowedCodecs("--gc-allow", raw.gc_allow, gc));
  ASSIGN_OR_RETURN(gc.min_bytes, ParseBytes(raw.min_bytes));
  gc.rules = raw.rules;
  if (options.gc_dense_1d) {
    gc.rules =
        absl::StrCat(kOneDimension, raw.rules.empty() ? "" : ";", raw.rules);
  }
  gc.warmup_steps = raw.warmup_steps;
  gc.has_guard = raw.guard == "on";
  ASSIGN_OR_RETURN(gc.reply, ParseReplyMode(raw.reply));
  ASSIGN_OR_RETURN(gc.packing, ParsePackingMode(raw.packing));
  ASSIGN_OR_RETURN(gc.nonfinite, ParseNonFinitePolicy(raw.nonfinite));
  ASSIGN_OR_RETURN(base.update_on, ParseUpdateOn(raw.update_on));
  RETURN_IF_ERROR(CheckCodecRules(raw.rules));
  const std::string list = raw.compare.empty() ? raw.gc_type : raw.compare;
  for (const absl::string_view text : absl::StrSplit(list, ',')) {
    ASSIGN_OR_RETURN(Setting setting, ParseSetting(text, base));
    options.settings.push_back(std::move(setting));
  }
  for (const absl::string_view text : absl::StrSplit(raw.seeds, ',')) {
    uint64_t seed = 0;
    if (!absl::SimpleAtoi(text, &seed)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--seed: '", text, "' is not a number"));
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

absl::Status Finish(const CLI::App& app, const RawFlags& raw,
                    TrainOptions& options) {
  if (!options.show_checkpoint.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(FillSettings(raw, options));
  RETURN_IF_ERROR(FinishOptimizerFlags(raw.optimizer, options));
  RETURN_IF_ERROR(FinishMemberFlags(app, options));
  options.benchmark = raw.benchmark == 1;
  if (!options.internal_job.empty()) options.job_id = options.internal_job;
  options.cache_folder =
      CalibrationFolder(std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"));
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() > 0) options.given.insert(option->get_name());
  }
  options.laboratory.identity = IdentityOf(app);
  options.has_comparison = !raw.compare.empty();
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
  RETURN_IF_ERROR(CheckComparison(placement, options));
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

}  // namespace

TrainOptions ParseTrainOptions(int argc, char** argv, int* exit_code) {
  TrainOptions options;
  RawFlags raw;
  CLI::App app(kDescription, "telegrad-train");
  AddCompressionFlags(app, raw);
  AddPolicyFlags(app, options, raw);
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
  *exit_code = -1;
  for (int i = 0; i < argc; ++i) {
    absl::StrAppend(&options.command_line, i > 0 ? " " : "",
                    i > 0 ? argv[i] : "telegrad-train");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
    return options;
  }
  const absl::Status status = Finish(app, raw, options);
  if (!status.ok()) {
    std::cerr << "telegrad-train: " << status.message() << "\n";
    *exit_code = static_cast<int>(ExitCode::kUsage);
  }
  return options;
}

}  // namespace telegrad
