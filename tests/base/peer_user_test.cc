#include "base/peer_user.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "base/exit_code.h"
#include "base/socket.h"
#include "tests/testing/as_nobody.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using absl::StatusCode;
using testing::IsOk;
using testing::StatusIs;

// Both ends of a connection.
struct Pair {
  explicit Pair(const std::string& ip) : Pair(*ListenOn(*ParseIp(ip, 0))) {}
  explicit Pair(const UniqueFd& listener)
      : client(*BeginConnect(*LocalAddress(listener.get()))),
        server(Accepted(listener)) {}
  static UniqueFd Accepted(const UniqueFd& listener) {
    pollfd polled{.fd = listener.get(), .events = POLLIN, .revents = 0};
    poll(&polled, 1, 20000);
    return UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK));
  }
  UniqueFd client, server;
};

TEST(PeerUser, OneOfThisUserMaySpeak) {
  for (const char* ip : {"127.0.0.1", "127.8.0.1", "::1"}) {
    SCOPED_TRACE(ip);
    if (!ListenOn(*ParseIp(ip, 0)).ok()) continue;  // no IPv6 here
    const Pair pair{std::string(ip)};
    EXPECT_THAT(CheckPeerUser(pair.server.get()), IsOk());
    EXPECT_THAT(CheckPeerUser(pair.client.get()), IsOk());
  }
}

TEST(PeerUser, WhoHasClosedIsNobody) {
  for (const bool resets : {false, true}) {
    Pair pair("127.0.0.1");
    const linger at_once{.l_onoff = resets, .l_linger = 0};
    ASSERT_EQ(setsockopt(pair.client.get(), SOL_SOCKET, SO_LINGER, &at_once,
                         sizeof(at_once)),
              0);
    ASSERT_EQ(send(pair.client.get(), "join", 4, 0), 4);
    pair.client.Close();
    // One that is gone altogether has no address either.
    const absl::Status user = CheckPeerUser(pair.server.get());
    if (!resets) {
      EXPECT_THAT(user, StatusIs(StatusCode::kUnavailable, "closed"));
    }
  }
}

TEST(PeerUser, OtherSocketsAreNotAsked) {
  int both[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, both), 0);
  const UniqueFd one(both[0]), other(both[1]);
  EXPECT_THAT(CheckPeerUser(one.get()), IsOk());
  EXPECT_THAT(CheckPeerUser(-1), IsOk());
}

TEST(PeerUser, AnotherOneMayNot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  for (const char* ip : {"127.0.0.1", "::1"}) {
    SCOPED_TRACE(ip);
    const absl::StatusOr<UniqueFd> listener = ListenOn(*ParseIp(ip, 0));
    if (!listener.ok()) continue;
    UniqueFd client;
    {
      const testing::AsNobody nobody;
      client = *BeginConnect(*LocalAddress(listener->get()));
    }
    const UniqueFd server = Pair::Accepted(*listener);
    const absl::Status user = CheckPeerUser(server.get());
    EXPECT_THAT(user,
                StatusIs(StatusCode::kUnauthenticated,
                         "user 65534 of this machine, this process of 0"));
    EXPECT_THAT(user, StatusIs(StatusCode::kUnauthenticated, "--secret-file"));
    EXPECT_EQ(ExitCodeOf(user), ExitCode::kAuthentication);
  }
}

}  // namespace
}  // namespace telegrad
