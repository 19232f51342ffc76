#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// How a tensor's codec does, on worker 0, from a sample of the tensor's
// elements; the same names in metrics.jsonl. Shares are 0..1; what is not
// defined is NaN, in metrics.jsonl null.
struct TensorMetrics {
  std::string tensor;
  std::string codec;           // in force
  double residual_ratio = 0;   // norm of the residual / of late gradients
  double zero_share = 0;       // sent as 0
  double saturated_share = 0;  // residual beyond 64 thresholds
  double cosine = 0;           // between what was sent and the gradient
  double relative_error = 0;   // norm of their difference / of the gradient
  int64_t num_nonfinite = 0;   // since the start
};

// One row of metrics.jsonl: where a run stood after `step` optimizer steps.
struct MetricPoint {
  int epoch = 0;
  int64_t step = 0;
  double seconds = 0;         // since the first step began
  double train_loss = 0;      // mean since the point before
  double train_accuracy = 0;  // 0..1
  double test_loss = -1;      // < 0: not evaluated here
  double test_accuracy = -1;
  int64_t wire_bytes = 0;  // all workers, push + pull, headers included
  std::vector<TensorMetrics> tensors = {};  // compressed ones
};

// One decision of a plan, as text.
struct ReportedDecision {
  std::string what = {};
  std::string choice = {};
  std::string why = {};
  bool operator==(const ReportedDecision&) const = default;
};

// The plan of a run's exchange; an object of a run's object.
struct ReportedPlan {
  std::string digest = {};  // hexadecimal; empty: no plan
  std::vector<ReportedDecision> decisions = {};
  std::string file = {};  // all of it, as PlanToJson has it: for --plan
  bool operator==(const ReportedPlan&) const = default;
};

// What a tensor's exchange takes, of one worker and step: at most, with frame
// headers.
struct TensorBytes {
  std::string tensor = {};
  std::string codec = {};
  std::string reason = {};  // "type 2bit"
  std::string reply = {};   // "dense", "sum", "reencode"
  int64_t elements = 0;
  int64_t push_bytes = 0;
  int64_t pull_bytes = 0;
};

// A stage of something in one step of worker 0, in seconds from its begin.
struct StageSpan {
  std::string row = {};   // a tensor, or "step"
  std::string what = {};  // "encode"
  double begin_s = 0;
  double end_s = 0;
};

// Where a run was made: "CPU", "Intel(R) Xeon(R) ...".
struct EnvironmentFact {
  std::string what = {};
  std::string value = {};
  bool operator==(const EnvironmentFact&) const = default;
};

// One setting of a comparison; an object of summary.json under these names.
// Byte counts and comm_wait_s are totals over all workers.
struct RunSummary {
  std::string setting;  // "2bit", "2bit:reply=reencode"
  uint64_t seed = 0;
  int workers = 0;
  int servers = 0;
  double accuracy = 0;  // final, on the test set, 0..1
  double loss = 0;
  int64_t steps = 0;
  double seconds = 0;  // training's seconds, without evaluation
  double samples_per_s = 0;
  int64_t push_raw_bytes = 0;
  int64_t push_wire_bytes = 0;
  int64_t pull_raw_bytes = 0;
  int64_t pull_wire_bytes = 0;
  double comm_wait_s = 0;
  std::string weights_sha256;
  // Added later: none above may be renamed.
  std::string network;
  std::string data;
  std::string codec;
  std::string reply;      // "sum", "reencode", "dense"
  std::string update_on;  // "worker", "server"
  std::string threshold;  // as given: "auto", "0.5", "0.5:batch"
  std::string transport;  // what the context says of itself
  std::string link;       // "none" or as given
  double step_seconds_p50 = 0;
  double step_seconds_min = 0;
  double byte_limit_s = 0;  // least time per step on the emulated link; 0: none
  int64_t worker_peak_bytes = 0;  // largest resident set of any worker
  int64_t server_peak_bytes = 0;
  int64_t model_bytes = 0;  // parameters, float32
  // Bytes that the store copied between hosts and GPUs.
  int64_t to_device_bytes = 0;
  int64_t from_device_bytes = 0;
  // Tensors; those with a codec; those that are below --gc-min-bytes; and the
  // codecs' share of the gradient's bytes as floats.
  int64_t num_tensors = 0;
  int64_t num_compressed = 0;
  int64_t num_small = 0;
  double compressed_share = 0;
  // What was chosen while it ran, and why: "auto, step 9: compression off:
  // ...", and what the guard made dense.
  std::vector<std::string> decisions = {};
  // Hints and warnings; stragglers of a while: "at step 40: straggler ...".
  std::vector<std::string> warnings = {};
  ReportedPlan plan = {};
  std::vector<TensorBytes> tensors = {};
  std::vector<EnvironmentFact> environment = {};  // worker 0's
  // Lags of an asynchronous store: "worker/0: largest 3, mean 0.51"; with
  // --drop-slowest how late it was, and ", late 9 pushes of chunks, 2 steps
  // left out".
  std::vector<std::string> staleness = {};
  // Who made the others wait: "straggler worker/1: 5.1 times the median, ...".
  std::vector<std::string> stragglers = {};
  int jobs = 1;  // most runs at the same time as this one, which is counted
  // The program and the flags that were not as by default and can change
  // results, "--lr" and "0.1"; empty: not known.
  std::vector<EnvironmentFact> identity = {};
  // One of its steps; the first entry is the step itself. Empty: none was
  // noted.
  std::vector<StageSpan> timeline = {};
  std::vector<MetricPoint> points;  // not in summary.json
};

std::string ToJson(const MetricPoint& point, absl::string_view setting,
                   uint64_t seed);
std::string ToJson(const RunSummary& run);  // without points
// The run as a line of --log-json: {"event":"result",...}.
std::string ResultEvent(const RunSummary& run);
// Reads what ToJson(RunSummary) wrote. Unknown fields are ignored; a missing or
// mistyped field of the first group is an error that names it.
absl::StatusOr<RunSummary> RunSummaryFromJson(absl::string_view text);
// All of summary.json; errors also name the run by its place, from 1 on.
absl::StatusOr<std::vector<RunSummary>> RunSummariesFromJson(
    absl::string_view text);
absl::StatusOr<MetricPoint> MetricPointFromJson(absl::string_view line);

// The run whose point a line of metrics.jsonl is.
struct RunName {
  std::string setting = {};
  uint64_t seed = 0;
  auto operator<=>(const RunName&) const = default;
};
absl::StatusOr<RunName> RunNameFromJson(absl::string_view line);

// The closing table of a comparison, for a terminal: one row per setting
// (seeds averaged, their number and spread shown), difference to the setting
// `none` when it is there.
std::string SummaryTable(const std::vector<RunSummary>& runs);

// What compression did, in a sentence for each setting.
std::string SummarySentences(const std::vector<RunSummary>& runs);

// The first evaluation of a run with this accuracy; null: none.
const MetricPoint* FirstAt(const RunSummary& run, double target);

// A setting on a link, as the simulator has it.
struct WhatIfRow {
  std::string setting = {};
  std::string link = {};
  double bytes_per_s = 0;  // the link's, each direction
  double latency_s = 0;    // the link's, one way, as --link adds it
  double step_s = 0;
  double total_s = 0;          // to the target, else all steps; 0: never
  double measured_step_s = 0;  // where the link was really run
  std::string why_not = {};    // what cannot be simulated
};

// What a report has beside the runs.
struct ReportExtras {
  double target = 0;  // accuracy to reach, 0..1; 0: none is asked for
  std::vector<WhatIfRow> what_if = {};
};
// The table of what_if for a terminal; "" without.
std::string WhatIfText(const ReportExtras& extras);

// A self-contained page, whose sections docs/laboratory.md lists, with inline
// SVG. No scripts or fonts from a network.
std::string ReportHtml(const std::vector<RunSummary>& runs,
                       absl::string_view command_line,
                       const ReportExtras& extras = {});

// The runs that WriteResults left there, with their points; none where there is
// no summary.json. InvalidArgument names the file and what is wrong in it, or
// both where a run comes twice. A last line of metrics.jsonl that was cut is
// left out, as are points of runs that summary.json does not have.
absl::StatusOr<std::vector<RunSummary>> ReadResults(
    const std::string& directory);

// Writes metrics.jsonl, summary.json and report.html into a folder made by
// MakeFolder; each file is replaced in one step (written beside,
// renamed).
absl::Status WriteResults(const std::string& directory,
                          const std::vector<RunSummary>& runs,
                          absl::string_view command_line,
                          const ReportExtras& extras = {});

}  // namespace telegrad
