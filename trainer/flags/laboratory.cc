#include "trainer/flags/laboratory.h"

#include <CLI/CLI.hpp>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/folder.h"
#include "base/status_macros.h"
#include "trainer/flags/options.h"

namespace telegrad {

namespace {

// Why the runs of a comparison must not be beside each other; null: they may.
const char* WhyAlone(const TrainOptions& options) {
  if (!options.gpus.empty()) {
    return "each run would take the same GPUs: start one telegrad-train for "
           "each part of the GPUs, with --gpus, --compare and --out of its own";
  }
  if (!options.laboratory.what_if.empty()) {
    return "--what-if goes by measured times, which runs beside each other "
           "spoil";
  }
  const bool measures =
      options.has_auto_chunk ||
      options.path.transport.connections == kAutoConnections ||
      absl::c_any_of(options.settings,
                     [](const Setting& setting) { return setting.is_auto; });
  return measures ? "what is 'auto' here goes by measured times, which runs "
                    "beside each other spoil"
                  : nullptr;
}

}  // namespace

void AddLaboratoryFlags(CLI::App& app, LaboratoryOptions& options) {
  const char* group = "Laboratory";
  app.add_flag("--explain", options.explain,
               "say what would be done, and end: codec, reason and bytes of "
               "each tensor, memory, expected time of a step")
      ->group(group);
  app.add_option("--emulate-workers", options.emulate_workers,
                 "so many workers, with --servers, one after the other in one "
                 "process: their bits and bytes, not their time")
      ->check(CLI::Range(1, 64))
      ->group(group);
  app.add_flag("--log-json", options.log_json,
               "progress, messages and results on stdout as JSON, one object "
               "per line")
      ->group(group);
  app.add_option("--target", options.target,
                 "accuracy on the test set, 0.97: the report says when and "
                 "after how many bytes each setting had it")
      ->group(group);
  app.add_option("--what-if", options.what_if,
                 "rates of links, 100mbit,1gbit: what steps and trainings "
                 "would take there, by the simulator")
      ->group(group);
  app.add_option("--jobs", options.jobs,
                 "runs of a comparison at the same time; they share the cores, "
                 "so that their times cannot be compared")
      ->capture_default_str()
      ->check(CLI::Range(1, 64))
      ->group(group);
  app.add_flag("--continue", options.continues,
               "take the runs that --out has of the same command, and do those "
               "that are missing")
      ->group(group);
  app.add_option("--timeline", options.timeline,
                 "folder for Chrome traces, one of each worker: the stages of "
                 "each tensor in three steps, the 6th to 8th")
      ->group(group);
  app.add_option(
         "--tensorboard", options.tensorboard,
         "folder for TensorBoard's event files, a folder in it for each "
         "run: loss, accuracy, speed and bytes while it trains")
      ->group(group);
}

absl::Status SettleEmulation(const std::optional<Placement>& placement,
                             TrainOptions& options) {
  LaboratoryOptions& laboratory = options.laboratory;
  if (laboratory.emulate_workers == 0) return absl::OkStatus();
  const auto refuse = [](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(why...));
  };
  if (placement.has_value()) {
    return refuse("--emulate-workers is one process, but ", placement->launcher,
                  " started this one among others: leave it out, or start "
                  "telegrad-train by itself");
  }
  for (const char* flag :
       {"--workers", "--devices", "--kv-store", "--link", "--transport",
        "--scheduler", "--variable-update", "--work-load-list", "--what-if",
        "--connections", "--resend", "--rails", "--tls", "--tcp-congestion",
        "--encryption"}) {
    if (!options.given.contains(flag)) continue;
    return refuse(flag,
                  " is for workers that are processes: leave it out "
                  "beside --emulate-workers");
  }
  if (options.servers < 1) {
    return refuse("--emulate-workers needs a server: --servers 1");
  }
  laboratory.emulated_servers = options.servers;
  options.given.erase("--servers");
  options.kv_store = "local";
  options.devices = laboratory.emulate_workers;
  return absl::OkStatus();
}

absl::Status CheckComparison(const std::optional<Placement>& placement,
                             const TrainOptions& options) {
  const LaboratoryOptions& laboratory = options.laboratory;
  const bool has_jobs = laboratory.jobs > 1;
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(why...));
  };
  if ((has_jobs || laboratory.continues) &&
      (placement.has_value() || !options.scheduler.empty())) {
    return refuse(has_jobs ? "--jobs" : "--continue",
                  " is for runs whose processes this program starts, but ",
                  placement.has_value() ? placement->launcher : "--scheduler",
                  placement.has_value() ? " started this one among others"
                                        : " makes it one of a job's",
                  ": leave it out, or start telegrad-train by itself");
  }
  if (!has_jobs) return absl::OkStatus();
  if (options.settings.size() * options.seeds.size() == 1) {
    return refuse(
        "--jobs has no effect: there is one run, of one setting and "
        "one seed");
  }
  if (const char* const why = WhyAlone(options); why != nullptr) {
    return refuse("--jobs ", laboratory.jobs, ": ", why);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NamedLink>> ParseLinks(absl::string_view list) {
  std::vector<NamedLink> links;
  for (const absl::string_view text : absl::StrSplit(list, ',')) {
    const absl::StatusOr<LinkSpec> link = ParseLink(text);
    if (!link.ok() || link->bytes_per_s <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--what-if: '", text,
                       "' is no rate; it takes some, as in 100mbit,1gbit"));
    }
    links.push_back({std::string(text), *link});
  }
  return links;
}

absl::Status FinishLaboratoryFlags(const TrainOptions& options) {
  const LaboratoryOptions& laboratory = options.laboratory;
  if (!laboratory.timeline.empty() && !laboratory.explain) {
    RETURN_IF_ERROR(MakeFolder("--timeline", laboratory.timeline));
  }
  if (!laboratory.tensorboard.empty() && !laboratory.explain) {
    RETURN_IF_ERROR(MakeFolder("--tensorboard", laboratory.tensorboard));
  }
  if (options.given.contains("--what-if")) {
    RETURN_IF_ERROR(ParseLinks(laboratory.what_if).status());
    const auto store = FindStoreType(options.kv_store);
    if (options.local_steps > 0 || options.drop_slowest > 0 ||
        (store.ok() && store->is_async)) {
      return absl::InvalidArgumentError(
          "--what-if: the simulator plays synchronous steps; leave it out "
          "beside --local-steps, --drop-slowest and --kv-store dist_async");
    }
  }
  if (!options.given.contains("--target")) return absl::OkStatus();
  if (!(laboratory.target > 0 && laboratory.target <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--target ", laboratory.target,
        ": it is a share of the test set, above 0 and at most 1: 0.97"));
  }
  if (options.benchmark) {
    return absl::InvalidArgumentError(
        "--target has no effect: --benchmark 1 evaluates nothing");
  }
  return absl::OkStatus();
}

}  // namespace telegrad
