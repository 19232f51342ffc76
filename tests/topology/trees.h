#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tests/topology/fixtures.h"
#include "topology/detect.h"

namespace telegrad {

// Files by path; a text that starts with "->" is a link.
using Files = std::map<std::string, std::string>;

inline absl::StatusOr<SysRoot> RootOf(const Files& files) {
  auto tree = std::make_unique<MemoryTree>();
  for (const auto& [path, text] : files) {
    const bool is_link = text.compare(0, 2, "->") == 0;
    EXPECT_TRUE(is_link ? tree->AddLink(path, text.substr(2))
                        : tree->AddFile(path, text))
        << path;
  }
  return SysRoot::FromTree(std::move(tree), "test");
}

inline Machine Detect(const Files& files, const TopologyOptions& options = {}) {
  const absl::StatusOr<SysRoot> root = RootOf(files);
  EXPECT_TRUE(root.ok()) << root.status();
  if (!root.ok()) return {};
  const absl::StatusOr<Machine> machine = DetectMachine(*root, options);
  EXPECT_TRUE(machine.ok()) << machine.status();
  return machine.value_or(Machine());
}

inline Machine DetectRecorded(const std::string& name,
                              const TopologyOptions& options = {}) {
  const absl::StatusOr<SysRoot> root =
      SysRoot::Open(testing::PublishedFixtures() + "/" + name);
  EXPECT_TRUE(root.ok()) << root.status();
  if (!root.ok()) return {};
  return DetectMachine(*root, options).value_or(Machine());
}

inline const Nic& NicNamed(const Machine& machine, const std::string& name) {
  static const Nic kNone = [] {
    Nic nic;
    nic.ports.resize(1);
    return nic;
  }();
  for (const Nic& nic : machine.nics) {
    if (nic.name == name && !nic.ports.empty()) return nic;
  }
  ADD_FAILURE() << "no " << name << " with a port";
  return kNone;
}

inline const NetInterface& InterfaceNamed(const Machine& machine,
                                          const std::string& name) {
  static const NetInterface kNone;
  for (const NetInterface& each : machine.interfaces) {
    if (each.name == name) return each;
  }
  ADD_FAILURE() << "no interface " << name;
  return kNone;
}

}  // namespace telegrad
