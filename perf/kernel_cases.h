#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "perf/measure.h"

namespace telegrad::perf {

// An operation of the table of kernels; `make` allocates what it works on.
struct KernelCase {
  std::string name;                       // "2bit/encode"
  bool is_per_density;                    // measured once per --density
  Job (*make)(size_t n, double density);  // leaves `name` to the caller
};

// One function per family of kernels.
void AppendTwoBitCases(std::vector<KernelCase>& cases);
void AppendCodeSumCases(std::vector<KernelCase>& cases);
void AppendDenseCases(std::vector<KernelCase>& cases);

}  // namespace telegrad::perf
