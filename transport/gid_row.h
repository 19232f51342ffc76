#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace telegrad {

// The row of the GID table that all of `ports` ("mlx5_0:1") have in `rows`;
// nothing where there is no port, or one has none or another.
inline std::optional<int> CommonGidRow(const std::vector<std::string>& ports,
                                       const std::map<std::string, int>& rows) {
  std::optional<int> common;
  for (const std::string& port : ports) {
    const auto row = rows.find(port);
    if (row == rows.end()) return std::nullopt;
    if (common.value_or(row->second) != row->second) return std::nullopt;
    common = row->second;
  }
  return common;
}

}  // namespace telegrad
