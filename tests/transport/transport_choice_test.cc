#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

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
  TransportOptions Options(const std::string& name) const {
    TransportOptions options;
    options.name = name;
    options.bind_address = "10.0.0.1";
    options.sysfs = root_ / "sys";
    return options;
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
  EXPECT_EQ(sysfs.Chosen("10.0.0.1"),
            none + " (row 1 is IB/RoCE v1, " + zeros + "ffff:0a00:0001)");
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

constexpr uint64_t kMuch = uint64_t{64} << 20;

TEST(RdmaWarning, NamesTheRowsForWhichUcxGoesOverTcp) {
  FakeSysfs sysfs;
  TransportOptions options = sysfs.Options("ucx");
  EXPECT_EQ(RdmaWarning(options, kMuch), "");  // no card: nothing is lost
  sysfs.Add("mlx5_0", "mlx5_core", "4: ACTIVE");
  sysfs.Write("mlx5_0", "ports/1/link_layer", "Ethernet");
  const std::string gid = "0000:0000:0000:0000:0000:ffff:0a00:0001";
  sysfs.SetGid("mlx5_0", 2, "IB/RoCE v1", gid);
  options.rdma_ports.emplace();  // as detection leaves it
  EXPECT_THAT(
      RdmaWarning(options, kMuch),
      ::testing::StartsWith("ucx goes over TCP here: mlx5_0:1 has no routable "
                            "GID of RoCE v2 (row 2 is IB/RoCE v1, " +
                            gid + "); "));
  for (const char* name : {"tcp", "auto", "EFA"}) {
    EXPECT_EQ(RdmaWarning(sysfs.Options(name), kMuch), "") << name;
  }
  options.bind_address = "127.0.0.1";
  EXPECT_EQ(RdmaWarning(options, kMuch), "");
  options = sysfs.Options("RoCEv2");
  EXPECT_NE(RdmaWarning(options, kMuch), "");
  sysfs.SetGid("mlx5_0", 3, "RoCE v2", gid);
  EXPECT_EQ(RdmaWarning(options, kMuch), "");
}

TEST(RdmaWarning, TellsThatTooLittleMemoryMayBeLocked) {
  FakeSysfs sysfs;
  sysfs.Add("mlx5_0", "mlx5_core", "4: ACTIVE");
  const TransportOptions options = sysfs.Options("ucx");
  EXPECT_EQ(RdmaWarning(options, kMuch), "");
  EXPECT_THAT(RdmaWarning(options, kMuch - 1),
              ::testing::StartsWith("mlx5_0:1 does RDMA, but only 65535 KiB of "
                                    "memory may be locked"));
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

}  // namespace
}  // namespace telegrad::testing
