#include "trainer/report/tensorboard.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/escaping.h"
#include "trainer/report/results.h"

namespace telegrad {
namespace {

// By tensorboard 2.21's protocol buffers and RecordWriter.
TEST(EventFile, HasTensorBoardsBytes) {
  const std::string first = event_file::FirstRecord(1.5);
  EXPECT_EQ(absl::BytesToHexString(first.substr(0, 8)), "1800000000000000");
  EXPECT_EQ(absl::BytesToHexString(first.substr(8, 4)), "a37f4b22");
  EXPECT_EQ(absl::BytesToHexString(first.substr(12, 24)),
            "09000000000000f83f1a0d627261696e2e4576656e743a32");
  const std::string record = event_file::Record(1.5, 300, {{"a", 0.5}});
  EXPECT_EQ(absl::BytesToHexString(record.substr(12, record.size() - 16)),
            "09000000000000f83f10ac022a0a0a080a0161150000003f");
}

TEST(TensorBoard, WritesEachPointAtOnce) {
  const std::string folder = ::testing::TempDir() + "/telegrad-events";
  std::filesystem::remove_all(folder);
  const auto board = TensorBoard::Open(folder + "/2bit-seed0");
  ASSERT_TRUE(board.ok()) << board.status();
  (*board)->Add({.step = 50, .train_loss = 2}, 100);
  (*board)->AddTest(50, 0.5, 1);
  size_t num_files = 0;
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(folder)) {
    if (!file.is_regular_file()) continue;
    ++num_files;
    std::ostringstream text;
    text << std::ifstream(file.path()).rdbuf();
    for (const char* tag : {"brain.Event:2", "train/loss", "test/accuracy",
                            "telegrad/wire_bytes"}) {
      EXPECT_NE(text.str().find(tag), std::string::npos) << tag;
    }
  }
  EXPECT_EQ(num_files, 1U);
  std::filesystem::remove_all(folder);
  EXPECT_FALSE(TensorBoard::Open("/proc/none").ok());
}

}  // namespace
}  // namespace telegrad
