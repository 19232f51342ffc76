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

// A machine's /sys/class/infiniband.
class FakeSysfs {
 public:
  FakeSysfs() {
    std::string name = ::testing::TempDir() + "sysfsXXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~FakeSysfs() { fs::remove_all(root_); }
  void Add(const std::string& card, const std::string& driver,
           const std::string& state) {
    const fs::path folder = root_ / "class/infiniband" / card;
    fs::create_directories(folder / "ports/1");
    std::ofstream(folder / "ports/1/state") << state << "\n";
    fs::create_directories(folder / "device");
    fs::create_symlink("../../drivers/" + driver, folder / "device/driver");
  }
  std::string Chosen(const std::string& bind, const std::string& tls = "") {
    TransportOptions options;
    options.name = "auto";
    options.bind_address = bind;
    options.tls = tls;
    const TransportChoice choice = ChooseTransport(options, root_);
    return absl::StrCat(choice.name, ": ", choice.reason);
  }

 private:
  fs::path root_;
};

TEST(TransportChoice, IsTheMachines) {
  FakeSysfs sysfs;
  EXPECT_EQ(sysfs.Chosen("10.0.0.1"), "tcp: no card here does RDMA");
  sysfs.Add("mlx5_1", "mlx5_core", "1: DOWN");
  EXPECT_EQ(sysfs.Chosen("10.0.0.1"), "tcp: no card here does RDMA");
  sysfs.Add("mlx5_2", "mlx5_core", "4: ACTIVE");
  EXPECT_THAT(sysfs.Chosen("10.0.0.1"),
              ::testing::HasSubstr("mlx5_2 does RDMA"));
  EXPECT_THAT(sysfs.Chosen("127.0.0.1"), ::testing::HasSubstr("shared memory"));
  EXPECT_THAT(sysfs.Chosen("::1"), ::testing::HasSubstr("shared memory"));
  EXPECT_EQ(sysfs.Chosen("10.0.0.1", "tcp"), "tcp: tls tcp was asked for");
  sysfs.Add("efa_0", "efa", "4: ACTIVE");
  EXPECT_THAT(sysfs.Chosen("10.0.0.1"), ::testing::HasSubstr("efa_0 is EFA"));
}

// In any build; no card is asked.
TEST(TransportChoice, IsOneThatHasTheTls) {
  const auto chosen = [](const char* tls) {
    TransportOptions options;
    options.name = "auto";
    options.bind_address = "10.0.0.1";
    options.tls = tls;
    const TransportChoice choice = ChooseFor(options, "/nowhere");
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
  const auto address = server.context->Listen();
  ASSERT_THAT(address, IsOk());
  const auto endpoint = client.context->Connect(*address);
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

TEST(TransportLink, CloseCompletesWhatCannotLeaveInTime) {
  TransportOptions options;
  options.name = "inproc";
  options.link_bytes_per_s = 1000;
  Node server(options), client(options);
  const auto address = server.context->Listen();
  ASSERT_THAT(address, IsOk());
  const auto endpoint = client.context->Connect(*address);
  ASSERT_THAT(endpoint, IsOk());
  ASSERT_THAT(client.Send(*endpoint, "", std::string(100000, 'p')), IsOk());
  client.context->Close(*endpoint);
  ASSERT_TRUE(Drive({&server, &client},
                    [&] { return client.closed.count(*endpoint) > 0; }));
  ASSERT_TRUE(client.EachCompletedOnce());
  EXPECT_THAT(client.results[0][0], StatusIs(absl::StatusCode::kCancelled, ""));
}

}  // namespace
}  // namespace telegrad::testing
