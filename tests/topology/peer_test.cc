#include "topology/cli/peer.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/socket.h"
#include "tests/testing/status_matchers.h"

namespace telegrad::topo {
namespace {

using telegrad::testing::IsOk;
using telegrad::testing::StatusIs;

constexpr Duration kPatience = std::chrono::seconds(30);

TEST(Peer, ShowsItsMachineAndTheLink) {
  absl::StatusOr<PeerServer> server = PeerServer::Listen("127.0.0.1:0");
  ASSERT_THAT(server, IsOk());
  absl::StatusOr<std::string> seen = absl::UnknownError("not served");
  std::thread thread(
      [&] { seen = server->ServeOne("server's", Clock::now() + kPatience); });
  const std::string large(4 << 20, 'x');  // beyond what sockets hold
  const auto result = ProbePeer(server->address(), large, kPatience);
  thread.join();
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->machine_json, "server's");
  EXPECT_GT(result->bytes_per_s, 0);
  EXPECT_GT(result->round_trip_us, 0);
  ASSERT_THAT(seen, IsOk());
  EXPECT_EQ(*seen, large);
}

TEST(Peer, ThatIsNotThereIsAnError) {
  std::string address;
  {
    auto server = PeerServer::Listen("127.0.0.1:0");
    ASSERT_THAT(server, IsOk());
    address = server->address();
  }
  EXPECT_THAT(ProbePeer(address, "", kPatience),
              StatusIs(absl::StatusCode::kUnavailable, address));
}

TEST(Peer, ThatIsSilentIsGivenUp) {
  const auto server = PeerServer::Listen("127.0.0.1:0");  // never answers
  ASSERT_THAT(server, IsOk());
  EXPECT_THAT(ProbePeer(server->address(), "", std::chrono::milliseconds(50)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, server->address()));
}

TEST(Peer, IsFoundAtAnotherAddressOfItsName) {
  const auto addresses = Resolve("localhost", 1);
  ASSERT_THAT(addresses, IsOk());
  if (addresses->size() < 2 || ToString(addresses->front()) != "[::1]:1") {
    GTEST_SKIP() << "localhost is not ::1 and 127.0.0.1 here";
  }
  absl::StatusOr<PeerServer> server = PeerServer::Listen("127.0.0.1:0");
  ASSERT_THAT(server, IsOk());
  const int port = ParseHostPort(server->address())->port;
  // Of connections that nobody accepts, Linux answers so many and no more.
  const auto silent = ListenOn(*ParseIp("::1", port));
  ASSERT_THAT(silent, IsOk());
  ASSERT_EQ(listen(silent->get(), 0), 0);
  std::vector<UniqueFd> waiting;
  for (int i = 0; i < 4; ++i) {
    auto fd = BeginConnect(*ParseIp("::1", port));
    if (fd.ok()) waiting.push_back(*std::move(fd));
  }
  std::thread thread(
      [&] { (void)server->ServeOne("server's", Clock::now() + kPatience); });
  const auto result =
      ProbePeer(FormatHostPort("localhost", port), "", std::chrono::seconds(2));
  thread.join();
  EXPECT_THAT(result, IsOk());
}

TEST(Peer, NeedsAnAddressWithAPort) {
  for (const char* bad : {"", "host", ":1", "host:", "host:x", "host:70000"}) {
    EXPECT_THAT(ProbePeer(bad, "", kPatience),
                StatusIs(absl::StatusCode::kInvalidArgument, "host:port"));
  }
}

TEST(Peer, ServingEndsInTime) {
  auto server = PeerServer::Listen("127.0.0.1:0");
  ASSERT_THAT(server, IsOk());
  EXPECT_THAT(
      server->ServeOne("", Clock::now() + std::chrono::milliseconds(20)),
      StatusIs(absl::StatusCode::kDeadlineExceeded, "no peer"));
}

}  // namespace
}  // namespace telegrad::topo
