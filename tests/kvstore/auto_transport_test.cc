// --transport auto and --connections auto on hosts that differ: members of one
// machine that are shown another /sys, or given other numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "base/network_device.h"
#include "tests/kvstore/cluster.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using namespace testing;  // NOLINT: the helpers of this folder's tests

// Of a host with an InfiniBand card, which no library finds.
class RdmaSysfs {
 public:
  RdmaSysfs() {
    std::string name = ::testing::TempDir() + "rdmaXXXXXX";
    root_ = mkdtemp(name.data());
    const fs::path port = sysfs() / "class/infiniband/mlx5_0/ports/1";
    fs::create_directories(port);
    std::ofstream(port / "state") << "4: ACTIVE\n";
    std::ofstream(port / "link_layer") << "InfiniBand\n";
    fs::create_directories(root_ / "dev/infiniband");
  }
  ~RdmaSysfs() { fs::remove_all(root_); }
  fs::path sysfs() const { return root_ / "sys"; }

 private:
  fs::path root_;
};

std::string OwnAddress() {
  for (const auto& entry : fs::directory_iterator("/sys/class/net")) {
    const std::string name = entry.path().filename();
    const auto address = AddressOfDevice(name);
    if (name != "lo" && address.ok()) return *address;
  }
  return "";
}

TEST(AutoTransport, IsTcpForAllWhereOneHostHasNothingElse) {
  const RdmaSysfs rdma;
  ClusterConfig config;
  config.secret = *Secret::Derive(std::string(32, 's'), "local");
  Cluster cluster(config);
  DistOptions with_rdma = cluster.Options();
  with_rdma.transport = {};
  with_rdma.transport.name = "auto";
  with_rdma.transport.bind_address = OwnAddress();
  with_rdma.transport.sysfs = rdma.sysfs();
  if (with_rdma.transport.bind_address.empty()) {
    GTEST_SKIP() << "no address but loopback, where nothing is chosen by cards";
  }
  if (ChooseTransport(with_rdma.transport).name != "ucx") {
    GTEST_SKIP() << "ucx is not in this build";
  }
  auto server = std::async(std::launch::async, [with_rdma]() mutable {
    with_rdma.on_fatal = nullptr;
    return RunServer({.job = with_rdma});
  });
  std::vector<std::thread> workers;
  for (int rank = 0; rank < 2; ++rank) {
    workers.emplace_back([&, rank] {
      DistOptions options = with_rdma;
      options.wanted_rank = rank;
      if (rank == 1) options.transport.sysfs = "/nowhere";
      testing::Worker store(options);
      std::vector<Buffer> values = cluster.MakeValues(rank);
      ASSERT_THAT(cluster.Init(store, values), IsOk());
      EXPECT_EQ(store->group().data_path().choice.name, "tcp");
      EXPECT_THAT(store->link()->transport_details(),
                  ::testing::StartsWith("tcp: "));
      // Of worker 1 it is its own choice.
      EXPECT_THAT(store->group().data_path().choice.reason,
                  rank == 0 ? HasSubstr("cannot use ucx: no card here does")
                            : HasSubstr("no card here does RDMA"));
      EXPECT_THAT(store->Pull(0, values[0].view(), 0).Wait(Soon()), IsOk());
      store->Close();
    });
  }
  for (std::thread& each : workers) each.join();
  EXPECT_THAT(server.get(), IsOk());
}

// Of one worker they were given; all others leave them open.
TEST(AutoConnections, AreThoseThatOneWasGiven) {
  ClusterConfig config = testing::Job(2);
  config.transport = "tcp";
  Cluster cluster(config);
  const auto options = [&cluster](Role role, int rank) {
    DistOptions each = cluster.Options();
    each.wanted_rank = rank;
    each.has_auto_connections = role == Role::kServer || rank == 0;
    each.transport.connections = 3;  // auto looks for itself: 1
    return each;
  };
  auto server = std::async(std::launch::async, [&] {
    return RunServer({.job = options(Role::kServer, 0)});
  });
  std::vector<std::thread> workers;
  for (int rank = 0; rank < 2; ++rank) {
    workers.emplace_back([&, rank] {
      testing::Worker store(options(Role::kWorker, rank));
      std::vector<Buffer> values = cluster.MakeValues(rank);
      ASSERT_THAT(cluster.Init(store, values), IsOk());
      EXPECT_EQ(store->group().data_path().connections.connections, 3u);
      EXPECT_THAT(store->group().data_path().connections.reason,
                  HasSubstr("of worker/1 on "));
      EXPECT_THAT(store->link()->transport_details(),
                  HasSubstr("3 connections to each peer"));
      EXPECT_THAT(store->PushPull(0, values[0].view(), values[0].view(), 0)
                      .Wait(Soon()),
                  IsOk());
      EXPECT_EQ(values[0].as<float>()[0], 2.0f);  // worker 0's 1, twice
      store->Close();
    });
  }
  for (std::thread& each : workers) each.join();
  EXPECT_THAT(server.get(), IsOk());
}

}  // namespace
}  // namespace telegrad
