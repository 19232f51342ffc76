#include "topology/cli/plan_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "topology/cli/output.h"
#include "topology/import.h"
#include "topology/plan.h"

namespace telegrad::topo {
namespace {

struct PlanFlags {
  std::vector<std::string> from = {};
  std::string calibration = {};
  std::string profile = "resnet50";
  std::string aggregation = {};
  std::string gdr = "auto";
  std::string memory = "auto";
  double compute_ms = 0;
  int64_t chunk_elems = 0;
  int benchmark = 0;
  bool json = false;
  bool print_calibration = false;
  bool has_allow = false;  // --gc-allow was given
  PlanRequest request = {};
};

std::vector<std::string> AggregationNames() {
  std::vector<std::string> names;
  for (const Aggregation each : kAggregations) names.push_back(Name(each));
  return names;
}

// Flags for decisions that the planner makes where they are not given.
void DeclareConstraints(CLI::App& app, PlanFlags& flags) {
  PlanRequest& request = flags.request;
  app.add_option("--chunk-elements", flags.chunk_elems,
                 "of all tensors' chunks; 0: the best for each tensor")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 32));
  app.add_option("--transport", request.network.value,
                 "TCP, IB, RoCEv2 or EFA; without: by the machines")
      ->envname("TELEGRAD_TRANSPORT");
  app.add_option("--tls", request.tls.value,
                 "how the transport reaches peers; without: its own choice");
  app.add_option("--connections", request.connections.value,
                 "of a pair of machines; without: by network and rate")
      ->check(CLI::Range(1, 64));
  app.add_option("--aggregation", flags.aggregation,
                 "who sums; without: the planner")
      ->check(CLI::IsMember(AggregationNames()));
  app.add_option("--memory", flags.memory,
                 "host: gradients are in host memory, as those of runs, "
                 "whatever GPUs there are; auto: where GPUs are, in theirs")
      ->check(CLI::IsMember({"auto", "host"}))
      ->capture_default_str();
  app.add_option("--gdr", flags.gdr, "GPUDirect RDMA: auto, on, off")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
}

void Declare(CLI::App& app, PlanFlags& flags) {
  PlanRequest& request = flags.request;
  app.add_option("--from", flags.from,
                 "files that describe the machines (telegrad-topo show --json, "
                 "XML of NCCL or hwloc), one for each; without: all as "
                 "TELEGRAD_TOPO_FILE, else alike with one card and no GPU");
  app.add_option("--calibration", flags.calibration,
                 "JSON of measured speeds; without: defaults, which justify no "
                 "lossy codec");
  app.add_flag("--print-calibration", flags.print_calibration,
               "print the calibration that would be used, and stop");
  app.add_option("--profile", flags.profile,
                 "network whose gradients are exchanged: a name or FILE.csv")
      ->capture_default_str();
  app.add_option("--workers", request.workers,
                 "machines with workers; 0: one for each machine read")
      ->capture_default_str();
  app.add_option("--servers", request.servers, "machines with servers only")
      ->capture_default_str();
  app.add_option("--link-gbps", request.link_gbps,
                 "gigabits/s of a machine, each direction; 0: by calibration "
                 "and ports")
      ->capture_default_str();
  app.add_option("--compute-ms", flags.compute_ms,
                 "a step without communication; 0: nothing hides behind it")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  app.add_option("--gc-type", request.gc_type,
                 "auto, none, or the codec to use whatever it costs")
      ->capture_default_str();
  app.add_option("--gc-allow", request.gc_allow,
                 "codecs that auto may choose; all: those of the calibration")
      ->default_val(std::vector<std::string>{kDefaultAllowed})
      ->delimiter(',');
  DeclareConstraints(app, flags);
  app.add_option("--benchmark", flags.benchmark,
                 "plan so often and print the seconds of the least and the "
                 "median plan")
      ->check(CLI::Range(1, 1'000'000));
  app.add_flag("--json", flags.json, "one JSON object instead of text");
}

absl::StatusOr<Calibration> ReadCalibration(const PlanFlags& flags) {
  if (flags.calibration.empty()) return AssumedCalibration();
  return LoadCalibration(flags.calibration);
}

// What the environment says counts for each machine, as in a run.
absl::StatusOr<std::vector<Machine>> ReadMachines(
    std::vector<std::string> paths) {
  ASSIGN_OR_RETURN(const TopologyOptions options,
                   TopologyOptionsFromEnvironment());
  if (paths.empty() && !options.topo_file.empty()) {
    paths = {options.topo_file};
  }
  std::vector<Machine> machines;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(Machine machine, MachineFromFile(path, options));
    machines.push_back(std::move(machine));
  }
  return machines;
}

// Seconds of each of several plans, ascending.
absl::StatusOr<std::vector<double>> Benchmark(
    const std::vector<Machine>& machines, const Calibration& calibration,
    const PlanFlags& flags) {
  std::vector<double> seconds;
  for (int i = 0; i < flags.benchmark; ++i) {
    const auto start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(MakePlan(machines, calibration, flags.request).status());
    const std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - start;
    seconds.push_back(elapsed.count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

// The flags that decide instead of the planner.
void SetConstraints(PlanFlags& flags) {
  flags.request.compute_s = flags.compute_ms / 1e3;
  if (flags.chunk_elems > 0) {
    flags.request.chunk_bytes = {
        4 * flags.chunk_elems,
        absl::StrCat("--chunk-elements ", flags.chunk_elems)};
  }
  if (const std::string& network = flags.request.network.value;
      !network.empty()) {
    flags.request.network.by = absl::StrCat("--transport ", network);
  }
  if (const std::string& tls = flags.request.tls.value; !tls.empty()) {
    flags.request.tls.by = absl::StrCat("--tls ", tls);
  }
  if (const int count = flags.request.connections.value; count > 0) {
    flags.request.connections.by = absl::StrCat("--connections ", count);
  }
  for (const Aggregation each : kAggregations) {
    if (flags.aggregation != Name(each)) continue;
    flags.request.aggregation = {each,
                                 absl::StrCat("--aggregation ", Name(each))};
  }
  if (flags.memory == "host") {
    flags.request.host_memory = {true, "--memory host"};
  }
}

// Refuses flags that would change nothing beside others.
absl::Status CheckFlags(const PlanFlags& flags) {
  if (flags.has_allow && flags.request.gc_type != "auto") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--gc-allow has no effect: it lists the codecs for --gc-type auto, and "
        "--gc-type is ",
        flags.request.gc_type));
  }
  if (flags.request.servers > 0 && !flags.aggregation.empty() &&
      flags.aggregation != Name(Aggregation::kDedicatedServers)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--servers ", flags.request.servers, " has no effect: --aggregation ",
        flags.aggregation, " has no machines with servers only"));
  }
  return absl::OkStatus();
}

absl::Status Run(PlanFlags& flags) {
  ASSIGN_OR_RETURN(flags.request.gdr, ParseGdr(flags.gdr));
  ASSIGN_OR_RETURN(Calibration calibration, ReadCalibration(flags));
  if (flags.print_calibration) {
    return Print(CalibrationToJson(calibration));
  }
  RETURN_IF_ERROR(CheckFlags(flags));
  ASSIGN_OR_RETURN(flags.request.profile, LoadGradientProfile(flags.profile));
  if (flags.request.gc_allow == std::vector<std::string>{"all"}) {
    flags.request.gc_allow.clear();
  } else if (!flags.has_allow &&
             calibration.FindCodec(kDefaultAllowed) == nullptr) {
    // Nobody asked for it: it stands there as not measured.
    calibration.codecs.push_back(
        *AssumedCalibration().FindCodec(kDefaultAllowed));
  }
  SetConstraints(flags);
  ASSIGN_OR_RETURN(const std::vector<Machine> machines,
                   ReadMachines(flags.from));
  if (flags.benchmark > 0) {
    ASSIGN_OR_RETURN(const std::vector<double> seconds,
                     Benchmark(machines, calibration, flags));
    return Print(absl::StrFormat("%.6f s least, %.6f s median of %d plans\n",
                                 seconds.front(), seconds[seconds.size() / 2],
                                 flags.benchmark));
  }
  ASSIGN_OR_RETURN(const Plan plan,
                   MakePlan(machines, calibration, flags.request));
  return Print(flags.json ? PlanToJson(plan) : PlanToText(plan));
}

}  // namespace

void AddPlanCommand(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PlanFlags>();
  Declare(app, *flags);
  app.callback([flags, &app, &exit_code] {
    flags->has_allow = app.count("--gc-allow") > 0;
    exit_code = Finish("plan", Run(*flags));
  });
}

}  // namespace telegrad::topo
