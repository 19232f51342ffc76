#pragma once

#include <string>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace telegrad {

struct TrainOptions;

// What the laboratory does beside training; docs/laboratory.md.
struct LaboratoryOptions {
  bool explain = false;   // say what would be done, and end
  bool log_json = false;  // progress and results as JSON lines
  double target = 0;      // accuracy to reach, 0..1; 0: none
  std::string what_if;    // rates of links, as written: "100mbit,1gbit"
};

void AddLaboratoryFlags(CLI::App& app, LaboratoryOptions& options);

// After parsing; InvalidArgument names the flag and what it takes.
absl::Status FinishLaboratoryFlags(const TrainOptions& options);

}  // namespace telegrad
