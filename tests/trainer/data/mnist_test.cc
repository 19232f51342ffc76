#include "trainer/data/mnist.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using absl::StatusCode;
using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;

std::string Header(uint32_t magic, std::vector<uint32_t> extents) {
  extents.insert(extents.begin(), magic);
  std::string bytes;
  for (uint32_t word : extents) {
    for (int shift : {24, 16, 8, 0}) {
      bytes += static_cast<char>(word >> shift & 255);
    }
  }
  return bytes;
}
std::string Images(uint32_t count) {
  return Header(0x803, {count, 2, 3}) + std::string(count * 6, '\x40');
}
std::string Labels(uint32_t count, char label = 4) {
  return Header(0x801, {count}) + std::string(count, label);
}

class Mnist : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "mnist_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    Write("train-images-idx3-ubyte", Images(5));
    Write("train-labels-idx1-ubyte", Labels(5));
    Write("t10k-images-idx3-ubyte", Images(2));
    Write("t10k-labels-idx1-ubyte", Labels(2));
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(directory_ / name, std::ios::binary) << bytes;
  }
  absl::StatusOr<DatasetPair> Read() { return ReadMnist(directory_.string()); }
  std::filesystem::path directory_;
};

TEST_F(Mnist, ReadsPlainFiles) {
  const auto pair = Read();
  ASSERT_THAT(pair, IsOk());
  EXPECT_EQ(pair->train.size(), 5u);
  EXPECT_EQ(pair->test.size(), 2u);
  EXPECT_EQ(pair->train.rows, 2);
  EXPECT_EQ(pair->train.cols, 3);
  EXPECT_EQ(pair->train.labels[4], 4);
  EXPECT_FLOAT_EQ(pair->train.mean.at(0), 64.0f / 255);
}

TEST_F(Mnist, ReadsGzipUnderTheNameWithADot) {
  std::filesystem::remove(directory_ / "train-images-idx3-ubyte");
  const std::string path = directory_ / "train-images.idx3-ubyte.gz";
  gzFile file = gzopen(path.c_str(), "wb");
  const std::string bytes = Images(5);
  ASSERT_EQ(gzwrite(file, bytes.data(), unsigned(bytes.size())),
            int(bytes.size()));
  gzclose(file);
  EXPECT_THAT(Read(), IsOk());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 9);
  EXPECT_THAT(Read(), StatusIs(StatusCode::kDataLoss, "cut off"));
}

TEST_F(Mnist, SurplusAfterTheGzipDataIsAnError) {
  std::filesystem::remove(directory_ / "t10k-labels-idx1-ubyte");
  const std::string path = directory_ / "t10k-labels-idx1-ubyte.gz";
  gzFile file = gzopen(path.c_str(), "wb");
  const std::string bytes = Labels(2);
  gzwrite(file, bytes.data(), unsigned(bytes.size()));
  gzclose(file);
  std::ofstream(path, std::ios::app | std::ios::binary) << "junk";
  EXPECT_THAT(Read(), StatusIs(StatusCode::kDataLoss, "surplus bytes"));
}

// As `cat a.gz b.gz`, pigz and bgzip (whose last member is empty) write it.
TEST_F(Mnist, GzipOfSeveralMembersIsReadAsOne) {
  std::filesystem::remove(directory_ / "t10k-labels-idx1-ubyte");
  const std::string name = "t10k-labels-idx1-ubyte.gz";
  const std::string bytes = Labels(2);
  for (const std::string& part : {bytes.substr(0, 3), bytes.substr(3), {}}) {
    gzFile file = gzopen((directory_ / name).c_str(), "ab");
    gzwrite(file, part.data(), unsigned(part.size()));
    gzclose(file);
  }
  ASSERT_THAT(Read(), IsOk());
  EXPECT_EQ(Read()->test.labels[1], 4);
  const auto append = [&](const std::string& more) {
    std::ofstream(directory_ / name, std::ios::app | std::ios::binary) << more;
  };
  append(std::string(70000, '\0'));
  EXPECT_THAT(Read(), IsOk());
  append("\x1f");
  EXPECT_THAT(Read(), StatusIs(StatusCode::kDataLoss, "surplus bytes"));
  std::filesystem::resize_file(
      directory_ / name, std::filesystem::file_size(directory_ / name) - 70001);
  append("\x1f\x8b\x08");
  EXPECT_THAT(Read(), StatusIs(StatusCode::kDataLoss, "cut off"));
}

TEST_F(Mnist, WhatIsPackedInAnotherWayIsRefused) {
  Write("t10k-labels-idx1-ubyte", std::string("\xfd"
                                              "7zXZ\0\0\4",
                                              8));
  EXPECT_THAT(Read(), StatusIs(StatusCode::kInvalidArgument, "packed by xz"));
}

// As Kaggle's archive has them.
TEST_F(Mnist, AFolderOfTheFilesNameIsPassedOver) {
  for (const char* part : {"train-images", "t10k-labels"}) {
    const std::string suffix =
        part[0] == 't' && part[1] == 'r' ? "idx3-ubyte" : "idx1-ubyte";
    const std::string name = absl::StrCat(part, "-", suffix);
    std::filesystem::rename(directory_ / name,
                            directory_ / absl::StrCat(part, ".", suffix));
    std::filesystem::create_directory(directory_ / name);
    std::filesystem::create_directory(directory_ / (name + ".gz"));
  }
  EXPECT_THAT(Read(), IsOk());
}

TEST_F(Mnist, WrongMagicNamesFileAndOffset) {
  Write("train-images-idx3-ubyte", Labels(5));
  EXPECT_THAT(Read(), StatusIs(StatusCode::kDataLoss,
                               "train-images-idx3-ubyte: byte 0: magic"));
}

TEST_F(Mnist, EveryShortFileIsAnErrorAtItsEnd) {
  const std::string whole = Images(5);
  for (size_t size = 0; size < whole.size(); ++size) {
    Write("train-images-idx3-ubyte", whole.substr(0, size));
    EXPECT_THAT(Read(), StatusIs(StatusCode::kDataLoss,
                                 "byte " + std::to_string(size) + ":"))
        << size;
  }
}

TEST_F(Mnist, SurplusBytesAreAnError) {
  Write("t10k-images-idx3-ubyte", Images(2) + "x");
  EXPECT_THAT(Read(), StatusIs(StatusCode::kDataLoss, "byte 28: surplus"));
}

TEST_F(Mnist, CountsMustMatch) {
  Write("t10k-labels-idx1-ubyte", Labels(3));
  EXPECT_THAT(Read(), StatusIs(StatusCode::kDataLoss, "byte 4: 2 images, but"));
}

TEST_F(Mnist, HugeClaimsAllocateNothing) {
  Write("train-images-idx3-ubyte",
        Header(0x803, {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}));
  EXPECT_THAT(Read(), StatusIs(StatusCode::kDataLoss, "byte 8: extent"));
}

TEST_F(Mnist, LabelsAboveNineAreAnError) {
  Write("train-labels-idx1-ubyte", Labels(5, 10));
  EXPECT_THAT(Read(), StatusIs(StatusCode::kDataLoss, "byte 8: label 10"));
}

TEST_F(Mnist, MissingFilesAndDirectoriesAreNamed) {
  std::filesystem::remove(directory_ / "t10k-labels-idx1-ubyte");
  EXPECT_THAT(Read(), StatusIs(StatusCode::kNotFound, "t10k-labels"));
  std::filesystem::create_directory(directory_ / "t10k-labels-idx1-ubyte");
  EXPECT_THAT(Read(), StatusIs(StatusCode::kInvalidArgument,
                               "t10k-labels-idx1-ubyte: is a folder"));
}

TEST(MnistData, RealFilesAreRead) {
  const char* given = std::getenv("TELEGRAD_DATA");
  const std::string root = given != nullptr ? given : TELEGRAD_SHARED_DATA;
  if (!std::filesystem::exists(root + "/mnist")) {
    GTEST_SKIP() << "no MNIST in " << root;
  }
  const auto pair = ReadMnist(root + "/mnist");
  ASSERT_THAT(pair, IsOk());
  EXPECT_EQ(pair->train.size(), 60000u);
  EXPECT_EQ(pair->test.size(), 10000u);
  EXPECT_EQ(pair->train.labels[0], 5);
  EXPECT_NEAR(pair->train.mean.at(0), 0.1307,
              1e-4);  // as everybody normalises it
  EXPECT_NEAR(pair->train.stddev.at(0), 0.3081, 1e-4);
}

}  // namespace
}  // namespace telegrad
