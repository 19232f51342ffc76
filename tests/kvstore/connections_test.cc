#include "kvstore/connections.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using absl::StatusCode;
using testing::IsOk;
using testing::StatusIs;

// A host with a card of 10 and one of 100 Gb/s, one of a guest whose speed
// nobody says, and a bond below a VLAN below a bridge.
absl::StatusOr<SysRoot> Devices() {
  std::map<std::string, std::string> files;
  const auto add = [&files](const std::string& name, const std::string& mbps,
                            const std::string& uevent) {
    const std::string folder = "sys/class/net/" + name;
    files[folder + "/type"] = "1\n";
    files[folder + "/uevent"] = uevent;
    if (!mbps.empty()) files[folder + "/speed"] = mbps;
    return folder;
  };
  add("eth10", "10000\n", "");
  add("eth100", "100000\n", "");
  add("guest", "", "");
  add("bond0", "20000\n", "DEVTYPE=bond\n");
  files[add("vlan7", "20000\n", "DEVTYPE=vlan\n") + "/lower_bond0"] = "";
  files[add("br0", "", "DEVTYPE=bridge\n") + "/lower_vlan7"] = "";
  files[add("br1", "", "DEVTYPE=bridge\n") + "/lower_eth10"] = "";
  auto tree = std::make_unique<MemoryTree>();
  for (const auto& [path, text] : files) {
    EXPECT_TRUE(tree->AddFile(path, text)) << path;
  }
  return SysRoot::FromTree(std::move(tree), "test");
}

TransportOptions Options(const std::string& name = "tcp") {
  TransportOptions options;
  options.name = name;
  options.bind_address = "192.0.2.1";
  return options;
}

std::string Chosen(const TransportOptions& options,
                   const absl::StatusOr<std::string>& device) {
  const absl::StatusOr<SysRoot> root = Devices();
  EXPECT_THAT(root, IsOk());
  const ConnectionChoice choice =
      ChooseConnections(options, ChooseTransport(options), device, *root);
  return absl::StrCat(choice.connections, ": ", choice.reason);
}

TEST(Connections, OneLinkHasOne) {
  EXPECT_EQ(Chosen(Options(), "eth10"), "1: eth10 is one link of 10 Gb/s");
  EXPECT_EQ(Chosen(Options(), "guest"), "1: guest is one link");
  EXPECT_EQ(Chosen(Options(), "br1"), "1: br1 is one link");
}

TEST(Connections, WhatOneStreamDoesNotFillHasFour) {
  EXPECT_EQ(Chosen(Options(), "eth100"),
            "4: eth100: one TCP stream does not fill 100 Gb/s");
  TransportOptions ucx = Options("ucx");
  ucx.tls = "tcp";
  EXPECT_EQ(Chosen(ucx, "eth100").substr(0, 2), "4:");
  // It may do RDMA, and has lanes of its own.
  EXPECT_EQ(Chosen(Options("ucx"), "eth100"),
            "1: eth100 is one link of 100 Gb/s");
}

TEST(Connections, ABondHasTwo) {
  for (const char* name : {"bond0", "vlan7", "br0"}) {
    EXPECT_EQ(Chosen(Options(), name),
              absl::StrCat("2: ", name, ": a bond spreads by connection"));
  }
  EXPECT_EQ(Chosen(Options("ucx"), "bond0"),
            "2: bond0: a bond spreads by connection");
}

TEST(Connections, EachRailHasOneAtLeast) {
  TransportOptions options = Options();
  options.rails = {"192.0.2.2", "192.0.2.3"};
  EXPECT_EQ(Chosen(options, "eth10"), "3: one for each of 3 rails");
  EXPECT_EQ(Chosen(options, "bond0"), "3: one for each of 3 rails");
  EXPECT_EQ(Chosen(options, "eth100").substr(0, 2), "4:");
}

TEST(Connections, WhereNothingIsKnownThereIsOne) {
  EXPECT_EQ(Chosen(Options(), "eth5"), "1: nothing is known of eth5");
  EXPECT_EQ(Chosen(Options(), absl::NotFoundError("no device")),
            "1: no device");
  TransportOptions loopback = Options();
  loopback.bind_address = "127.0.0.1";
  EXPECT_EQ(Chosen(loopback, "bond0"), "1: 127.0.0.1 is this host alone");
  EXPECT_EQ(ChooseConnections(loopback, ChooseTransport(loopback)).connections,
            1u);
}

TEST(Connections, AreANumberOrAuto) {
  EXPECT_EQ(ParseConnections("auto").value_or(99), kAutoConnections);
  EXPECT_EQ(ParseConnections("1").value_or(99), 1u);
  EXPECT_EQ(ParseConnections("64").value_or(99), 64u);
  for (const char* text : {"0", "65", "-1", "", "Auto", "2x"}) {
    EXPECT_THAT(ParseConnections(text),
                StatusIs(StatusCode::kInvalidArgument, "1 to 64"));
  }
}

}  // namespace
}  // namespace telegrad
