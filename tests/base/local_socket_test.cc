#include "base/local_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using absl::StatusCode;
using testing::IsOk;
using testing::StatusIs;

std::string Name() { return absl::StrCat("telegrad test ", getpid()); }

TEST(LocalSocket, ConnectsToWhoListensThere) {
  EXPECT_THAT(ConnectLocal(Name()).status(),
              StatusIs(StatusCode::kNotFound, Name()));
  const auto listener = ListenLocal(Name());
  ASSERT_THAT(listener, IsOk());
  EXPECT_THAT(ListenLocal(Name()).status(),
              StatusIs(StatusCode::kAlreadyExists, Name()));
  const auto ours = ConnectLocal(Name());
  ASSERT_THAT(ours, IsOk());
  const auto peer = PeerOf(ours->get());
  ASSERT_THAT(peer, IsOk());
  EXPECT_EQ(peer->process, getpid());
  EXPECT_TRUE(peer->is_same_user);
}

TEST(LocalSocket, UnusableNamesAreErrors) {
  EXPECT_THAT(ListenLocal("").status(),
              StatusIs(StatusCode::kInvalidArgument, ""));
  EXPECT_THAT(ConnectLocal(std::string(101, 'n')).status(),
              StatusIs(StatusCode::kInvalidArgument, "nnn"));
}

// Also before what it has sent is read, but not when it only says no more.
TEST(LocalSocket, HangUpIsSeenAtOnce) {
  const auto listener = ListenLocal(Name());
  ASSERT_THAT(listener, IsOk());
  auto ours = ConnectLocal(Name());
  ASSERT_THAT(ours, IsOk());
  const UniqueFd theirs(accept(listener->get(), nullptr, nullptr));
  ASSERT_EQ(send(ours->get(), "abc", 3, 0), 3);
  EXPECT_FALSE(HasHungUp(theirs.get()));
  ASSERT_EQ(shutdown(ours->get(), SHUT_WR), 0);
  EXPECT_FALSE(HasHungUp(theirs.get()));
  ours->Close();
  EXPECT_TRUE(HasHungUp(theirs.get()));
}

}  // namespace
}  // namespace telegrad
