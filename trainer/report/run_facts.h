#pragma once

#include <string>
#include <vector>

#include "trainer/report/results.h"

namespace telegrad {

// "0.1.0, commit 0123456789ab"; the commit where there was one to ask for.
std::string ProgramVersion();

// This process's machine, system and program, for a report: what figures depend
// on. What cannot be found out is left out.
std::vector<EnvironmentFact> DescribeEnvironment();

}  // namespace telegrad
