#include "base/resource_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/exit_code.h"
#include "base/poller.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using ::telegrad::testing::StatusIs;

TEST(ResourceLimit, IsToldWithItsNameAndCode) {
  const absl::Status files = SystemError("pipe", EMFILE);
  EXPECT_THAT(files,
              StatusIs(absl::StatusCode::kResourceExhausted, "open files is"));
  EXPECT_THAT(files,
              StatusIs(absl::StatusCode::kResourceExhausted, "ulimit -n"));
  EXPECT_EQ(ExitCodeOf(files), ExitCode::kResourceLimit);
  EXPECT_THAT(SystemError("accept", ENFILE),
              StatusIs(absl::StatusCode::kResourceExhausted, "fs.file-max"));
  EXPECT_THAT(TooManyTasks("fork", EAGAIN),
              StatusIs(absl::StatusCode::kResourceExhausted, "ulimit -u"));
  EXPECT_THAT(SystemError("connect", ECONNREFUSED),
              StatusIs(absl::StatusCode::kUnavailable, "connect: "));
}

// In a process of its own, whose limit goes with it.
TEST(ResourceLimit, FilesAreCountedAgainstTheLimitThatIsRaised) {
  const auto child = [] {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) std::_Exit(1);
    limit.rlim_max = 50;
    limit.rlim_cur = 3;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) std::_Exit(2);
    Poller poller;
    if (!absl::IsResourceExhausted(poller.Open())) std::_Exit(3);
    RaiseOpenFileLimit();
    if (!CheckOpenFiles(50, "ten members").ok()) std::_Exit(4);
    if (!CheckFreeFiles(30, "a few").ok()) std::_Exit(5);
    if (!absl::IsResourceExhausted(CheckFreeFiles(50, "more"))) std::_Exit(6);
    const absl::Status refused = CheckOpenFiles(51, "ten members");
    std::fprintf(stderr, "%s\n", refused.ToString().c_str());
    std::_Exit(0);
  };
  EXPECT_EXIT(child(), ::testing::ExitedWithCode(0),
              "ten members needs about 51 open files: the limit of open files "
              "is 50");
}

}  // namespace
}  // namespace telegrad
