#include "trainer/laboratory.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "trainer/options.h"
#include "trainer/what_if.h"

namespace telegrad {

void AddLaboratoryFlags(CLI::App& app, LaboratoryOptions& options) {
  const char* group = "Laboratory";
  app.add_flag("--explain", options.explain,
               "say what would be done, and end: codec, reason and bytes of "
               "each tensor, memory, expected time of a step")
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
}

absl::Status FinishLaboratoryFlags(const TrainOptions& options) {
  const LaboratoryOptions& laboratory = options.laboratory;
  if (options.given.contains("--what-if")) {
    RETURN_IF_ERROR(ParseLinks(laboratory.what_if).status());
    const auto store = FindStoreType(options.kv_store);
    if (options.local_steps > 0 || (store.ok() && store->is_async)) {
      return absl::InvalidArgumentError(
          "--what-if: the simulator plays synchronous steps; leave it out "
          "beside --local-steps and --kv-store dist_async");
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
