#include "kvstore/tuning/machine_detection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>

#include "base/network_device.h"
#include "kvstore/job/control/scheduler.h"
#include "kvstore/job/path/job_options.h"
#include "kvstore/job/path/worker_group.h"
#include "tests/topology/plan_machines.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// Of this machine's devices the first beyond loopback that has an address.
std::string OwnDevice() {
  for (const auto& entry : fs::directory_iterator("/sys/class/net")) {
    const std::string name = entry.path().filename();
    if (name != "lo" && AddressOfDevice(name).ok()) return name;
  }
  return "";
}

// A RoCE card whose GID table has routable rows 1, on another interface, and
// 4, on this one.
fs::path WriteTree(const std::string& interface) {
  std::string name = ::testing::TempDir() + "treeXXXXXX";
  const fs::path root = mkdtemp(name.data());
  const fs::path port = root / "sys/class/infiniband/mlx5_0/ports/1";
  const auto write = [&](const std::string& file, const std::string& text) {
    fs::create_directories((port / file).parent_path());
    std::ofstream(port / file) << text << "\n";
  };
  write("state", "4: ACTIVE");
  write("link_layer", "Ethernet");
  for (const auto& [row, device] :
       {std::pair<std::string, std::string>{"1", "other0"}, {"4", interface}}) {
    write("gids/" + row, "0000:0000:0000:0000:0000:ffff:c000:020" + row);
    write("gid_attrs/types/" + row, "RoCE v2");
    write("gid_attrs/ndevs/" + row, device);
  }
  for (const std::string& device : {std::string("other0"), interface}) {
    const fs::path net = root / "sys/class/net" / device;
    fs::create_directories(net / "device");
    std::ofstream(net / "type") << "1\n";
  }
  return root;
}

// What a worker that others reach at `bind` comes to with another on a machine
// that is just so: this one, or `machine`. `gpu`: where its tensors are.
TransportOptions Followed(const std::string& bind,
                          const std::optional<Machine>& machine = {},
                          const std::string& gpu = "") {
  const auto scheduler = Scheduler::Start({.num_workers = 2, .num_servers = 0});
  EXPECT_TRUE(scheduler.ok()) << scheduler.status();
  if (!scheduler.ok()) return {};
  const auto join = [&](int rank) {
    JobOptions job{.scheduler_address = (*scheduler)->address(),
                   .wanted_rank = rank};
    job.path.transport.name = "auto";
    job.path.transport.bind_address = bind;
    job.path.gpu_bus_id = gpu;
    job.path.look = [&, rank] {
      MachineReport report = MachineDetection(bind).Get();
      if (machine.has_value()) report.machine = *machine;
      if (rank == 1) report.host = report.boot_id = "other";
      if (rank == 1 && report.machine.ok()) report.machine->host = "other";
      return report;
    };
    return JoinWorkers(job);
  };
  auto other = std::async(std::launch::async, join, 1);
  const auto self = join(0);
  const auto theirs = other.get();
  EXPECT_TRUE(self.ok() && theirs.ok()) << self.status() << theirs.status();
  return self.ok() ? (*self)->data_path().transport : TransportOptions();
}

TEST(MachineDetection, GivesTheTransportTheBindInterfacesPortAndRow) {
  const std::string interface = OwnDevice();
  if (interface.empty()) GTEST_SKIP() << "no address but loopback";
  const fs::path root = WriteTree(interface);
  setenv("TELEGRAD_TOPO_FILE", root.c_str(), 1);
  const TransportOptions near = Followed(*AddressOfDevice(interface));
  setenv("TELEGRAD_NICS", "^mlx5", 1);
  const TransportOptions without = Followed(*AddressOfDevice(interface));
  unsetenv("TELEGRAD_NICS");
  const TransportOptions loopback = Followed("127.0.0.1");
  unsetenv("TELEGRAD_TOPO_FILE");
  fs::remove_all(root);
  EXPECT_THAT(without.rdma_ports, IsEmpty());
  EXPECT_EQ(without.name, "tcp");
  EXPECT_THAT(loopback.rdma_ports, IsEmpty());
  if (near.name != "ucx") GTEST_SKIP() << "no ucx in this build";
  EXPECT_THAT(near.rdma_ports, ElementsAre("mlx5_0:1"));
  EXPECT_THAT(near.gid_rows, ElementsAre(Pair("mlx5_0:1", 4)));
}

TEST(MachineDetection, OpensTheCardsThatAreNearestToTheTensors) {
  const std::string interface = OwnDevice();
  if (interface.empty()) GTEST_SKIP() << "no address but loopback";
  const std::string bind = *AddressOfDevice(interface);
  const Machine machine = TestMachine("a", 2, 2, Fabric::kInfiniBand, 100);
  const TransportOptions all = Followed(bind, machine);
  if (all.name != "ucx") GTEST_SKIP() << "no ucx in this build";
  EXPECT_THAT(all.rdma_ports, ElementsAre("mlx5_0:1", "mlx5_1:1"));
  EXPECT_THAT(Followed(bind, machine, "0000:11:00.0").rdma_ports,
              ElementsAre("mlx5_1:1"));
}

// As if a driver did not answer; then its library would use this static.
struct Library {
  ~Library() { std::fputs("destroyed", stderr); }
};

void EndWhileADriverHangs() {
  static const Library library;
  {
    const MachineDetection detection(
        []() -> absl::StatusOr<Machine> {
          while (true) pause();
        },
        std::chrono::milliseconds(10));
  }
  exit(7);
}

TEST(MachineDetectionDeathTest, DestroysNoStaticsWhileADriverHangs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(EndWhileADriverHangs(), ::testing::ExitedWithCode(7),
              ::testing::Not(HasSubstr("destroyed")));
}

TEST(MachineDetection, IsOverWhenItsOwnerGoes) {
  struct Flag {
    explicit Flag(std::atomic<bool>& flag) : is_gone(flag) {}
    ~Flag() {
      usleep(50'000);
      is_gone = true;
    }
    std::atomic<bool>& is_gone;
  };
  std::atomic<bool> is_gone = false;
  {
    auto flag = std::make_shared<Flag>(is_gone);
    const MachineDetection detection(
        [flag]() -> absl::StatusOr<Machine> {
          return absl::UnavailableError("none");
        },
        std::chrono::seconds(10));
    flag.reset();
  }
  EXPECT_TRUE(is_gone);
}

}  // namespace
}  // namespace telegrad
