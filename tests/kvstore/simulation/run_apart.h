#pragma once

#include <string>

#include "tests/kvstore/simulation/simulated_job.h"

namespace telegrad::testing {

// What a scenario's process says: `outcome` without texts, and these.
struct Report {
  bool is_well = false;
  Outcome outcome;
  std::string text;
};

constexpr unsigned kSeedsSeconds = 60;  // of one seed, at most

// In a process of its own, which ends with its threads as they stand, after so
// many seconds of real time at most. `is_told`: what members log comes, too.
Report RunApart(const Scenario& scenario, const Mutation& mutation,
                bool is_told, unsigned real_seconds = kSeedsSeconds);

}  // namespace telegrad::testing
