#include "base/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;
using testing::StatusIs;

TEST(HostPort, IsParsedWhateverTheHostsLength) {
  const struct {
    const char* text;
    const char* host;
    int port;
  } cases[] = {
      {"n1:29500", "n1", 29500},
      {"a:1", "a", 1},
      {"gpu1:29500", "gpu1", 29500},
      {"worker-0.cluster.local:65535", "worker-0.cluster.local", 65535},
      {"127.0.0.1:40123", "127.0.0.1", 40123},
      {"[::1]:40123", "::1", 40123},
      {"[fd00::17]:29500", "fd00::17", 29500}};
  for (const auto& one : cases) {
    const auto parsed = ParseHostPort(one.text);
    ASSERT_THAT(parsed, IsOk()) << one.text;
    EXPECT_EQ(parsed->host, one.host);
    EXPECT_EQ(parsed->port, one.port);
    EXPECT_EQ(FormatHostPort(one.host, one.port), one.text);
  }
}

TEST(HostPort, RefusesWhatCouldBeReadInTwoWays) {
  for (const char* text : {"",
                           ":",
                           "n1",
                           "n1:",
                           ":29500",
                           "n1:0",
                           "n1:65536",
                           "n1: 29500",
                           "n1:+5",
                           "n1:-5",
                           "n1:29500x",
                           "::1:29500",
                           "fd00::17:29500",
                           "[::1]",
                           "[::1]29500",
                           "[n1]:29500",
                           "[]:29500",
                           "[::1:29500",
                           "::1]:29500",
                           "n1:99999999999"}) {
    EXPECT_THAT(ParseHostPort(text),
                StatusIs(absl::StatusCode::kInvalidArgument, "host:port"))
        << text;
  }
}

TEST(HostPort, PortZeroIsForThoseWhoListen) {
  EXPECT_EQ(ParseHostPort("n1:0", 0)->port, 0);
  EXPECT_THAT(ParseHostPort("n1:-1", 0),
              StatusIs(absl::StatusCode::kInvalidArgument, ""));
}

}  // namespace
}  // namespace telegrad
