#pragma once

#include <string>
#include <vector>

#include "trainer/report/groups.h"

namespace telegrad {

// Whether it pays here, by how much, and what to use; "" where there is nothing
// to compare.
std::string VerdictText(const std::vector<SettingGroup>& groups);

// What codecs took of the gradient; "" where that is all, or not known.
std::string CoverageText(const RunSummary& run);

// The verdict, then one paragraph in plain words: what each setting did beside
// `none`.
std::string SummaryText(const std::vector<SettingGroup>& groups);

}  // namespace telegrad
