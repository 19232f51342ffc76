#include "topology/cli/peer.h"

#include <gtest/gtest.h>

#include <thread>

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
