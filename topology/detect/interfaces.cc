#include <set>

#include "topology/detect.h"

namespace telegrad {

bool IsOverBond(std::span<const NetInterface> interfaces,
                const std::string& name) {
  std::set<std::string> names = {name};
  // A bridge over a VLAN over a bond, and no deeper.
  for (int depth = 0; depth < 3; ++depth) {
    for (const NetInterface& each : interfaces) {
      if (names.count(each.name) == 0) continue;
      if (each.kind == NetInterface::Kind::kBond) return true;
      names.insert(each.lower.begin(), each.lower.end());
    }
  }
  return false;
}

}  // namespace telegrad
