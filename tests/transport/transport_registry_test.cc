#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/transport_node.h"
#include "transport/check_transport.h"
#include "transport/choose/choose.h"
#include "transport/transport.h"

namespace telegrad::testing {
namespace {

namespace fs = std::filesystem;

TEST(TransportRegistry, UnknownNameListsWhatThereIs) {
  TransportOptions options;
  options.name = "pigeon";
  EXPECT_THAT(Node(options).status,
              StatusIs(absl::StatusCode::kNotFound, "inproc"));
  EXPECT_EQ(CheckTransport(options), Node(options).status);
}

TEST(TransportRegistry, NamesAreKnownWithoutAContext) {
  for (const char* name : {"auto", "tcp", "inproc"}) {
    TransportOptions options;
    options.name = name;
    EXPECT_THAT(CheckTransport(options), IsOk());
  }
}

TEST(TransportRegistry, DescriptionHasOneLinePerTransport) {
  EXPECT_THAT(
      DescribeTransports(),
      ::testing::MatchesRegex("ucx: .+\nofi: .+\ntcp: .+\ninproc: .+\n"));
}

// A machine's /sys/class/infiniband, and /dev/infiniband.
class FakeSysfs {
 public:
  FakeSysfs() {
    std::string name = ::testing::TempDir() + "sysfsXXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~FakeSysfs() { fs::remove_all(root_); }
  // An InfiniBand card with one port that can be opened.
  void Add(const std::string& card, const std::string& driver,
           const std::string& state) {
    const fs::path folder = Folder(card);
    fs::create_directories(folder / "ports/1");
    Write(card, "ports/1/state", state);
    Write(card, "ports/1/link_layer", "InfiniBand");
    fs::create_directories(folder / "device/infiniband_verbs" / Node(card));
    fs::create_directories(root_ / "dev/infiniband");
    std::ofstream(root_ / "dev/infiniband" / Node(card));
    fs::create_symlink("../../drivers/" + driver, folder / "device/driver");
  }
  void Write(const std::string& card, const std::string& file,
             const std::string& text) {
    const fs::path path = Folder(card) / file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  void SetGid(const std::string& card, int row, const std::string& type,
              const std::string& gid) {
    Write(card, absl::StrCat("ports/1/gid_attrs/types/", row), type);
    Write(card, absl::StrCat("ports/1/gids/", row), gid);
  }
  void RemoveNode(const std::string& card) {
    fs::remove(root_ / "dev/infiniband" / Node(card));
  }
  TransportChoice Choose(TransportOptions options) {
    options.name = "auto";
    options.sysfs = root_ / "sys";
    return ChooseTransport(options);
  }
  std::string Chosen(const std::string& bind, const std::string& tls = "") {
    TransportOptions options;
    options.bind_address = bind;
    options.tls = tls;
    const TransportChoice choice = Choose(options);
    return absl::StrCat(choice.name, ": ", choice.reason);
  }

 private:
  static std::string Node(const std::string& card) { return "uverbs_" + card; }
  fs::path Folder(const std::string& card) const {
    return root_ / "sys/class/infiniband" / card;
  }

  fs::path root_;
};

TEST(TransportChoice, IsTheMachines) {
  FakeSysfs sysfs;
  EXPECT_EQ(sysfs.Chosen("10.0.0.1"), "tcp: no card here does RDMA");
  sysfs.Add("mlx5_1", "mlx5_core", "1: DOWN");
  EXPECT_EQ(sysfs.Chosen("10.0.0.1"), "tcp: no card here does RDMA");
  sysfs.Add("mlx5_2", "mlx5_core", "4: ACTIVE");
  EXPECT_THAT(sysfs.Chosen("10.0.0.1"),
              ::testing::HasSubstr("mlx5_2:1 does RDMA"));
  EXPECT_THAT(sysfs.Chosen("127.0.0.1"), ::testing::HasSubstr("shared memory"));
  EXPECT_THAT(sysfs.Chosen("::1"), ::testing::HasSubstr("shared memory"));
  EXPECT_EQ(sysfs.Chosen("10.0.0.1", "tcp"), "tcp: tls tcp was asked for");
  sysfs.Add("efa_0", "efa", "4: ACTIVE");
  sysfs.Write("efa_0", "ports/1/link_layer", "Unknown");
  EXPECT_THAT(sysfs.Chosen("10.0.0.1"), ::testing::HasSubstr("efa_0:1 is EFA"));
}

TEST(TransportChoice, LeavesOutPortsThatDoNoRdma) {
  FakeSysfs sysfs;
  const char* const bind = "10.0.0.1";
  sysfs.Add("mlx5_0", "mlx5_core", "4: ACTIVE");
  sysfs.RemoveNode("mlx5_0");
  EXPECT_EQ(sysfs.Chosen(bind), "tcp: mlx5_0:1 has no node in /dev/infiniband");
  sysfs.Add("i40iw0", "i40iw", "4: ACTIVE");
  sysfs.Write("i40iw0", "node_type", "4: RNIC");
  EXPECT_THAT(sysfs.Chosen(bind),
              ::testing::StartsWith("tcp: i40iw0:1 is iWA"));
  sysfs.Add("hfi1_0", "hfi1", "4: ACTIVE");
  EXPECT_THAT(sysfs.Chosen(bind),
              ::testing::StartsWith("tcp: hfi1_0:1 is Omni-Path, i40iw0:1"));
}

TEST(TransportChoice, WantsARoutableGidOfRoceV2) {
  FakeSysfs sysfs;
  sysfs.Add("mlx5_0", "mlx5_core", "4: ACTIVE");
  sysfs.Write("mlx5_0", "ports/1/link_layer", "Ethernet");
  const std::string none = "tcp: mlx5_0:1 has no routable GID of RoCE v2";
  const std::string zeros = "0000:0000:0000:0000:0000:";
  EXPECT_EQ(sysfs.Chosen("10.0.0.1"), none);
  sysfs.SetGid("mlx5_0", 0, "RoCE v2", "fe80:0000:0000:0000:0e42:a1ff:fe00:1");
  sysfs.SetGid("mlx5_0", 1, "IB/RoCE v1", zeros + "ffff:0a00:0001");
  sysfs.SetGid("mlx5_0", 2, "RoCE v2", zeros + "0000:0000:0000");
  sysfs.SetGid("mlx5_0", 3, "RoCE v2", zeros + "ffff:a9fe:0001");
  EXPECT_EQ(sysfs.Chosen("10.0.0.1"), none);
  sysfs.SetGid("mlx5_0", 5, "RoCE v2", zeros + "ffff:0a00:0001");
  EXPECT_THAT(sysfs.Chosen("10.0.0.1"), ::testing::HasSubstr("does RDMA"));
}

TEST(TransportChoice, IsAmongThePortsToBeUsed) {
  FakeSysfs sysfs;
  sysfs.Add("mlx5_0", "mlx5_core", "4: ACTIVE");
  sysfs.Add("mlx5_1", "mlx5_core", "4: ACTIVE");
  TransportOptions options;
  options.bind_address = "10.0.0.1";
  options.rdma_ports = std::vector<std::string>{"mlx5_1:1"};
  const TransportChoice second = sysfs.Choose(options);
  EXPECT_THAT(second.reason, ::testing::StartsWith("mlx5_1:1 does RDMA"));
  options.rdma_ports.emplace();
  const TransportChoice none = sysfs.Choose(options);
  EXPECT_EQ(none.name, "tcp");
  EXPECT_EQ(none.reason,
            "mlx5_0:1 is not to be used, mlx5_1:1 is not to be used");
  EXPECT_FALSE(none.may_be_tcp);
}

// In any build; no card is asked.
TEST(TransportChoice, IsOneThatHasTheTls) {
  const auto chosen = [](const char* tls) {
    TransportOptions options;
    options.name = "auto";
    options.bind_address = "10.0.0.1";
    options.tls = tls;
    options.sysfs = "/nowhere";
    const TransportChoice choice = ChooseFor(options);
    return absl::StrCat(choice.name, ": ", choice.reason);
  };
  EXPECT_EQ(chosen("tcp"), "tcp: tls tcp was asked for");
  EXPECT_EQ(chosen("shm"), "ucx: tls shm was asked for");
  EXPECT_EQ(chosen("efa"), "ofi: tls efa was asked for, which only ofi has");
  EXPECT_EQ(chosen("verbs"),
            "ofi: tls verbs was asked for, which only ofi has");
  EXPECT_EQ(chosen("tcp;ofi_rxm"),
            "ofi: tls tcp;ofi_rxm was asked for, which only ofi has");
}

TEST(TransportChoice, NamesOfNetworksStandForWhatReachesThem) {
  const auto chosen = [](const char* name) {
    TransportOptions options;
    options.name = name;
    return ChooseTransport(options);
  };
  EXPECT_EQ(chosen("TCP").name, "tcp");
  EXPECT_EQ(chosen("IB").name, "ucx");
  EXPECT_EQ(chosen("RoCEv2").name, "ucx");
  EXPECT_EQ(chosen("efa").name, "ofi");
  EXPECT_EQ(chosen("efa").reason, "efa was asked for");
  EXPECT_EQ(chosen("tcp").reason, "");
  TransportOptions options;
  options.name = "EFA";
  EXPECT_EQ(ForNetwork(options).tls, "efa");
  EXPECT_EQ(ChooseTransport(options).tls, "efa");
  options.tls = "tcp";
  EXPECT_EQ(ChooseTransport(options).tls, "tcp");
  EXPECT_EQ(ForNetwork(options).tls, "tcp");
}

TEST(TransportChoice, RailsAreOfTcp) {
  TransportOptions options;
  options.name = "auto";
  options.rails = {"127.0.0.2"};
  EXPECT_EQ(ChooseTransport(options).name, "tcp");
  options.name = "inproc";
  EXPECT_THAT(CheckTransport(options),
              StatusIs(absl::StatusCode::kInvalidArgument, "takes no rails"));
  EXPECT_EQ(CheckTransport(options), Node(options).status);
}

TEST(TransportChoice, IsInThisBuild) {
  TransportOptions options;
  options.name = "auto";
  const Node node(options);
  ASSERT_THAT(node.status, IsOk());
  EXPECT_EQ(node.context->info().name, ChooseTransport(options).name);
  options.name = "pigeon";
  EXPECT_EQ(ChooseTransport(options).name, "pigeon");
}

TEST(TransportLink, NegativeRateIsAnError) {
  TransportOptions options;
  options.name = "inproc";
  options.link_bytes_per_s = -1;
  EXPECT_THAT(Node(options).status,
              StatusIs(absl::StatusCode::kInvalidArgument, "-1"));
}

// 20 messages of 100 KB at 10 MB/s take 0.2 s, however fast the machine is.
TEST(TransportLink, MessagesTakeTheTimeOfTheLink) {
  TransportOptions options;
  options.name = "inproc";
  options.link_bytes_per_s = 10e6;
  Node server(options), client(options);
  const auto endpoint = Connect(client, server);
  ASSERT_THAT(endpoint, IsOk());
  const TimePoint start = Clock::now();
  for (int i = 0; i < 20; ++i) {
    ASSERT_THAT(client.Send(*endpoint, "", std::string(100000, 'p')), IsOk());
  }
  ASSERT_TRUE(
      Drive({&server, &client}, [&] { return server.heard.size() == 20; }));
  EXPECT_GE(SecondsSince(start), 0.2);
  EXPECT_THAT(server.context->info().details, ::testing::HasSubstr("link of"));
}

TEST(TransportLink, LatencyOutOfRangeIsAnError) {
  TransportOptions options;
  options.name = "inproc";
  for (const double latency_s : {-1.0, 1.5, std::nan("")}) {
    options.link_latency_s = latency_s;
    EXPECT_THAT(Node(options).status,
                StatusIs(absl::StatusCode::kInvalidArgument, "latency"));
  }
}

// Two contexts behind a link, connected.
struct LinkedNodes {
  LinkedNodes(double bytes_per_s, double latency_s)
      : server(OptionsOf(bytes_per_s, latency_s)),
        client(OptionsOf(bytes_per_s, latency_s)) {
    if (!server.status.ok() || !client.status.ok()) return;
    const auto endpoint = Connect(client, server);
    if (endpoint.ok()) to_server = *endpoint;
  }

  static TransportOptions OptionsOf(double bytes_per_s, double latency_s) {
    TransportOptions options;
    options.name = "inproc";
    options.link_bytes_per_s = bytes_per_s;
    options.link_latency_s = latency_s;
    return options;
  }

  Node server, client;
  EndpointId to_server = 0;
};

TEST(TransportLink, EachDirectionHasTheLatency) {
  LinkedNodes nodes(0, 0.05);
  ASSERT_NE(nodes.to_server, 0u);
  const TimePoint start = Clock::now();
  TimePoint arrived;
  nodes.server.on_message = [&](const Heard& message) {
    arrived = Clock::now();
    EXPECT_THAT(nodes.server.Send(message.from, "back"), IsOk());
  };
  ASSERT_THAT(nodes.client.Send(nodes.to_server, "there"), IsOk());
  ASSERT_TRUE(Drive({&nodes.server, &nodes.client},
                    [&] { return nodes.client.heard.size() == 1; }));
  EXPECT_GE(arrived - start, FromSeconds(0.05));
  EXPECT_GE(SecondsSince(start), 0.1);
  EXPECT_THAT(nodes.client.context->info().details,
              ::testing::HasSubstr("link of any rate, 0.05 s latency"));
}

// 100 KB at 10 MB/s take 10 ms each; the last of 5 arrives 50 ms later.
TEST(TransportLink, LatencyComesOnTopOfTheRate) {
  LinkedNodes nodes(10e6, 0.05);
  ASSERT_NE(nodes.to_server, 0u);
  const TimePoint start = Clock::now();
  for (int i = 0; i < 5; ++i) {
    ASSERT_THAT(
        nodes.client.Send(nodes.to_server, "", std::string(100000, 'p')),
        IsOk());
  }
  ASSERT_TRUE(Drive({&nodes.server, &nodes.client},
                    [&] { return nodes.server.heard.size() == 5; }));
  EXPECT_GE(SecondsSince(start), 0.1);
}

// One after the other they would take longer than Drive waits.
TEST(TransportLink, ManyMessagesAreOnTheirWayTogether) {
  constexpr size_t kMessages = 2000;
  LinkedNodes nodes(0, 0.05);
  ASSERT_NE(nodes.to_server, 0u);
  for (size_t i = 0; i < kMessages; ++i) {
    ASSERT_THAT(nodes.client.Send(nodes.to_server, absl::StrCat(i),
                                  Pattern(1000, static_cast<uint32_t>(i))),
                IsOk());
  }
  ASSERT_TRUE(Drive({&nodes.server, &nodes.client},
                    [&] { return nodes.server.heard.size() == kMessages; }));
  for (size_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(nodes.server.heard[i].header, absl::StrCat(i));
    ASSERT_EQ(nodes.server.heard[i].payload,
              Pattern(1000, static_cast<uint32_t>(i)));
  }
  EXPECT_TRUE(nodes.client.EachCompletedOnce());
}

TEST(TransportLink, CloseWaitsForWhatIsOnItsWay) {
  LinkedNodes nodes(0, 0.05);
  ASSERT_NE(nodes.to_server, 0u);
  ASSERT_THAT(nodes.client.Send(nodes.to_server, "left"), IsOk());
  ASSERT_THAT(nodes.client.Send(nodes.to_server, "queued"), IsOk());
  nodes.client.context->Close(nodes.to_server);
  ASSERT_TRUE(Drive({&nodes.server, &nodes.client}, [&] {
    return nodes.client.closed.count(nodes.to_server) > 0;
  }));
  EXPECT_EQ(nodes.server.heard.size(), 2u);
  EXPECT_TRUE(nodes.client.EachCompletedOnce());
  for (const auto& result : nodes.client.results) {
    EXPECT_THAT(result[0], IsOk());
  }
}

TEST(TransportLink, CloseCompletesWhatCannotLeaveInTime) {
  LinkedNodes nodes(1000, 0);
  ASSERT_NE(nodes.to_server, 0u);
  ASSERT_THAT(nodes.client.Send(nodes.to_server, "", std::string(100000, 'p')),
              IsOk());
  nodes.client.context->Close(nodes.to_server);
  ASSERT_TRUE(Drive({&nodes.server, &nodes.client}, [&] {
    return nodes.client.closed.count(nodes.to_server) > 0;
  }));
  ASSERT_TRUE(nodes.client.EachCompletedOnce());
  EXPECT_THAT(nodes.client.results[0][0],
              StatusIs(absl::StatusCode::kCancelled, ""));
}

}  // namespace
}  // namespace telegrad::testing
