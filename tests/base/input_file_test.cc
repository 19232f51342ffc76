#include "base/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;

class InputFile : public ::testing::Test {
 protected:
  InputFile() { std::ofstream(path_) << "0123456789"; }
  ~InputFile() override { std::filesystem::remove(path_); }
  static auto Refused(const char* why) {
    return StatusIs(absl::StatusCode::kInvalidArgument, why);
  }

  const std::string path_ =
      absl::StrCat(::testing::TempDir(), "input-", getpid());
};

TEST_F(InputFile, IsReadUpToItsBound) {
  EXPECT_EQ(*ReadFile(path_, 10), "0123456789");
  EXPECT_THAT(ReadFile(path_, 9), Refused("more than 9 bytes"));
  const auto file = OpenFile(path_);
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ(*ReadUpTo(*file, 4), "0123");
  EXPECT_EQ(*ReadUpTo(*file, 0), "");
  EXPECT_EQ(*ReadUpTo(*file, 99), "456789");
  EXPECT_EQ(*ReadUpTo(*file, 99), "");
  const std::string large(1'000'003, 'x');
  std::ofstream(path_) << large;
  EXPECT_EQ(*ReadFile(path_, large.size()), large);
  const auto stream = OpenStream(path_);
  ASSERT_THAT(stream, IsOk());
  EXPECT_EQ(std::fgetc(stream->get()), 'x');
}

TEST_F(InputFile, IsNeitherPipeNorDeviceNorFolder) {
  std::filesystem::remove(path_);
  EXPECT_THAT(ReadFile(path_, 10),
              StatusIs(absl::StatusCode::kNotFound, "No such file"));
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(ReadFile(path_, 10), Refused("no regular file"));
  EXPECT_THAT(OpenStream(path_), Refused("no regular file"));
  EXPECT_THAT(ReadFile("/dev/zero", 10), Refused("no regular file"));
  EXPECT_THAT(ReadFile("/", 10), Refused("is a folder"));
}

TEST_F(InputFile, IsNoLinkWhereThatIsRefused) {
  const std::string link = path_ + ".link";
  std::filesystem::create_symlink(path_, link);
  EXPECT_EQ(*ReadFile(link, 10), "0123456789");
  EXPECT_THAT(ReadFile(link, 10, Links::kRefuse), Refused("symbolic link"));
  std::filesystem::remove(link);
}

}  // namespace
}  // namespace telegrad
