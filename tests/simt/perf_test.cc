#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/network_device.h"
#include "kernels/device_scope.h"
#include "kvstore/job/control/scheduler.h"
#include "perf/network/launch.h"
#include "tests/testing/status_matchers.h"
#include "tests/topology/plan_machines.h"

// Ranks of telegrad-perf whose payloads lie on emulated GPUs.
namespace telegrad::perf {
namespace {

using ::testing::ElementsAre;
using testing::IsOk;

// What rank `rank` of two, on machines of two GPUs and two cards, opens.
struct Opened {
  absl::Status status;
  TransportOptions transport = {};
};

Opened RunRank(const std::string& memory, int rank, const std::string& bind,
               const std::string& rendezvous) {
  NetworkOptions options;
  options.memory = memory;
  options.rank = rank;
  options.ranks = 2;
  options.rendezvous = rendezvous;
  options.path.transport.name = "auto";
  options.path.transport.bind_address = bind;
  options.timeout_s = 30;
  Opened opened;
  const auto settle = [&](JobOptions& job) {
    job.path.look = [look = job.path.look, rank] {
      MachineReport report = look();
      report.host = report.boot_id = absl::StrCat("host", rank);
      report.machine = TestMachine(report.host, 2, 2, Fabric::kInfiniBand, 100);
      for (int i = 0; i < 2; ++i) {
        const std::string bus_id = kernels::BusIdOf({DeviceKind::kCuda, i});
        EXPECT_TRUE(
            ParseBdf(bus_id, &report.machine->gpus[static_cast<size_t>(i)].bdf))
            << bus_id;
      }
      return report;
    };
    return absl::OkStatus();
  };
  opened.status =
      RunRanks(options, {},
               {.settle = settle,
                .work = [&](const NetworkOptions&, WorkerGroup& group) {
                  opened.transport = group.data_path().transport;
                  return absl::OkStatus();
                }});
  return opened;
}

// Of both ranks.
std::vector<Opened> RunBoth(const std::string& memory,
                            const std::string& bind) {
  auto free = Scheduler::Start({});
  EXPECT_THAT(free, IsOk());
  const std::string rendezvous = (*free)->address();
  free->reset();
  auto other =
      std::async(std::launch::async, RunRank, memory, 1, bind, rendezvous);
  std::vector<Opened> both = {RunRank(memory, 0, bind, rendezvous)};
  both.push_back(other.get());
  for (const Opened& each : both) EXPECT_THAT(each.status, IsOk());
  return both;
}

TEST(PerfOnAGpu, OpensTheCardsThatAreNearestToThePayloads) {
  const auto addresses = OutsideAddresses();
  if (!addresses.ok() || addresses->empty()) {
    GTEST_SKIP() << "no address but loopback";
  }
  const std::string& bind = addresses->front();
  const std::vector<Opened> host = RunBoth("host", bind);
  if (host[0].transport.name != "ucx") GTEST_SKIP() << "no ucx in this build";
  EXPECT_THAT(host[1].transport.rdma_ports,
              ElementsAre("mlx5_0:1", "mlx5_1:1"));
  const std::vector<Opened> each = RunBoth("cuda", bind);
  EXPECT_THAT(each[0].transport.rdma_ports, ElementsAre("mlx5_0:1"));
  EXPECT_THAT(each[1].transport.rdma_ports, ElementsAre("mlx5_1:1"));
  for (const Opened& rank : RunBoth("cuda:1", bind)) {
    EXPECT_THAT(rank.transport.rdma_ports, ElementsAre("mlx5_1:1"));
  }
}

}  // namespace
}  // namespace telegrad::perf
