#include "kvstore/job/control/secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/exit_code.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

class SecretFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "telegrad-secret-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/secret";
  }
  void TearDown() override {
    unlink(path_.c_str());
    unlink((folder_ + "/link").c_str());
    rmdir(folder_.c_str());
  }
  void Write(size_t bytes, mode_t mode = 0600) {
    std::ofstream(path_) << std::string(bytes, 's');
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }
  void ExpectRefused(const std::string& path, const std::string& text,
                     ExitCode code = ExitCode::kAuthentication) {
    const auto secret = Secret::FromFile(path, "job");
    ASSERT_FALSE(secret.ok());
    EXPECT_EQ(ExitCodeOf(secret.status()), code);
    const std::string message(secret.status().message());
    EXPECT_NE(message.find(path), std::string::npos) << message;
    EXPECT_NE(message.find(text), std::string::npos) << message;
  }
  std::string folder_, path_;
};

TEST_F(SecretFile, OfItsOwnerAloneGivesAKey) {
  Write(32);
  const auto secret = Secret::FromFile(path_, "job");
  ASSERT_THAT(secret, testing::IsOk());
  EXPECT_TRUE(secret->has_key());
  EXPECT_EQ(secret->key(), Secret::Derive(std::string(32, 's'), "job")->key());
}

TEST_F(SecretFile, OpenToOthersIsRefusedWithTheRemedy) {
  Write(32, 0640);
  ExpectRefused(path_, "chmod 600");
  ASSERT_EQ(chmod(path_.c_str(), 0604), 0);
  ExpectRefused(path_, "chmod 600");
}

TEST_F(SecretFile, TooShortOrTooLongIsRefused) {
  Write(31);
  ExpectRefused(path_, "31 bytes");
  Write(4097);
  ExpectRefused(path_, "4097 bytes");
  Write(4096);
  EXPECT_THAT(Secret::FromFile(path_, "job"), testing::IsOk());
}

TEST_F(SecretFile, LinkFolderFifoAndNothingAreRefused) {
  ExpectRefused(path_, "No such file", ExitCode::kUsage);
  Write(32);
  ASSERT_EQ(symlink(path_.c_str(), (folder_ + "/link").c_str()), 0);
  ExpectRefused(folder_ + "/link", "symbolic link");
  ExpectRefused(folder_, "not a regular file");
  unlink(path_.c_str());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  ExpectRefused(path_, "not a regular file");
}

// RFC 5869's scheme computed with Python's hmac and hashlib: salt
// "telegrad job key v1", info "job", 32 times "s".
TEST(SecretKey, IsHkdfSha256OfMaterialAndJob) {
  const auto secret = Secret::Derive(std::string(32, 's'), "job");
  ASSERT_THAT(secret, testing::IsOk());
  const unsigned char expected[32] = {
      0x75, 0xff, 0xef, 0x05, 0xcb, 0x84, 0xb4, 0x18, 0xde, 0x2d, 0xec,
      0x83, 0x78, 0xaf, 0x9a, 0x3c, 0x88, 0xce, 0xb2, 0x60, 0x8b, 0xd1,
      0x66, 0xd0, 0x99, 0x8e, 0x31, 0x0c, 0xbe, 0x0e, 0x9a, 0x1e};
  EXPECT_EQ(memcmp(secret->key().data(), expected, 32), 0);
  EXPECT_NE(secret->key(), Secret::Derive(std::string(32, 's'), "jo")->key());
}

}  // namespace
}  // namespace telegrad
