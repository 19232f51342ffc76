#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/of_flag.h"
#include "base/status_macros.h"
#include "kvstore/collective/choose.h"
#include "kvstore/group_options.h"
#include "perf/network/collective_cases.h"
#include "perf/network/command.h"
#include "perf/network/commands.h"
#include "perf/network/launch.h"
#include "perf/network/measurement.h"
#include "perf/network/report.h"
#include "topology/profiles.h"

// allreduce, reducescatter, allgather, broadcast, alltoall and barrier, with
// the sizes and factors of nccl-tests.
namespace telegrad::perf {
namespace {

struct Options {
  NetworkOptions network;
  std::string algorithm = "auto";
  std::string type = "float32";
  std::string profile;
  int root = 0;
};

class CollectiveRun {
 public:
  CollectiveRun(const Options& options, const CollectiveCase& which,
                const Rank& rank, Group& group,
                const GroupOptions& group_options, CollectiveSettings settings,
                Dtype type)
      : options_(options),
        case_(which),
        rank_(rank),
        group_(group),
        group_options_(group_options),
        settings_(settings),
        type_(type) {}

  // Counts of one iteration's calls, one after the other.
  absl::StatusOr<NetworkRow> Measure(const std::vector<size_t>& counts,
                                     const std::string& profile) {
    const size_t max_count = *std::max_element(counts.begin(), counts.end());
    RETURN_IF_ERROR(CollectiveData::CheckMemory(
        case_, type_, group_.world_size(), max_count));
    CollectiveData data(case_, type_, group_.rank(), group_.world_size(),
                        options_.root, max_count);
    ASSIGN_OR_RETURN(const Device device,
                     PayloadDevice(options_.network.memory, rank_.rank));
    RETURN_IF_ERROR(data.MoveTo(device));
    GroupTraffic traffic;
    int timed = 0;
    ASSIGN_OR_RETURN(
        Series series,
        RunIterations(options_.network, rank_, [&]() -> absl::StatusOr<double> {
          ++timed;
          return Iterate(counts, data, &traffic);
        }));
    // Iterations that warmed up sent as much.
    const auto share = static_cast<int64_t>(series.us.size());
    series.payload_bytes = traffic.payload_bytes / timed * share;
    series.header_bytes = traffic.header_bytes / timed * share;
    ASSIGN_OR_RETURN(const Result result, Combine(rank_, series));
    return RowOf(counts, profile, result);
  }

 private:
  // With --check each call has a start, inputs and a verdict of its own.
  absl::StatusOr<double> Iterate(const std::vector<size_t>& counts,
                                 CollectiveData& data, GroupTraffic* traffic) {
    const bool checks = options_.network.checks;
    double us = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      if (checks) RETURN_IF_ERROR(data.Fill());
      if (checks || i == 0) RETURN_IF_ERROR(group_.Barrier());
      const GroupTraffic before = group_.traffic();
      const TimePoint start = Clock::now();
      RETURN_IF_ERROR(data.Call(group_, counts[i], settings_));
      us += SecondsSince(start) * 1e6;
      const GroupTraffic after = group_.traffic();
      traffic->payload_bytes += after.payload_bytes - before.payload_bytes;
      traffic->header_bytes += after.header_bytes - before.header_bytes;
      if (checks) RETURN_IF_ERROR(data.Verify(counts[i]));
    }
    return us;
  }

  NetworkRow RowOf(const std::vector<size_t>& counts,
                   const std::string& profile, const Result& result) const {
    const int n = group_.world_size();
    size_t bytes = 0;
    for (const size_t count : counts) {
      bytes += count * SizeOf(type_) * BlocksOf(case_, n);
    }
    return {.what = case_.name,
            .algorithm = AlgorithmOf(counts),
            .profile = profile,
            .ranks = n,
            .size_bytes = bytes,
            .bytes_moved = static_cast<double>(bytes),
            .bus_factor = BusFactor(case_, n),
            .raw_bytes = result.payload_bytes,
            .wire_bytes = result.payload_bytes + result.header_bytes,
            .checked = options_.network.checks ? "values" : "no",
            .result = result,
            .settings = {{"datatype", ToString(type_)},
                         {"memory", options_.network.memory}}};
  }

  // What ran, where all calls of an iteration took the same.
  std::string AlgorithmOf(const std::vector<size_t>& counts) const {
    if (counts.size() > 1) return ToString(settings_.algorithm);
    const auto chosen =
        collective::Choose(OperationOf(case_), settings_.algorithm,
                           counts[0] * SizeOf(type_), group_options_);
    return ToString(chosen.ok() ? *chosen : settings_.algorithm);
  }

  const Options& options_;
  const CollectiveCase& case_;
  const Rank& rank_;
  Group& group_;
  const GroupOptions& group_options_;
  const CollectiveSettings settings_;
  const Dtype type_;
};

absl::StatusOr<Dtype> ParseType(const std::string& text) {
  std::string all;
  for (const Dtype type :
       {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16, Dtype::kInt32,
        Dtype::kInt64, Dtype::kFloat64, Dtype::kUint8}) {
    if (text == ToString(type)) return type;
    absl::StrAppend(&all, all.empty() ? "" : ", ", ToString(type));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--datatype \"", text, "\" is none of ", all));
}

// What one iteration calls, for each line of the report.
absl::StatusOr<std::vector<std::vector<size_t>>> CountsOf(
    const Options& options, const CollectiveCase& which, Dtype type) {
  std::vector<std::vector<size_t>> all;
  if (options.profile.empty()) {
    const size_t piece = SizeOf(type) * BlocksOf(which, options.network.ranks);
    for (const size_t bytes : options.network.sizes) {
      // At least an element, as long as there is anything to send.
      all.push_back({bytes == 0 ? 0 : std::max<size_t>(1, bytes / piece)});
    }
    if (all.empty()) all.push_back({0});
    return all;
  }
  ASSIGN_OR_RETURN(const GradientProfile profile,
                   LoadGradientProfile(options.profile));
  std::vector<size_t> counts;
  for (const ProfileTensor& tensor : profile.tensors) {
    counts.push_back(static_cast<size_t>(tensor.num_elems));
  }
  std::reverse(counts.begin(), counts.end());  // as gradients become ready
  all.push_back(std::move(counts));
  return all;
}

// An allreduce by the plan's aggregation.
absl::Status SettleAlgorithm(Options& options) {
  if (options.network.path.given == nullptr) return absl::OkStatus();
  const GivenPlan& given = *options.network.path.given;
  const Aggregation way = given.plan.aggregation;
  std::string name;
  for (const Aggregation each :
       {Aggregation::kRing, Aggregation::kRecursiveDoubling,
        Aggregation::kHalvingDoubling, Aggregation::kTree}) {
    if (each == way) name = absl::StrReplaceAll(Name(way), {{"-", "_"}});
  }
  if (way == Aggregation::kLocal) return absl::OkStatus();
  if (name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(given.by, " has aggregation ", Name(way),
                     ", which is no allreduce; pushpull obeys it, or plan with "
                     "--aggregation ring"));
  }
  if (options.algorithm != "auto" && options.algorithm != name) {
    return absl::InvalidArgumentError(absl::StrCat(
        given.by, " has aggregation ", Name(way), ", --algorithm says ",
        options.algorithm, "; leave one of them out"));
  }
  options.algorithm = name;
  return absl::OkStatus();
}

// What no rank could do, before any starts.
absl::Status CheckOptions(const Options& options, const CollectiveCase& which) {
  ASSIGN_OR_RETURN(const CollectiveAlgorithm algorithm,
                   OfFlag("--algorithm", options.algorithm,
                          ParseCollectiveAlgorithm(options.algorithm)));
  RETURN_IF_ERROR(
      OfFlag("--algorithm", options.algorithm,
             collective::Choose(OperationOf(which), algorithm, 0, {}))
          .status());
  ASSIGN_OR_RETURN(const Dtype type, ParseType(options.type));
  RETURN_IF_ERROR(CountsOf(options, which, type).status());
  ASSIGN_OR_RETURN(const bool starts_all, StartsAll(options.network));
  const int ranks = options.network.ranks;  // else the launcher's
  if (starts_all && ranks < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--ranks ", ranks, ": one rank has nobody to talk to; take 2 or more"));
  }
  if (options.root >= 0 && (options.root < ranks || !starts_all)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--root ", options.root, ": ranks are 0 to ", ranks - 1));
}

absl::Status RunCollective(const Options& options, const CollectiveCase& which,
                           WorkerGroup& workers) {
  const NetworkOptions& network = options.network;
  const Rank rank(workers);
  ASSIGN_OR_RETURN(const CollectiveAlgorithm algorithm,
                   ParseCollectiveAlgorithm(options.algorithm));
  ASSIGN_OR_RETURN(const Dtype type, ParseType(options.type));
  ASSIGN_OR_RETURN(const auto all, CountsOf(options, which, type));
  GroupOptions group_options = GroupOptionsOf(workers);
  group_options.timeout = TimeoutOf(network);
  if (network.memory != "host") {
    ASSIGN_OR_RETURN(const Device device,
                     PayloadDevice(network.memory, rank.rank));
    group_options.backend = "nccl";
    group_options.device = device.ordinal;
  }
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Group> group,
      Group::Make(group_options, [&](const std::string& mine, TimePoint) {
        return rank.gather(mine);
      }));
  CollectiveRun run(options, which, rank, *group, group_options,
                    {.algorithm = algorithm}, type);
  Report report(network, absl::StrCat(which.name, " of ", options.type));
  for (const std::vector<size_t>& counts : all) {
    ASSIGN_OR_RETURN(const NetworkRow row,
                     run.Measure(counts, options.profile));
    if (rank.rank == 0) report.Add(row, group->info());
  }
  RETURN_IF_ERROR(group->Barrier());
  return rank.rank == 0 ? report.Finish() : absl::OkStatus();
}

void Add(CLI::App& app, int& exit_code, const CollectiveCase& which) {
  const auto options = std::make_shared<Options>();
  AddNetworkFlags(app, which.default_sizes, options->network);
  app.add_option("--algorithm", options->algorithm,
                 "auto, or one that docs/collectives.md has for it")
      ->capture_default_str();
  if (which.kind != CollectiveKind::kBarrier) {
    app.add_option("--datatype", options->type,
                   "float32, float16, bfloat16, int32, int64, float64, uint8")
        ->capture_default_str();
  }
  if (which.kind == CollectiveKind::kBroadcast) {
    app.add_option("--root", options->root, "the rank whose data all get")
        ->capture_default_str();
  }
  if (which.kind == CollectiveKind::kAllreduce) {
    AddMemoryFlag(app, options->network);
    app.add_option("--profile", options->profile,
                   "instead of sizes a network's gradients, one call each: "
                   "vgg16, alexnet, resnet50, resnet152, inceptionv3 or "
                   "FILE.csv");
  }
  SetNetworkCallback(
      app, options->network, exit_code,
      [options, &which](const std::vector<std::string>& words) -> absl::Status {
        RETURN_IF_ERROR(FinishOptions(options->network));
        if (which.kind == CollectiveKind::kAllreduce) {
          RETURN_IF_ERROR(SettleAlgorithm(*options));
        }
        RETURN_IF_ERROR(CheckOptions(*options, which));
        return RunRanks(
            options->network, words,
            {.facts = {{"command", which.name},
                       {"--profile", options->profile},
                       {"--datatype", options->type},
                       {"--algorithm", options->algorithm},
                       {"--root", absl::StrCat(options->root)}},
             .work = [&](const NetworkOptions& network, WorkerGroup& workers) {
               Options mine = *options;
               mine.network = network;
               return RunCollective(mine, which, workers);
             }});
      });
}

}  // namespace

void AddAllreduceCommand(CLI::App& app, int& exit_code) {
  Add(app, exit_code, kAllreduceCase);
}
void AddReduceScatterCommand(CLI::App& app, int& exit_code) {
  Add(app, exit_code, kReduceScatterCase);
}
void AddAllgatherCommand(CLI::App& app, int& exit_code) {
  Add(app, exit_code, kAllgatherCase);
}
void AddBroadcastCommand(CLI::App& app, int& exit_code) {
  Add(app, exit_code, kBroadcastCase);
}
void AddAlltoallCommand(CLI::App& app, int& exit_code) {
  Add(app, exit_code, kAlltoallCase);
}
void AddBarrierCommand(CLI::App& app, int& exit_code) {
  Add(app, exit_code, kBarrierCase);
}

}  // namespace telegrad::perf
