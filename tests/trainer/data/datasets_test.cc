#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/random.h"
#include "tests/testing/status_matchers.h"
#include "trainer/data/dataset.h"
#include "trainer/data/digits.h"
#include "trainer/data/text.h"

namespace telegrad {
namespace {

using absl::StatusCode;
using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;

class Files : public ::testing::Test {
 protected:
  Files() {
    std::filesystem::create_directories(folder_);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~Files() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const {
    return absl::StrCat(folder_, "/", name);
  }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }

  const std::string folder_ = absl::StrCat(
      ::testing::TempDir(), "/datasets_",
      ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

// Records whose pixels of channel c are all 10 * c + record.
std::string Records(size_t num_label_bytes, std::vector<int> labels) {
  std::string bytes;
  for (size_t i = 0; i < labels.size(); ++i) {
    bytes.append(num_label_bytes - 1, '\x07');
    bytes.push_back(static_cast<char>(labels[i]));
    for (size_t channel = 0; channel < 3; ++channel) {
      bytes.append(1024, static_cast<char>(10 * channel + i));
    }
  }
  return bytes;
}

class Cifar : public Files {
 protected:
  Cifar() {
    for (int i = 1; i <= 5; ++i) {
      Write(absl::StrCat("data_batch_", i, ".bin"), Records(1, {i, 9}));
    }
    Write("test_batch.bin", Records(1, {0}));
    Write("train.bin", Records(2, {99, 0, 5}));
    Write("test.bin", Records(2, {50}));
  }
};

TEST_F(Cifar, ReadsTheBinaryVersionsInOrder) {
  const auto ten = LoadDataset("cifar10:" + folder_);
  ASSERT_THAT(ten, IsOk());
  EXPECT_EQ(ten->train.labels,
            (std::vector<uint16_t>{1, 9, 2, 9, 3, 9, 4, 9, 5, 9}));
  EXPECT_EQ(ten->train.channels, 3);
  EXPECT_EQ(ten->train.pixels[3072 + 1024], 11);  // record 1, channel 1
  EXPECT_EQ(ten->test.size(), 1u);
  EXPECT_FLOAT_EQ(ten->train.mean.at(2), 20.5f / 255);
  const auto hundred = LoadDataset("cifar100:" + folder_);
  ASSERT_THAT(hundred, IsOk());
  EXPECT_EQ(hundred->train.labels, (std::vector<uint16_t>{99, 0, 5}));
  EXPECT_EQ(hundred->train.num_classes, 100);
}

TEST_F(Cifar, FaultsNameFileAndByte) {
  const auto refuses = [&](const std::string& file, const std::string& bytes,
                           const std::string& why) {
    std::ifstream in(Path(file), std::ios::binary);
    const std::string good{std::istreambuf_iterator<char>(in), {}};
    Write(file, bytes);
    const bool is_ten = file.ends_with("_batch.bin") || file[0] == 'd';
    EXPECT_THAT(LoadDataset((is_ten ? "cifar10:" : "cifar100:") + folder_),
                StatusIs(StatusCode::kDataLoss, file + ": byte " + why));
    Write(file, good);
  };
  const std::string record = Records(1, {1});
  refuses("data_batch_3.bin", record + "\x02xyz",
          "3077: the file ends inside record 1");
  refuses("data_batch_3.bin", "", "0: the file ends inside record 0");
  refuses("test_batch.bin", record + Records(1, {10}), "3073: label 10");
  refuses("train.bin", Records(2, {100}), "1: label 100, the largest is 99");
  std::filesystem::rename(Path("test.bin"), Path("test.bin.gz"));  // plain
  std::filesystem::create_directory(Path("test.bin"));
  EXPECT_THAT(LoadDataset("cifar100:" + folder_), IsOk());
  EXPECT_THAT(LoadDataset("text:" + folder_),
              StatusIs(StatusCode::kInvalidArgument, "is a folder"));
  std::filesystem::remove(Path("data_batch_5.bin"));
  EXPECT_THAT(LoadDataset("cifar10:" + folder_),
              StatusIs(StatusCode::kNotFound, "data_batch_5.bin"));
  EXPECT_THAT(LoadDataset("cifar10:"),
              StatusIs(StatusCode::kInvalidArgument, "cifar10:DIR"));
}

// The real files, unpacked from those of a folder that tests are told of.
TEST(RealCifar10, HasTheMeansThatEverybodyUses) {
  const char* named = std::getenv("TELEGRAD_DATA");
  const std::string folder =
      absl::StrCat(named != nullptr ? named : TELEGRAD_SHARED_DATA, "/cifar10");
  if (!std::filesystem::exists(folder + "/data_batch_1.bin")) {
    GTEST_SKIP() << "no data_batch_1.bin in " << folder;
  }
  const auto pair = LoadDataset("cifar10:" + folder);
  ASSERT_THAT(pair, IsOk());
  EXPECT_EQ(pair->train.size(), 50000u);
  EXPECT_EQ(pair->test.size(), 10000u);
  EXPECT_NEAR(pair->train.mean.at(0), 0.4914, 2e-3);
  EXPECT_NEAR(pair->train.mean.at(2), 0.4465, 2e-3);
}

TEST(ColourDigits, AreTheSameBitsOnEveryMachine) {
  const auto pair = LoadDataset("digits:rgb32");
  ASSERT_THAT(pair, IsOk());
  EXPECT_EQ(pair->train.values_per_sample(), 3072u);
  const auto crc = [](const std::vector<uint8_t>& bytes) {
    return Crc32c(bytes.data(), bytes.size());
  };
  EXPECT_EQ(crc(pair->train.pixels), 0x864d7680u);
  EXPECT_EQ(crc(pair->test.pixels), 0x2985bc24u);
  EXPECT_EQ(pair->train.labels, MakeDigits().train.labels);
}

// Counts what follows two symbols: the chances are those of the header, so the
// entropy is, too.
TEST(Language, HasTheEntropyThatItSays) {
  const std::vector<uint8_t> text = WriteLanguage(3, 400000);
  std::map<std::pair<int, int>, std::map<int, int>> counts;
  for (size_t i = 2; i < text.size(); ++i) {
    ++counts[{text[i - 2], text[i - 1]}][text[i]];
  }
  EXPECT_GT(counts.size(), 27u);  // one symbol before would not do
  double nats = 0;
  for (const auto& [before, next] : counts) {
    EXPECT_LE(next.size(), 4u);
    double total = 0;
    for (const auto& each : next) total += each.second;
    for (const auto& each : next) {
      nats -= each.second * std::log(each.second / total);
    }
  }
  // Contexts with at least 500 symbols each take some 3 / 2 / 500 nats off.
  EXPECT_NEAR(nats / 400000, kLanguageNats, 0.006);
  EXPECT_EQ(WriteLanguage(3, 100),
            std::vector<uint8_t>(text.begin(), text.begin() + 100));
  EXPECT_NE(WriteLanguage(4, 100), WriteLanguage(3, 100));
}

TEST_F(Files, TextIsCutIntoSamplesThatKnowWhatFollows) {
  std::string text;
  for (int i = 0; i < 250; ++i) text.push_back(static_cast<char>(i));
  Write("text.txt", text);
  const auto pair = LoadDataset("text:" + Path("text.txt"), {.context = 8});
  ASSERT_THAT(pair, IsOk());
  EXPECT_EQ(pair->train.size(), 28u);  // (225 - 1) / 8
  EXPECT_EQ(pair->test.size(), 3u);    // (25 - 1) / 8
  std::array<float, 16> values{};
  std::array<int64_t, 16> labels{};
  ASSERT_THAT(GatherBatch(pair->train, {}, std::vector<uint32_t>{27, 1},
                          values.data(), labels.data()),
              IsOk());
  EXPECT_EQ(values[0], 216.0f);
  EXPECT_EQ(labels[7], 224);
  EXPECT_EQ(values[8], 8.0f);
  EXPECT_EQ(labels[8], 9);
  EXPECT_EQ(pair->test.pixels.front(), 225);
}

TEST_F(Files, ATextThatIsTooShortOrNotThereIsRefused) {
  Write("short.txt", "only a few words");
  EXPECT_THAT(LoadDataset("text:" + Path("short.txt"), {.context = 8}),
              StatusIs(StatusCode::kInvalidArgument, "16 bytes are too few"));
  Write("empty.txt", "");
  EXPECT_THAT(LoadDataset("text:" + Path("empty.txt"), {.context = 8}),
              StatusIs(StatusCode::kInvalidArgument, "0 bytes are too few"));
  EXPECT_THAT(LoadDataset("text:" + Path("none.txt"), {.context = 8}),
              StatusIs(StatusCode::kNotFound, "none.txt"));
}

Dataset Numbered() {
  Dataset dataset;
  dataset.rows = 4;
  dataset.cols = 4;
  for (uint8_t i = 0; i < 32; ++i) dataset.pixels.push_back(i);
  dataset.labels = {0, 1};
  dataset.mean = {0};
  dataset.stddev = {1.0f / 255};
  return dataset;
}

std::vector<float> Drawn(const Augmentation& augmentation, uint32_t sample) {
  std::vector<float> values(16);
  int64_t label = 0;
  EXPECT_THAT(GatherBatch(Numbered(), augmentation,
                          std::vector<uint32_t>{sample}, values.data(), &label),
              IsOk());
  for (float& value : values) value = std::round(value);
  return values;
}

TEST(Augmentation, MirrorsAndCropsByTheDrawAlone) {
  const std::vector<float> plain = Drawn({}, 0);
  EXPECT_EQ(plain[5], 5.0f);
  std::set<std::vector<float>> mirrored;
  std::set<std::vector<float>> cropped;
  for (int epoch = 0; epoch < 64; ++epoch) {
    const Augmentation flip = {.has_mirror = true, .seed = 1, .epoch = epoch};
    EXPECT_EQ(Drawn(flip, 0), Drawn(flip, 0));
    mirrored.insert(Drawn(flip, 0));
    cropped.insert(Drawn({.pad = 1, .seed = 1, .epoch = epoch}, 0));
  }
  ASSERT_EQ(mirrored.size(), 2u);
  EXPECT_EQ(mirrored.count(plain), 1u);
  EXPECT_EQ(
      mirrored.count({3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12}),
      1u);
  // Nine places; what lies beyond the edge is 0.
  EXPECT_EQ(cropped.size(), 9u);
  EXPECT_EQ(cropped.count(plain), 1u);
  EXPECT_EQ(cropped.count({0, 0, 0, 0, 0, 0, 1, 2, 0, 4, 5, 6, 0, 8, 9, 10}),
            1u);
  // Samples draw for themselves.
  bool differs = false;
  for (int epoch = 0; epoch < 16; ++epoch) {
    const Augmentation flip = {.has_mirror = true, .seed = 1, .epoch = epoch};
    differs |= (Drawn(flip, 0) == plain) != (Drawn(flip, 1)[5] == 21.0f);
  }
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace telegrad
