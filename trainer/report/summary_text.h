#pragma once

#include <string>
#include <vector>

#include "trainer/report/groups.h"

namespace telegrad {

// One paragraph in plain words: what each setting did beside `none`.
std::string SummaryText(const std::vector<SettingGroup>& groups);

}  // namespace telegrad
