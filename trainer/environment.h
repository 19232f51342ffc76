#pragma once

#include <vector>

#include "trainer/results.h"

namespace telegrad {

// This process's machine, system and program, for a report: what figures depend
// on. What cannot be found out is left out.
std::vector<EnvironmentFact> DescribeEnvironment();

}  // namespace telegrad
