#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvstore/job/control/job.h"
#include "trainer/report/results.h"

namespace CLI {
class App;
}

namespace telegrad {

// A flag of this command, as text; "" where there is nothing.
struct FlagValue {
  std::string name;  // "--lr"; "telegrad": the program itself
  std::string value;
  std::string default_value;
};

// What a flag decides. One table in identity.cc has each flag's group. Workers
// must have the first three alike when they join, --resume needs the same
// kResults, --continue also the same kSteps to kTimes.
enum class FlagGroup : uint8_t {
  kRuns,     // which runs there are, and where they begin
  kResults,  // what a run's steps compute
  kSteps,    // how many there are, when it is evaluated, and the rates
  kPath,     // the network: all members compare it by themselves
  kTimes,    // this process alone; the measured times may depend on it
  kProcess,  // this process alone
  kShown     // what is shown or kept
};
// A new flag decides results until the table says something else.
FlagGroup GroupOf(const std::string& name);

// The version and each flag, given or not, that decides what a run is beside
// setting and seed: --continue takes results of the same. After parsing.
std::vector<FlagValue> IdentityOf(const CLI::App& app);

// Each flag on which all workers of a job must agree, with its value, empty if
// it has none: the scheduler compares them when they join. Of --data its kind:
// where its files lie may differ from host to host. After parsing.
Facts FactsOf(const CLI::App& app);

// What differs from the defaults, as a run's summary keeps it.
std::vector<EnvironmentFact> SummaryOf(const std::vector<FlagValue>& identity);

// "--lr: 0.1 there, 0.05 here; ..." of an identity that a summary has; "" where
// they are the same.
std::string DifferenceTo(const std::vector<EnvironmentFact>& there,
                         const std::vector<FlagValue>& here);

}  // namespace telegrad
