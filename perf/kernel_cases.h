#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "perf/measure.h"

namespace telegrad::perf {

// An operation of the table of kernels; `make` allocates what it works on.
struct KernelCase {
  std::string name;     // "2bit/encode"
  bool is_per_density;  // measured once per --density
  // Leaves `name` to the caller.
  std::function<Job(size_t n, double density)> make;
};

// One function per family or group of families.
void AppendTwoBitCases(std::vector<KernelCase>& cases);
void AppendCodeSumCases(std::vector<KernelCase>& cases);
void AppendDenseCases(std::vector<KernelCase>& cases);
void AppendNarrowCases(std::vector<KernelCase>& cases);
void AppendSelectionCases(std::vector<KernelCase>& cases);

}  // namespace telegrad::perf
