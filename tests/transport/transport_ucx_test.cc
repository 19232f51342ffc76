#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/network_device.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/transport_node.h"
#include "transport/gid_row.h"
#include "transport/transport.h"
#include "transport/ucx/address.h"
#include "transport/ucx/config.h"
#include "transport/ucx/worker.h"

namespace telegrad::testing {
namespace {

using absl::StatusCode;
namespace fs = std::filesystem;

std::set<std::string> SocketInodes() {
  std::set<std::string> inodes;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = fs::read_symlink(entry.path(), error);
    if (target.rfind("socket:[", 0) != 0) continue;
    inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

// Local addresses (hexadecimal, as the kernel prints them) on which this
// process listens.
std::vector<std::string> ListeningAddresses() {
  const std::set<std::string> inodes = SocketInodes();
  std::vector<std::string> addresses;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, word, inode;
      fields >> slot >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) fields >> word;
      fields >> inode;
      constexpr char kListen[] = "0A";
      if (state == kListen && inodes.count(inode)) addresses.push_back(local);
    }
  }
  return addresses;
}

TEST(UcxTransport, LoopbackContextListensOnLoopbackOnly) {
  for (const char* tls : {"", "tcp", "shm"}) {
    TransportOptions options;
    options.tls = tls;
    Node node(options);
    ASSERT_THAT(node.status, IsOk());
    ASSERT_THAT(node.context->Listen(), IsOk());
    const std::vector<std::string> addresses = ListeningAddresses();
    EXPECT_FALSE(addresses.empty());
    for (const std::string& address : addresses) {
      EXPECT_TRUE(absl::StartsWith(address, "0100007F:")) << address;
    }
  }
}

TEST(UcxTransport, DevicesBeyondLoopbackAreRefused) {
  setenv("UCX_NET_DEVICES", "lo,eth0", 1);
  const Node node{TransportOptions()};
  unsetenv("UCX_NET_DEVICES");
  EXPECT_THAT(node.status, StatusIs(StatusCode::kInvalidArgument,
                                    "UCX_NET_DEVICES=lo,eth0"));
}

TEST(UcxTransport, TlsOfTheUserWins) {
  setenv("UCX_TLS", "self,tcp", 1);
  const Node both{TransportOptions()};
  TransportOptions options;
  options.tls = "shm";
  const Node shm(options);
  setenv("UCX_TLS", "^cma", 1);
  const Node without_cma(options);
  unsetenv("UCX_TLS");
  ASSERT_THAT(both.status, IsOk());
  EXPECT_THAT(
      both.context->info().details,
      ::testing::HasSubstr("tls self,tcp, devices lo, no shared memory: "
                           "UCX_TLS=self,tcp leaves out posix"));
  EXPECT_THAT(shm.status, StatusIs(StatusCode::kUnavailable, "UCX_TLS"));
  ASSERT_THAT(without_cma.status, IsOk());
  EXPECT_THAT(without_cma.context->info().details,
              ::testing::HasSubstr("same host posix,self"));
}

// Sets a variable while it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    setenv(name, value, 1);
  }
  ~Variable() { unsetenv(name_); }

 private:
  const char* const name_;
};

std::string DetailsOf(const Node& node) {
  return node.status.ok() ? node.context->info().details
                          : node.status.ToString();
}

TEST(UcxTransport, SettingsOfOursAreShownAndTheUsersWin) {
  TransportOptions options;
  options.tls = "shm";
  EXPECT_THAT(
      DetailsOf(Node(options)),
      ::testing::EndsWith("UCX_MM_ERROR_HANDLING=y UCX_CMA_MEMORY_INVALIDATE=y "
                          "UCX_MM_RX_BUFS_GROW=64"));
  for (const char* name : {"UCX_MM_RX_BUFS_GROW", "UCX_POSIX_RX_BUFS_GROW"}) {
    const Variable grow(name, "512");
    const std::string details = DetailsOf(Node(options));
    EXPECT_THAT(details, ::testing::HasSubstr("set by us "));
    EXPECT_THAT(details, Not(::testing::HasSubstr("RX_BUFS_GROW")));
  }
}

TEST(UcxTransport, SharedMemoryWithoutReportsOfFailuresIsRefused) {
  TransportOptions options;
  for (const char* name :
       {"UCX_MM_ERROR_HANDLING", "UCX_POSIX_ERROR_HANDLING"}) {
    const Variable off(name, "n");
    const std::string text = absl::StrCat(name, "=n, but a peer");
    options.tls = "shm";
    EXPECT_THAT(Node(options).status, StatusIs(StatusCode::kUnavailable, text));
    options.tls = "";
    EXPECT_THAT(DetailsOf(Node(options)),
                ::testing::HasSubstr("no shared memory: " + text));
  }
  const Variable on("UCX_MM_ERROR_HANDLING", "y");
  EXPECT_THAT(DetailsOf(Node(options)), ::testing::HasSubstr("same host"));
}

// What this process has sent by all its TCP connections.
uint64_t TcpBytesSent() {
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    tcp_info info{};
    socklen_t size = sizeof(info);
    const int fd = std::stoi(entry.path().filename());
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    bytes += info.tcpi_bytes_sent;
  }
  return bytes;
}

// Two contexts, connected; then 64 messages each of 16 and of 200,000 bytes.
struct Transfer {
  static constexpr int kMessages = 64;
  static constexpr uint64_t kBytes = uint64_t{kMessages} * 200'000;

  Transfer(const char* server_tls, const char* client_tls)
      : server(OptionsOf(server_tls)), client(OptionsOf(client_tls)) {
    if (!server.status.ok() || !client.status.ok()) return;
    const auto address = server.context->Listen();
    if (!address.ok()) return;
    const auto endpoint = client.context->Connect(*address);
    if (!endpoint.ok()) return;
    to_server = *endpoint;
    const uint64_t before = TcpBytesSent();
    for (int i = 0; i < kMessages; ++i) {
      (void)client.Send(to_server, "small", std::string(16, 's'));
      (void)client.Send(to_server, "large", std::string(200'000, 'l'));
    }
    Drive({&server, &client}, [&] {
      return client.num_completed == 2 * kMessages &&
             (server.heard.size() == 2 * kMessages ||
              client.closed.count(to_server) > 0);
    });
    tcp_bytes = TcpBytesSent() - before;
  }

  static TransportOptions OptionsOf(const char* tls) {
    TransportOptions options;
    options.tls = tls;
    return options;
  }

  Node server, client;
  EndpointId to_server = 0;
  uint64_t tcp_bytes = 0;
};

TEST(UcxTransport, OneHostSharesMemoryUnlessTcpIsAskedFor) {
  for (const char* tls : {"shm", ""}) {
    const Transfer transfer(tls, tls);
    ASSERT_EQ(transfer.server.heard.size(), 2u * Transfer::kMessages);
    EXPECT_LT(transfer.tcp_bytes, 10'000u);
    for (const Node* node : {&transfer.server, &transfer.client}) {
      EXPECT_THAT(node->context->info().details,
                  ::testing::HasSubstr("1 endpoints over posix/memory"));
    }
  }
  for (const auto& [server, client] : {std::pair{"tcp", "tcp"}, {"", "tcp"}}) {
    const Transfer transfer(server, client);
    ASSERT_EQ(transfer.server.heard.size(), 2u * Transfer::kMessages);
    EXPECT_GT(transfer.tcp_bytes, Transfer::kBytes);
    for (const Node* node : {&transfer.server, &transfer.client}) {
      EXPECT_THAT(node->context->info().details,
                  ::testing::HasSubstr("1 endpoints over tcp/lo"));
    }
  }
}

// The message goes by shared memory, what agrees on that by the connection. A
// client that is slow hears of the agreement, and sends, when both are there.
TEST(UcxTransport, AMessageThatPassesTheAgreementIsKnownToBeInMemory) {
  TransportOptions options;
  options.tls = "shm";
  Node server(options), client(options);
  ASSERT_THAT(server.status, IsOk());
  ASSERT_THAT(client.status, IsOk());
  const auto address = server.context->Listen();
  ASSERT_THAT(address, IsOk());
  server.on_message = [&](const Heard& message) {
    EXPECT_TRUE(server.context->IsInMemory(message.from));
  };
  std::atomic<bool> is_done{false};
  std::thread server_thread([&] {
    while (!is_done) {
      server.context->Progress(Clock::now() + std::chrono::seconds(1));
    }
  });
  for (size_t i = 0; i < 100; ++i) {
    const auto to_server = client.context->Connect(*address);
    EXPECT_THAT(to_server, IsOk());
    EXPECT_THAT(client.Send(*to_server, "h", "p"), IsOk());
    TimePoint next = Clock::now();
    EXPECT_TRUE(Drive({}, [&] {
      if (Clock::now() < next) return false;
      client.context->Progress(Clock::now());
      next = Clock::now() + std::chrono::microseconds(3 * (i % 40));
      return client.num_completed == i + 1;
    }));
    client.context->Close(*to_server);
    EXPECT_TRUE(
        Drive({&client}, [&] { return client.closed.size() == i + 1; }));
  }
  is_done = true;
  server.context->Wake();
  server_thread.join();
  EXPECT_EQ(server.heard.size(), 100u);
}

TEST(UcxTransport, LargeMessagesAreCopiedWhereTheUserForbidsToReadMemory) {
  const Variable off("UCX_CMA_MEMORY_INVALIDATE", "n");
  const Transfer transfer("shm", "shm");
  ASSERT_EQ(transfer.server.heard.size(), 2u * Transfer::kMessages);
  EXPECT_LT(transfer.tcp_bytes, 10'000u);
  EXPECT_THAT(DetailsOf(transfer.client),
              ::testing::AllOf(::testing::HasSubstr("same host posix,self"),
                               Not(::testing::HasSubstr("cma"))));
}

TEST(UcxTransport, ShmIsAnErrorWherePeersCannotShare) {
  Transfer transfer("tcp", "shm");
  EXPECT_TRUE(transfer.server.heard.empty());
  EXPECT_TRUE(transfer.client.EachCompletedOnce());
  ASSERT_TRUE(transfer.client.closed.count(transfer.to_server));
  EXPECT_THAT(transfer.client.closed[transfer.to_server],
              StatusIs(StatusCode::kCancelled, "tls shm"));
}

TEST(UcxTransport, UnusableOptionsAreErrors) {
  TransportOptions options;
  options.tls = "carrier-pigeon";
  EXPECT_THAT(Node(options).status,
              StatusIs(StatusCode::kInvalidArgument, "carrier-pigeon"));
  options = {};
  options.bind_address = "localhost";
  EXPECT_THAT(Node(options).status,
              StatusIs(StatusCode::kInvalidArgument, "localhost"));
  // UCX would listen on the third for nothing: peers could not connect.
  for (const char* address : {"203.0.113.77", "0.0.0.0", "127.0.0.2"}) {
    options.bind_address = address;
    EXPECT_THAT(Node(options).status,
                StatusIs(StatusCode::kInvalidArgument, address));
  }
}

TEST(UcxTransport, MalformedAddressesAreErrors) {
  Node node{TransportOptions()};
  ASSERT_THAT(node.status, IsOk());
  for (const char* text : {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0",
                           "127.0.0.1:65536", "name:80", "[::1:80"}) {
    EXPECT_THAT(node.context->Connect(text),
                StatusIs(StatusCode::kInvalidArgument, ""))
        << text;
  }
}

TEST(UcxAddress, TextSurvivesARoundTrip) {
  for (const char* text : {"127.0.0.1:40123", "[::1]:1", "[fe80::1]:65535"}) {
    const auto address = ParseIpPort(text);
    ASSERT_THAT(address, IsOk());
    EXPECT_EQ(ToString(*address), text);
  }
}

TEST(UcxAddress, AGidRowIsCommonOrNone) {
  const std::map<std::string, int> rows = {
      {"mlx5_0:1", 3}, {"mlx5_1:1", 3}, {"mlx5_2:1", 5}};
  const auto row = [&rows](const char* devices) {
    return CommonGidRow(ucx::RdmaPortsOf(devices), rows);
  };
  EXPECT_EQ(row("eth0,mlx5_0:1,mlx5_1:1"), 3);
  EXPECT_EQ(row("mlx5_2:1"), 5);
  EXPECT_EQ(row("mlx5_0:1,mlx5_2:1"), std::nullopt);
  EXPECT_EQ(row("mlx5_0:1,ib_0:1"), std::nullopt);
  EXPECT_EQ(row("eth0"), std::nullopt);
}

std::string FirstDeviceBeyondLoopback() {
  for (const auto& entry : fs::directory_iterator("/sys/class/net")) {
    const std::string name = entry.path().filename();
    if (name != "lo" && AddressOfDevice(name).ok()) return name;
  }
  return "";
}

// What UCX is told of cards that this machine need not have.
std::string SettingsOf(const TransportOptions& options,
                       const SocketAddress& bind) {
  const auto config = ucx::MakeConfig(options, bind);
  if (!config.ok()) return config.status().ToString();
  return absl::StrCat(config->devices, "; ", absl::StrJoin(config->ours, " "));
}

TEST(UcxTransport, TakesThePortsAndTheGidRowThatWereChosen) {
  const auto address = AddressOfDevice(FirstDeviceBeyondLoopback());
  if (!address.ok()) GTEST_SKIP() << "no address but loopback";
  const SocketAddress bind = *ParseIp(*address, 0);
  const std::string interface = *ucx::InterfaceOf(bind);
  TransportOptions options;
  options.bind_address = *address;
  options.rdma_ports = {"none_8:1", "none_9:1"};
  options.gid_rows = {{"none_8:1", 3}, {"none_9:1", 3}};
  const std::string chosen = interface + ",none_8:1,none_9:1; ";
  EXPECT_EQ(SettingsOf(options, bind), chosen + "UCX_IB_GID_INDEX=3");
  const Node node(options);
  ASSERT_THAT(node.status, IsOk());
  EXPECT_THAT(node.context->info().details,
              ::testing::HasSubstr("UCX_IB_GID_INDEX=3"));
  {
    const Variable row("UCX_IB_GID_INDEX", "1");
    EXPECT_EQ(SettingsOf(options, bind), chosen);
    const Variable devices("UCX_NET_DEVICES", "mlx5_7:1");
    EXPECT_EQ(SettingsOf(options, bind), "mlx5_7:1; ");
  }
  options.gid_rows["none_9:1"] = 4;
  EXPECT_EQ(SettingsOf(options, bind), chosen);
  options.rdma_ports.clear();
  EXPECT_EQ(SettingsOf(options, bind), interface + "; ");
  EXPECT_EQ(SettingsOf(options, *ParseIp("127.0.0.1", 0)), "lo; ");
}

TEST(UcxLanes, AreCheckedWhereAllThatLeaveTheMachineAreRdma) {
  EXPECT_TRUE(ucx::AreChecked("rc_mlx5/mlx5_0:1"));
  EXPECT_TRUE(ucx::AreChecked("dc_mlx5/mlx5_0:1 rc_verbs/mlx5_1:1"));
  EXPECT_TRUE(ucx::AreChecked("rc_mlx5/mlx5_0:1 cuda_copy/cuda"));
  EXPECT_FALSE(ucx::AreChecked("rc_mlx5/mlx5_0:1 tcp/eth0"));
  EXPECT_FALSE(ucx::AreChecked("tcp/eth0"));
  EXPECT_FALSE(ucx::AreChecked("posix/memory cma/memory"));
  EXPECT_FALSE(ucx::AreChecked(""));
}

}  // namespace
}  // namespace telegrad::testing
