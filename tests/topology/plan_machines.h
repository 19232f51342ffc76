#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "topology/machine.h"
#include "topology/path.h"
#include "topology/plan.h"

namespace telegrad {

// Machines built in code, for tests of the planner.

inline Nic TestNic(int number, Fabric fabric, double gbps) {
  const auto bus = static_cast<uint8_t>(0x80 + number);
  const bool is_rdma = fabric != Fabric::kEthernet;
  Nic nic{.name = absl::StrCat(is_rdma ? "mlx5_" : "eth", number),
          .bdf = {.value = Bdf{.bus = bus}},
          .is_rdma = is_rdma};
  nic.position.host_bridge = absl::StrCat("pci", number);
  nic.position.package = number / 4;
  Port port{.link_layer = fabric == Fabric::kInfiniBand ? LinkLayer::kInfiniBand
                                                        : LinkLayer::kEthernet,
            .fabric = fabric,
            .state = {.value = 4},
            .gbps = {.value = gbps},
            .active_mtu = {.value = 4096}};
  if (fabric == Fabric::kRoceV2) port.chosen_gid.value = 3;
  nic.ports.push_back(port);
  return nic;
}

inline Gpu TestGpu(int number) {
  Gpu gpu{.name = absl::StrCat("cuda", number),
          .bdf = {.bus = static_cast<uint8_t>(0x10 + number)},
          .compute_capability = {.value = 90}};
  gpu.position.host_bridge = absl::StrCat("pci", number);
  gpu.position.package = number / 4;
  return gpu;
}

// `gpus` GPUs and `nics` cards; GPU i hangs at the switch of card i % nics,
// and, where there are more cards, at those of i + gpus, i + 2 gpus, ... too.
inline Machine TestMachine(const std::string& host, int gpus, int nics,
                           Fabric fabric, double gbps) {
  Machine machine{.source = host + ".json", .host = host, .cpus = 64};
  for (int i = 0; i < nics; ++i) {
    machine.nics.push_back(TestNic(i, fabric, gbps));
    const int place = gpus > 0 ? i % gpus : i;
    machine.nics.back().position.switches = {absl::StrCat("sw", place)};
  }
  for (int i = 0; i < gpus; ++i) {
    machine.gpus.push_back(TestGpu(i));
    const int place = nics > 0 ? i % nics : i;
    machine.gpus.back().position.switches = {absl::StrCat("sw", place)};
  }
  FillPaths(machine);
  return machine;
}

// The defaults as if they had been measured, by +-5 %, on four cores.
inline Calibration Measured() {
  Calibration calibration = AssumedCalibration();
  calibration.cores.value = 4;
  for (CodecFigures& codec : calibration.codecs) {
    for (Figure* each : {&codec.encode, &codec.decode, &codec.decode_add,
                         &codec.sum, &codec.reply_encode, &codec.call_s}) {
      each->confidence = Confidence::kMeasured;
      each->spread = 0.05;
    }
  }
  return calibration;
}

inline PlanRequest Request(const std::string& profile, int workers = 0,
                           double link_gbps = 0) {
  return {.profile = *LoadGradientProfile(profile),
          .workers = workers,
          .link_gbps = link_gbps};
}

inline Plan MustPlan(const std::vector<Machine>& machines,
                     const Calibration& calibration,
                     const PlanRequest& request) {
  auto plan = MakePlan(machines, calibration, request);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : Plan{};
}

inline std::vector<std::string> Lines(const Plan& plan) {
  std::vector<std::string> lines;
  for (const Decision& each : plan.decisions) lines.push_back(ToText(each));
  return lines;
}

inline std::vector<Machine> Cluster(int count, Fabric fabric, double gbps,
                                    int gpus = 0) {
  std::vector<Machine> machines;
  for (int i = 0; i < count; ++i) {
    machines.push_back(TestMachine(absl::StrCat("node", i), gpus,
                                   std::max(1, gpus), fabric, gbps));
  }
  return machines;
}

}  // namespace telegrad
