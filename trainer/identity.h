#pragma once

#include <string>
#include <vector>

#include "trainer/results.h"

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

// What decides, beside setting and seed, what a run's results are: the version
// and each flag, given or not, but for those that choose the runs or say how
// they are shown, kept, watched and told apart. After parsing.
std::vector<FlagValue> IdentityOf(const CLI::App& app);

// What differs from the defaults, as a run's summary keeps it.
std::vector<EnvironmentFact> SummaryOf(const std::vector<FlagValue>& identity);

// "--lr: 0.1 there, 0.05 here; ..." of an identity that a summary has; "" where
// they are the same.
std::string DifferenceTo(const std::vector<EnvironmentFact>& there,
                         const std::vector<FlagValue>& here);

}  // namespace telegrad
