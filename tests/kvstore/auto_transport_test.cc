// --transport auto and --connections auto on hosts that differ: members of one
// host that say they are on others, or were given other numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <filesystem>
#include <map>

#include "base/exit_code.h"
#include "base/network_device.h"
#include "tests/kvstore/cluster.h"
#include "tests/topology/plan_machines.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using namespace testing;  // NOLINT: the helpers of this folder's tests

std::string OwnAddress() {
  for (const auto& entry : fs::directory_iterator("/sys/class/net")) {
    const std::string name = entry.path().filename();
    const auto address = AddressOfDevice(name);
    if (name != "lo" && address.ok()) return *address;
  }
  return "";
}

MachineReport Host(const std::string& name, Fabric fabric) {
  return {.host = name,
          .boot_id = "1",
          .machine = TestMachine(name, 0, 1, fabric, 100)};
}

// Worker 1 is on a host without the InfiniBand that the others have.
TEST(AutoTransport, IsTcpForAllWhereOneHostHasNothingElse) {
  ClusterConfig config;
  config.secret = *Secret::Derive(std::string(32, 's'), "local");
  testing::Cluster cluster(config);
  DistOptions with_rdma = cluster.Options();
  with_rdma.transport = {};
  with_rdma.transport.name = "auto";
  with_rdma.transport.bind_address = OwnAddress();
  with_rdma.look = [] { return Host("a", Fabric::kInfiniBand); };
  if (with_rdma.transport.bind_address.empty()) {
    GTEST_SKIP() << "no address but loopback, where nothing is chosen by cards";
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
      if (rank == 1) {
        options.look = [] { return Host("b", Fabric::kEthernet); };
      }
      testing::Worker store(options);
      std::vector<Buffer> values = cluster.MakeValues(rank);
      ASSERT_THAT(cluster.Init(store, values), IsOk());
      EXPECT_THAT(store->link()->transport_details(),
                  ::testing::StartsWith("tcp: "));
      EXPECT_THAT(store->group().data_path().plan.warnings,
                  ::testing::Contains(HasSubstr("IB is on 1 of 2 machines")));
      EXPECT_THAT(store->Pull(0, values[0].view(), 0).Wait(Soon()), IsOk());
      store->Close();
    });
  }
  for (std::thread& each : workers) each.join();
  EXPECT_THAT(server.get(), IsOk());
}

// A member that cannot do what another was told ends the job for all.
TEST(AutoTransport, EndsAllWithWhoCannotFollow) {
  testing::Cluster cluster(testing::Job(2));
  auto server = std::async(std::launch::async, [&] {
    return RunServer({.job = cluster.Options()});
  });
  std::vector<std::thread> workers;
  for (int rank = 0; rank < 2; ++rank) {
    workers.emplace_back([&, rank] {
      DistOptions options = cluster.Options();
      options.wanted_rank = rank;
      if (rank == 1) options.transport.name = "tcp";
      const absl::Status status = JoinWorkers(options).status();
      EXPECT_EQ(ExitCodeOf(status), ExitCode::kMismatch);
      EXPECT_THAT(
          std::string(status.message()),
          HasSubstr("transport: worker/0 has inproc, worker/1 has tcp"));
    });
  }
  for (std::thread& each : workers) each.join();
  EXPECT_EQ(ExitCodeOf(server.get()), ExitCode::kMismatch);
}

// Sockets of this process to the address that has most of them.
int MostSocketsToOnePeer() {
  std::map<std::string, int> peers;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0 ||
        peer.sin_family != AF_INET) {
      continue;
    }
    ++peers[std::string(reinterpret_cast<const char*>(&peer), sizeof(peer))];
  }
  int most = 0;
  for (const auto& [peer, count] : peers) most = std::max(most, count);
  return most;
}

// What a plan by file says of connections is seen in the sockets.
TEST(GivenPlan, OfConnectionsIsObeyed) {
  for (const int connections : {2, 5}) {
    ClusterConfig config = testing::Job(1);
    config.transport = "tcp";
    testing::Cluster cluster(config);
    DistOptions options = cluster.Options();
    PlanRequest request{.workers = 1};
    request.network = {"tcp", "--transport tcp"};
    request.tls = {options.transport.tls, "--tls"};
    request.connections = {connections, "--connections"};
    options.has_auto_connections = true;
    options.given = std::make_shared<const GivenPlan>(
        GivenPlan{"--plan p.json", *PlanPath({}, request)});
    auto server = std::async(std::launch::async,
                             [&] { return RunServer({.job = options}); });
    testing::Worker store(options);
    std::vector<Buffer> values = cluster.MakeValues(0);
    ASSERT_THAT(cluster.Init(store, values), IsOk());
    EXPECT_EQ(MostSocketsToOnePeer(), connections);
    EXPECT_THAT(Lines(store->group().data_path().plan),
                ::testing::Contains(HasSubstr("--plan p.json")));
    store->Close();
    EXPECT_THAT(server.get(), IsOk());
  }
}

// Of one worker they were given; all others leave them open.
TEST(AutoConnections, AreThoseThatOneWasGiven) {
  ClusterConfig config = testing::Job(2);
  config.transport = "tcp";
  testing::Cluster cluster(config);
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
      const Plan& plan = store->group().data_path().plan;
      EXPECT_EQ(plan.connections, 3);
      EXPECT_THAT(Lines(plan),
                  ::testing::Contains("connections 3: --connections 3"));
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
