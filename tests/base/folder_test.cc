#include "base/folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class HeldFolders : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static absl::StatusOr<std::unique_ptr<HeldFolder>> Take(
      const std::string& folder) {
    return HeldFolder::Take("--out", folder);
  }

  const std::string folder_ =
      absl::StrCat(::testing::TempDir(), "held-", getpid());
  const std::string file_ = folder_ + "/.out.lock";
};

TEST_F(HeldFolders, HaveOneHolderWhoIsNamed) {
  {
    const auto held = Take(folder_);
    ASSERT_THAT(held.status(), IsOk());
    const absl::Status second = Take(folder_).status();
    EXPECT_THAT(second, StatusIs(kInvalid, "--out " + folder_));
    EXPECT_THAT(second,
                StatusIs(kInvalid, absl::StrCat("process ", getpid(), " on ",
                                                OwnHostName())));
    // One folder may be for both.
    EXPECT_THAT(HeldFolder::Take("--checkpoint", folder_).status(), IsOk());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_THAT(Take(folder_).status(), IsOk());
}

// As telegrad-train's processes are: those that it started keep the folder
// while they live, also when it is gone.
TEST_F(HeldFolders, AreKeptByWhatTheHolderHasStarted) {
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  const pid_t holder = fork();
  if (holder == 0) {
    const auto held = Take(folder_);
    const pid_t started = fork();
    if (started == 0) {
      for (;;) pause();
    }
    if (write(fds[1], &started, sizeof(started)) < 0) _exit(1);
    for (;;) pause();
  }
  pid_t started = 0;
  ASSERT_EQ(read(fds[0], &started, sizeof(started)),
            static_cast<ssize_t>(sizeof(started)));
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  EXPECT_THAT(Take(folder_).status(),
              StatusIs(kInvalid, absl::StrCat("process ", holder, " on ")));
  kill(started, SIGKILL);
  const auto held = Take(folder_);
  EXPECT_THAT(held.status(), IsOk());
  close(fds[0]);
  close(fds[1]);
}

TEST_F(HeldFolders, LockNothingButAFileOfTheFolder) {
  const std::string other = folder_ + "/other";
  std::ofstream(other) << "mine";
  std::filesystem::create_symlink("other", file_);
  EXPECT_THAT(Take(folder_).status(), StatusIs(kInvalid, file_));
  std::filesystem::remove(file_);
  ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
  EXPECT_THAT(Take(folder_).status(), StatusIs(kInvalid, "--out"));
  std::filesystem::remove(file_);
  // What a holder wrote is shown as it is harmless.
  std::ofstream(file_) << "\x1b[31m" << std::string(4096, 'x');
  const UniqueFd locked(open(file_.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_THAT(Take(folder_).status(), IsOk());
  std::string text;
  EXPECT_TRUE(std::getline(std::ifstream(other), text));
  EXPECT_EQ(text, "mine");
}

}  // namespace
}  // namespace telegrad
