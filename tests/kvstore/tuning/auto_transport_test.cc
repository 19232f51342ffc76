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
#include "base/socket.h"
#include "kvstore/job/path/data_path.h"
#include "tests/kvstore/cluster.h"
#include "tests/topology/plan_machines.h"
#include "transport/check_transport.h"

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

MachineReport Host(const std::string& name, Fabric fabric, double gbps = 100) {
  Machine machine = TestMachine(name, 0, 1, fabric, gbps);
  machine.nics[0].ports[0].net_interface =
      DeviceOfAddress(OwnAddress()).value_or("");
  return {.host = name, .boot_id = "1", .machine = std::move(machine)};
}

// Worker 1 is on a host without the InfiniBand that the others have, whose slow
// link all pack for.
TEST(AutoTransport, IsTcpForAllWhereOneHostHasNothingElse) {
  ClusterConfig config;
  config.secret = *Secret::Derive(std::string(32, 's'), "local");
  testing::Cluster cluster(config);
  DistOptions with_rdma = cluster.Options();
  with_rdma.path.transport = {};
  with_rdma.path.transport.name = "auto";
  with_rdma.path.transport.bind_address = OwnAddress();
  with_rdma.path.look = [] { return Host("a", Fabric::kInfiniBand); };
  if (with_rdma.path.transport.bind_address.empty()) {
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
        options.path.look = [] { return Host("b", Fabric::kEthernet, 1); };
      }
      testing::Worker store(options,
                            {.type = "2bit", .packing = PackingMode::kAuto});
      std::vector<Buffer> values = cluster.MakeValues(rank);
      ASSERT_THAT(cluster.Init(store, values), IsOk());
      EXPECT_EQ(store->group().data_path().link_bytes_per_s(), 1e9 / 8);
      EXPECT_EQ(store->codecs().Report()[0].push_bytes, 8u);  // radix
      EXPECT_THAT(store->transport_details(), ::testing::StartsWith("tcp: "));
      EXPECT_THAT(store->group().data_path().plan.warnings,
                  ::testing::Contains(HasSubstr("IB is on 1 of 2 machines")));
      EXPECT_THAT(store->Pull(0, values[0].view(), 0).Wait(Soon()), IsOk());
      store->Close();
    });
  }
  for (std::thread& each : workers) each.join();
  EXPECT_THAT(server.get(), IsOk());
}

// A worker and a server on two machines, "a" and "b", which look as `see` says.
void BetweenMachines(const std::string& transport,
                     const std::function<Machine(const std::string&)>& see,
                     const std::function<void(KVStore&)>& body) {
  ClusterConfig config = testing::Job(1);
  config.secret = *Secret::Derive(std::string(32, 's'), "local");
  testing::Cluster cluster(config);
  const auto on = [&](const std::string& host) {
    DistOptions options = cluster.Options();
    options.path.transport = {};
    options.path.transport.name = transport;
    // Else a peer of this host is reached by its memory.
    if (transport == "tcp") options.path.transport.tls = "tcp";
    options.path.transport.bind_address = OwnAddress();
    options.path.transport.connections = kAutoConnections;
    options.on_fatal = nullptr;
    options.path.look = [&see, host] {
      return MachineReport{.host = host, .boot_id = "1", .machine = see(host)};
    };
    return options;
  };
  auto server = std::async(std::launch::async,
                           [&] { return RunServer({.job = on("b")}); });
  testing::Worker store(on("a"));
  std::vector<Buffer> values = cluster.MakeValues(0);
  ASSERT_THAT(cluster.Init(store, values), IsOk());
  const Bytes view = values[0].view();
  EXPECT_THAT(store->PushPull(0, view, view, 0).Wait(Soon()), IsOk());
  body(*store);
  store->Close();
  EXPECT_THAT(server.get(), IsOk());
}

// What one fact changes is seen in what UCX was given to open.
TEST(AutoTransport, OpensTheCardsAndTheGidRowThatTheMachinesHave) {
  if (OwnAddress().empty()) GTEST_SKIP() << "no address but loopback";
  TransportOptions ucx;
  ucx.name = "ucx";
  if (!CheckTransport(ucx).ok()) GTEST_SKIP() << CheckTransport(ucx);
  const auto opened = [](const std::function<void(Machine&)>& change) {
    std::string details;
    BetweenMachines(
        "auto",
        [&change](const std::string& host) {
          Machine machine = TestMachine(host, 0, 2, Fabric::kRoceV2, 100);
          for (Nic& nic : machine.nics) {
            nic.ports[0].net_interface = *DeviceOfAddress(OwnAddress());
          }
          change(machine);
          return machine;
        },
        [&details](KVStore& store) { details = store.transport_details(); });
    return details;
  };
  using ::testing::AllOf;
  using ::testing::Not;
  using ::testing::StartsWith;
  EXPECT_THAT(opened([](Machine&) {}),
              AllOf(StartsWith("ucx: "), HasSubstr("mlx5_0:1,mlx5_1:1"),
                    HasSubstr("UCX_IB_GID_INDEX=3")));
  EXPECT_THAT(opened([](Machine& machine) {
                machine.nics[0].ports[0].state.value = 1;  // down
              }),
              AllOf(StartsWith("ucx: "), HasSubstr("mlx5_1:1"),
                    Not(HasSubstr("mlx5_0"))));
  EXPECT_THAT(opened([](Machine& machine) {
                for (Nic& nic : machine.nics) {
                  nic.ports[0].chosen_gid.value = 5;
                }
              }),
              HasSubstr("UCX_IB_GID_INDEX=5"));
  EXPECT_THAT(opened([](Machine& machine) {
                machine.capabilities.memlock_bytes.value = 1 << 20;
              }),
              AllOf(StartsWith("tcp: "), Not(HasSubstr("mlx5"))));
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
      if (rank == 1) options.path.transport.name = "tcp";
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

// Sockets of this process to the address that has most of them, but for `port`.
int MostSocketsToOnePeer(int port = 0) {
  std::map<std::string, int> peers;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0 ||
        peer.sin_family != AF_INET || ntohs(peer.sin_port) == port) {
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
    request.tls = {options.path.transport.tls, "--tls"};
    request.connections = {connections, "--connections"};
    options.path.transport.connections = kAutoConnections;
    options.path.given = std::make_shared<const GivenPlan>(
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

TEST(AutoConnections, FollowTheRateOfTheInterface) {
  if (OwnAddress().empty()) GTEST_SKIP() << "no address but loopback";
  for (const auto& [gbps, connections] :
       {std::pair<double, int>{10, 1}, {100, 4}}) {
    BetweenMachines(
        "tcp",
        [rate = gbps](const std::string& host) {
          Machine machine = TestMachine(host, 0, 1, Fabric::kEthernet, rate);
          machine.interfaces.push_back({.name = *DeviceOfAddress(OwnAddress()),
                                        .kind = NetInterface::Kind::kPhysical,
                                        .gbps = {.value = rate}});
          return machine;
        },
        [count = connections](KVStore& store) {
          const auto scheduler =
              ParseHostPort(store.group().options().scheduler_address);
          ASSERT_THAT(scheduler, IsOk());
          EXPECT_EQ(MostSocketsToOnePeer(scheduler->port), count);
        });
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
    const bool is_auto = role == Role::kServer || rank == 0;
    each.path.transport.connections = is_auto ? kAutoConnections : 3;
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
      EXPECT_THAT(store->transport_details(),
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
