#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <string>

#include "base/socket.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/transport_node.h"
#include "transport/tcp/congestion.h"
#include "transport/transport.h"

namespace telegrad::testing {
namespace {

using absl::StatusCode;
using tcp::CheckCongestion;
using tcp::CongestionControlOf;
using tcp::SetCongestion;
using tcp::SetCongestionControl;
using ::testing::HasSubstr;

// The default of this network namespace.
std::string SystemsOwn() {
  std::ifstream file("/proc/sys/net/ipv4/tcp_congestion_control");
  std::string name;
  file >> name;
  return name;
}

TransportOptions Options(const std::string& congestion) {
  TransportOptions options;
  options.name = options.tls = "tcp";
  options.congestion = congestion;
  return options;
}

// A connection over loopback, which is near.
class Connected {
 public:
  Connected() {
    const auto any = ParseIp("127.0.0.1", 0);
    auto listener = ListenOn(*any);
    const auto address = LocalAddress(listener->get());
    fd_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    is_ok_ =
        connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address->storage),
                address->length) == 0;
    listener_ = *std::move(listener);
  }
  int get() const { return fd_.get(); }
  bool is_ok() const { return is_ok_; }

 private:
  UniqueFd listener_;
  UniqueFd fd_;
  bool is_ok_ = false;
};

// What `congestion` leads to at both ends.
std::string DetailsWith(const std::string& congestion) {
  Node server(Options(congestion));
  Node client(Options(congestion));
  const auto endpoint = Connect(client, server);
  EXPECT_THAT(endpoint, IsOk());
  if (!endpoint.ok()) return "";
  EXPECT_THAT(client.Send(*endpoint, "h", "payload"), IsOk());
  EXPECT_TRUE(Drive({&server, &client}, [&] { return !server.heard.empty(); }));
  EXPECT_EQ(server.context->info().details, client.context->info().details);
  return server.context->info().details;
}

TEST(TcpCongestion, RenoStandsInForBbrToPeersNearby) {
  const Connected socket;
  ASSERT_TRUE(socket.is_ok());
  if (!SetCongestionControl(socket.get(), "bbr").ok()) {
    GTEST_SKIP() << "this kernel has no bbr, or not for this user";
  }
  SetCongestion(socket.get(), "system");
  EXPECT_EQ(CongestionControlOf(socket.get()), "bbr");
  SetCongestion(socket.get(), "auto");
  EXPECT_EQ(CongestionControlOf(socket.get()), "reno");
}

TEST(TcpCongestion, AutoLeavesOthersAlone) {
  const Connected socket;
  ASSERT_TRUE(socket.is_ok());
  const std::string other = SystemsOwn();
  if (other.starts_with("bbr")) {
    ASSERT_THAT(SetCongestionControl(socket.get(), "reno"), IsOk());
  }
  const std::string before = CongestionControlOf(socket.get());
  SetCongestion(socket.get(), "auto");
  EXPECT_EQ(CongestionControlOf(socket.get()), before);
}

TEST(TcpCongestion, ConnectionsHaveWhatWasAskedForAndSayIt) {
  EXPECT_THAT(DetailsWith("reno"), HasSubstr("kernel (reno)"));
  EXPECT_THAT(DetailsWith("system"), HasSubstr("(" + SystemsOwn() + ")"));
  const bool is_bbr = SystemsOwn().starts_with("bbr");
  EXPECT_THAT(DetailsWith("auto"),
              HasSubstr(is_bbr ? "(reno)" : "(" + SystemsOwn() + ")"));
  EXPECT_THAT(Node(Options("reno")).context->info().details,
              HasSubstr("kernel (reno)"));
  EXPECT_THAT(Node(Options("auto")).context->info().details,
              HasSubstr(is_bbr ? "(reno nearby, else bbr" : SystemsOwn()));
}

TEST(TcpCongestion, UnknownOnesAreErrors) {
  EXPECT_THAT(CheckCongestion("auto"), IsOk());
  EXPECT_THAT(CheckCongestion("system"), IsOk());
  EXPECT_THAT(CheckCongestion("reno"), IsOk());
  EXPECT_THAT(CheckCongestion("turbo"),
              StatusIs(StatusCode::kInvalidArgument, "kernel has"));
  for (const std::string name : {"turbo", "", "a name that is far too long"}) {
    EXPECT_THAT(Node(Options(name)).status,
                StatusIs(StatusCode::kInvalidArgument, "congestion control"))
        << name;
  }
}

}  // namespace
}  // namespace telegrad::testing
