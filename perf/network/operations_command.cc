#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "kvstore/group_options.h"
#include "kvstore/operations/operations.h"
#include "perf/network/command.h"
#include "perf/network/commands.h"
#include "perf/network/launch.h"
#include "perf/network/measurement.h"
#include "perf/network/report.h"

// operations: what ranks need to agree on the tensors of a step, which each
// submits in an order of its own.
namespace telegrad::perf {
namespace {

using operations::Kind;
using operations::Operations;
using operations::Submission;

struct Options {
  NetworkOptions network;
  int tensors = 161;     // as many as ResNet-50 has
  std::string timeline;  // a file of every other step; "": none
};

class Steps {
 public:
  Steps(const Options& options, int rank, size_t elems,
        std::unique_ptr<Operations> operations)
      : options_(options),
        operations_(std::move(operations)),
        random_(static_cast<unsigned>(rank) + 1),
        data_(static_cast<size_t>(options.tensors), std::vector<float>(elems)),
        order_(data_.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
  }

  // Microseconds of agreement in one step. Every other one has a timeline,
  // where one is asked for; all begin together then, as ranks write files
  // between.
  absl::StatusOr<double> Step(const Rank& rank) {
    std::shuffle(order_.begin(), order_.end(), random_);
    for (std::vector<float>& tensor : data_) {
      std::fill(tensor.begin(), tensor.end(), 1.0f);
    }
    const std::string& file = options_.timeline;
    const bool is_traced = !file.empty() && steps_.size() % 2 == 1;
    if (is_traced) RETURN_IF_ERROR(operations_->StartTimeline(file, false));
    if (!file.empty()) RETURN_IF_ERROR(rank.gather("").status());
    const double before_s = operations_->agreeing_s();
    const TimePoint start = Clock::now();
    std::vector<int64_t> handles;
    for (const size_t tensor : order_) {
      ASSIGN_OR_RETURN(handles.emplace_back(), Submit(tensor));
    }
    for (const int64_t handle : handles) RETURN_IF_ERROR(Await(handle));
    steps_.push_back({SecondsSince(start) * 1e6, is_traced});
    if (is_traced) RETURN_IF_ERROR(operations_->StopTimeline());
    if (options_.network.checks) RETURN_IF_ERROR(Check());
    return (operations_->agreeing_s() - before_s) * 1e6;
  }

  // This rank's median of the last `num` steps, of those with a timeline or
  // those without.
  int64_t StepUs(size_t num, bool is_traced) const {
    std::vector<double> us;
    for (size_t i = steps_.size() - num; i < steps_.size(); ++i) {
      if (steps_[i].is_traced == is_traced) us.push_back(steps_[i].us);
    }
    std::sort(us.begin(), us.end());
    return us.empty() ? 0 : static_cast<int64_t>(us[us.size() / 2]);
  }

 private:
  absl::StatusOr<int64_t> Submit(size_t tensor) {
    auto wanted = std::make_shared<Submission>();
    wanted->request.kind = Kind::kAllreduce;
    wanted->request.name = absl::StrCat("layer", tensor, ".weight");
    wanted->request.shape = {static_cast<int64_t>(data_[tensor].size())};
    wanted->in = wanted->out = data_[tensor].data();
    wanted->out_elems = data_[tensor].size();
    return operations_->Submit(std::move(wanted));
  }

  absl::Status Await(int64_t handle) {
    bool is_done = false;
    RETURN_IF_ERROR(operations_->queue().Wait(
        handle, Clock::now() + TimeoutOf(options_.network), &is_done));
    if (!is_done) return absl::DeadlineExceededError("a step did not end");
    return operations_->queue().Release(handle);
  }

  absl::Status Check() const {
    const auto right = static_cast<float>(options_.network.ranks);
    for (size_t i = 0; i < data_.size(); ++i) {
      for (const float value : data_[i]) {
        if (value == right) continue;
        return absl::DataLossError(
            absl::StrCat("tensor ", i, " has ", value, ", the sum is ", right));
      }
    }
    return absl::OkStatus();
  }

  struct Took {
    double us = 0;
    bool is_traced = false;
  };
  const Options& options_;
  const std::unique_ptr<Operations> operations_;
  std::mt19937 random_;
  std::vector<std::vector<float>> data_;
  std::vector<size_t> order_;
  std::vector<Took> steps_;
};

// Rank 0 gets for each step the time of the rank that waited least. What others
// wait is how much later that one has submitted its tensors.
absl::StatusOr<Series> LeastOfRanks(const Rank& rank, Series mine) {
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   rank.gather(absl::StrJoin(mine.us, " ")));
  if (rank.rank > 0) mine.us.clear();
  for (size_t i = 1; i < all.size() && rank.rank == 0; ++i) {
    const std::vector<std::string> texts = absl::StrSplit(all[i], ' ');
    for (size_t step = 0; step < mine.us.size(); ++step) {
      double us = 0;
      if (step >= texts.size() || !absl::SimpleAtod(texts[step], &us)) {
        return absl::DataLossError(
            absl::StrCat("rank ", i, "'s times are malformed"));
      }
      mine.us[step] = std::min(mine.us[step], us);
    }
  }
  return mine;
}

absl::Status Run(const Options& options, WorkerGroup& workers) {
  const NetworkOptions& network = options.network;
  const Rank rank(workers);
  Report report(network, absl::StrCat("agreement on ", options.tensors,
                                      " tensors in random orders"));
  for (const size_t bytes : network.sizes) {
    GroupOptions group_options = GroupOptionsOf(workers);
    group_options.timeout = TimeoutOf(network);
    ASSIGN_OR_RETURN(
        std::unique_ptr<Group> group,
        Group::Make(group_options, [&](const std::string& mine, TimePoint) {
          return rank.gather(mine);
        }));
    const TransportInfo info = group->info();
    operations::Options how;
    how.timeout = TimeoutOf(network);
    ASSIGN_OR_RETURN(std::unique_ptr<Operations> operations,
                     Operations::Make(std::move(group), std::move(how)));
    Steps steps(options, rank.rank, bytes / sizeof(float),
                std::move(operations));
    ASSIGN_OR_RETURN(Series series, RunIterations(network, rank, [&] {
                       return steps.Step(rank);
                     }));
    const size_t num = series.us.size();
    std::vector<std::pair<std::string, NetworkRow::Setting>> settings = {
        {"tensors", int64_t{options.tensors}},
        {"step_us", steps.StepUs(num, /*is_traced=*/false)}};
    if (!options.timeline.empty()) {
      settings.emplace_back("timeline_step_us",
                            steps.StepUs(num, /*is_traced=*/true));
    }
    ASSIGN_OR_RETURN(series, LeastOfRanks(rank, std::move(series)));
    ASSIGN_OR_RETURN(const Result result, Combine(rank, series));
    if (rank.rank > 0) continue;
    report.Add({.what = "operations",
                .ranks = workers.num_workers(),
                .size_bytes = bytes * static_cast<size_t>(options.tensors),
                .bytes_moved = static_cast<double>(bytes) * options.tensors,
                .checked = network.checks ? "values" : "no",
                .result = result,
                .settings = std::move(settings)},
               info);
  }
  return rank.rank == 0 ? report.Finish() : absl::OkStatus();
}

}  // namespace

void AddOperationsCommand(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();
  AddNetworkFlags(app, "4", options->network);
  app.add_option("--tensors", options->tensors,
                 "allreduces of a step, each of --size bytes")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option(
      "--timeline", options->timeline,
      "file of the trace that every other step has (rank 1: FILE.1): "
      "what it costs");
  SetNetworkCallback(
      app, options->network, exit_code,
      [options](const std::vector<std::string>& words) -> absl::Status {
        RETURN_IF_ERROR(FinishOptions(options->network));
        return RunRanks(
            options->network, words,
            {.facts = {{"command", "operations"},
                       {"--tensors", absl::StrCat(options->tensors)},
                       {"--timeline",
                        options->timeline.empty() ? "no" : "yes"}},
             .work = [&](const NetworkOptions& network, WorkerGroup& workers) {
               Options mine = *options;
               mine.network = network;
               return Run(mine, workers);
             }});
      });
}

}  // namespace telegrad::perf
