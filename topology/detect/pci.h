#pragma once

#include <map>
#include <string>
#include <vector>

#include "topology/detect/read.h"
#include "topology/machine.h"
#include "topology/path.h"

namespace telegrad::detect {

// Places in the PCI tree, by real paths of sysfs.
class PciTree {
 public:
  explicit PciTree(const SysRoot& root);

  // Where the device hangs that `path` (its folder, one below, or a link to
  // either) leads to.
  PciPosition PositionOf(const std::string& path) const;

  // The device's address: the last one of the real path, or of the text of a
  // dangling link; false: none.
  bool BdfOf(const std::string& path, Bdf* bdf) const;

  // The device's own folder: the path up to the last address; empty: none.
  std::string FolderOf(const std::string& path) const;

  // Folders of the bridges above the device, nearest first, at most 64.
  std::vector<std::string> BridgesAbove(const std::string& path) const;

  // Gigabits/s of the slot: min(device, port above), by maximum or current
  // speed ("max" or "current").
  Known<double> LinkGbps(const std::string& path, const char* which) const;

 private:
  int PackageOfNode(int numa_node) const;
  std::vector<std::string> Fold(std::vector<std::string> switches) const;
  std::vector<std::string> Switches(
      const std::vector<std::string>& bridges) const;

  const SysRoot& root_;
  std::map<int, int> package_of_node_ = {};
};

// "8.0 GT/s PCIe" and a width -> gigabits/s without the line code; 0: unknown.
double PcieGbps(absl::string_view speed, int64_t width);

}  // namespace telegrad::detect
