#include "kvstore/job/launch/child_processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include "base/exit_code.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

// What the processes that the tests start run: this program's own.
TEST(ChildProgram, DISABLED_EndsWith31) { _exit(31); }
TEST(ChildProgram, DISABLED_EndsWith0) { _exit(0); }
TEST(ChildProgram, DISABLED_Waits) { pause(); }

TimePoint Soon() { return Clock::now() + std::chrono::seconds(30); }

absl::Status StartChild(ChildProcesses& children, NodeId id, const char* test) {
  return children.Start(id, [test](int) -> std::vector<std::string> {
    return {"child",
            std::string("--gtest_filter=ChildProgram.DISABLED_") + test,
            "--gtest_also_run_disabled_tests"};
  });
}

TEST(ChildProcesses, SayHowTheyEnded) {
  ChildProcesses children;
  ASSERT_THAT(StartChild(children, {Role::kServer, 0}, "EndsWith0"),
              testing::IsOk());
  ASSERT_THAT(StartChild(children, {Role::kWorker, 1}, "EndsWith31"),
              testing::IsOk());
  const absl::Status worst = children.AwaitAll(Soon());
  EXPECT_EQ(ExitCodeOf(worst), ExitCode::kMismatch) << worst;
  EXPECT_THAT(children.all()[0].Result(), testing::IsOk());
  EXPECT_NE(worst.message().find("worker/1"), absl::string_view::npos) << worst;
}

TEST(ChildProcesses, AKilledOneCountsByItsRole) {
  const struct {
    Role role;
    ExitCode code;
  } cases[] = {{Role::kWorker, ExitCode::kPeerDied},
               {Role::kServer, ExitCode::kServerLost},
               {Role::kScheduler, ExitCode::kSchedulerLost}};
  for (const auto& one : cases) {
    ChildProcesses children;
    ASSERT_THAT(StartChild(children, {one.role, 0}, "Waits"), testing::IsOk());
    kill(children.all()[0].pid, SIGKILL);
    EXPECT_EQ(ExitCodeOf(children.AwaitAll(Soon())), one.code);
    EXPECT_TRUE(children.all()[0].was_killed());
  }
}

int remembered = 0;

// Whether the descriptor that it is told of is open, and what a fork knows.
int ForkedMain(int argc, char** argv) {
  if (argc != 2 || fcntl(std::atoi(argv[1]), F_GETFD) >= 0) return 1;
  return remembered;
}

TEST(ChildProcesses, AreForksWhereNothingIsLost) {
  AllowForks(&ForkedMain);
  remembered = 31;
  const UniqueFd file(open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
  ChildProcesses forked;
  const std::string fd = std::to_string(file.get());
  ASSERT_THAT(forked.Start({Role::kWorker, 0},
                           [&](int) {
                             return std::vector<std::string>{"child", fd};
                           }),
              testing::IsOk());
  EXPECT_EQ(ExitCodeOf(forked.AwaitAll(Soon())), ExitCode::kMismatch);

  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::thread other(
      [&mutex] { const std::lock_guard<std::mutex> held(mutex); });
  ChildProcesses executed;
  EXPECT_THAT(StartChild(executed, {Role::kWorker, 0}, "EndsWith0"),
              testing::IsOk());
  EXPECT_THAT(executed.AwaitAll(Soon()), testing::IsOk());
  lock.unlock();
  other.join();
  AllowForks(nullptr);
}

TEST(ChildProcesses, NoneIsLeft) {
  pid_t pid = -1;
  {
    ChildProcesses children;
    ASSERT_THAT(StartChild(children, {Role::kWorker, 0}, "Waits"),
                testing::IsOk());
    pid = children.all()[0].pid;
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST(ChildProcesses, ALossSaysLessThanAnyOtherError) {
  const absl::Status lost =
      WithExitCode(ExitCode::kPeerDied, absl::AbortedError("lost"));
  const absl::Status differs =
      WithExitCode(ExitCode::kMismatch, absl::AbortedError("differs"));
  EXPECT_EQ(MoreTelling(lost, differs), differs);
  EXPECT_EQ(MoreTelling(differs, lost), differs);
  EXPECT_EQ(MoreTelling(absl::OkStatus(), lost), lost);
  EXPECT_EQ(MoreTelling(lost, absl::OkStatus()), lost);
}

}  // namespace
}  // namespace telegrad
