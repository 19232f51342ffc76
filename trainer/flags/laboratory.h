#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/units.h"
#include "kvstore/job/launch/placement.h"
#include "trainer/flags/identity.h"

namespace CLI {
class App;
}

namespace telegrad {

struct TrainOptions;

// What the laboratory does beside training; docs/laboratory.md.
struct LaboratoryOptions {
  bool explain = false;      // say what would be done, and end
  int emulate_workers = 0;   // in one process; 0: they are processes
  int emulated_servers = 0;  // beside them
  bool log_json = false;     // progress and results as JSON lines
  double target = 0;         // accuracy to reach, 0..1; 0: none
  std::string what_if;       // rates of links, as written: "100mbit,1gbit"
  int jobs = 1;              // runs at the same time
  bool continues = false;    // with what --out has of the same command
  std::vector<FlagValue> identity = {};
  Facts facts = {};         // FactsOf the command line
  std::string timeline;     // folder for Chrome traces; "": none
  std::string tensorboard;  // folder for event files; "": none
};

void AddLaboratoryFlags(CLI::App& app, LaboratoryOptions& options);

// Workers that are emulated: devices of one process. InvalidArgument where
// there are others, or flags that such a process does not have.
absl::Status SettleEmulation(const std::optional<Placement>& placement,
                             TrainOptions& options);

// How runs follow each other. InvalidArgument where this program does not start
// their processes, or where runs beside each other make no sense.
absl::Status CheckComparison(const std::optional<Placement>& placement,
                             const TrainOptions& options);

// After parsing; InvalidArgument names the flag and what it takes.
absl::Status FinishLaboratoryFlags(const TrainOptions& options);

// --what-if: rates, "100mbit,1gbit". InvalidArgument names the one that is
// none.
struct NamedLink {
  std::string name;
  LinkSpec spec;
};
absl::StatusOr<std::vector<NamedLink>> ParseLinks(absl::string_view list);

}  // namespace telegrad
