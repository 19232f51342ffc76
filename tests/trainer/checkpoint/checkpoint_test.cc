#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "tests/testing/status_matchers.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_part.h"
#include "trainer/checkpoint/digest.h"

namespace telegrad {
namespace {

using absl::StatusCode;
using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;

class Checkpoints : public ::testing::Test {
 protected:
  Checkpoints() { std::filesystem::remove_all(path_); }
  ~Checkpoints() override { std::filesystem::remove_all(path_); }

  std::string Write(
      const std::string& file,
      const std::vector<std::pair<std::string, std::string>>& fields) const {
    auto writer = PartWriter::Create(file);
    EXPECT_THAT(writer, IsOk());
    for (const auto& [name, bytes] : fields) {
      EXPECT_THAT((*writer)->Add(name, bytes), IsOk());
    }
    auto hash = (*writer)->Finish();
    EXPECT_THAT(hash, IsOk());
    return hash.ok() ? *hash : "";
  }
  // A checkpoint of one worker, whose field "x" has `bytes`.
  void Save(int64_t step, const std::string& bytes, int keep = 2) const {
    const CheckpointFolder folder(path_);
    const auto begun = folder.Begin(step);
    ASSERT_THAT(begun, IsOk());
    Manifest manifest{.step = step, .facts = {{"network", "lenet"}}};
    manifest.parts.push_back(
        {"worker-0.part",
         Write(CheckpointFolder::PartPath(*begun, 0), {{"x", bytes}})});
    ASSERT_THAT(folder.Commit(*begun, manifest, keep), IsOk());
  }
  static std::string Slurp(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void Spill(const std::string& file, const std::string& bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
  }

  const std::string path_ = absl::StrCat(
      ::testing::TempDir(), "/checkpoints_",
      ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

// docs/checkpoints.md, byte by byte.
TEST_F(Checkpoints, APartHasTheBytesOfItsFormat) {
  std::filesystem::create_directories(path_);
  Write(path_ + "/part", {{"ab", "xyz"}});
  std::string content = "TGCKPART";
  content += std::string("\2\0\0\0", 4);                  // version
  content += std::string("\2\0\0\0", 4) + "ab";           // name
  content += std::string("\3\0\0\0\0\0\0\0", 8) + "xyz";  // size and bytes
  content += std::string("\0\0\0\0", 4);                  // no further name
  const std::string bytes = Slurp(path_ + "/part");
  ASSERT_EQ(bytes.size(), 8 + content.size());
  EXPECT_EQ(bytes.substr(0, 4), std::string("\x21\0\0\0", 4));  // 33
  EXPECT_EQ(bytes.substr(8), content);
}

TEST_F(Checkpoints, FieldsComeBackAcrossBlocks) {
  std::filesystem::create_directories(path_);
  std::string large;
  Random random(1);
  for (size_t i = 0; i < kPartBlockBytes * 5 / 2; ++i) {
    large.push_back(static_cast<char>(random.NextU32()));
  }
  const std::string hash =
      Write(path_ + "/part", {{"large", large}, {"none", ""}, {"s", "1"}});
  EXPECT_EQ(hash, Sha256OfBytes(Slurp(path_ + "/part")));
  const auto reader = PartReader::Open(path_ + "/part");
  ASSERT_THAT(reader, IsOk());
  ASSERT_THAT((*reader)->Expect("large", large.size()), IsOk());
  std::string back(large.size(), '\0');
  ASSERT_THAT((*reader)->Read(back.data(), back.size()), IsOk());
  EXPECT_EQ(back, large);
  ASSERT_THAT((*reader)->Expect("none", 0), IsOk());
  EXPECT_THAT((*reader)->Expect("s", 2),
              StatusIs(StatusCode::kDataLoss, "field 's' of 1 bytes"));
  EXPECT_FALSE(PartWriter::Create(path_ + "/part").ok());  // it is there
}

// Whatever lies in a file, reading it ends, without more memory than a block.
TEST_F(Checkpoints, DamagedPartsEndInAnError) {
  std::filesystem::create_directories(path_);
  const std::string file = path_ + "/part";
  Write(file, {{"weight", std::string(300, 'w')}, {"end", "e"}});
  const std::string good = Slurp(file);
  const auto read_all = [&] {
    const auto reader = PartReader::Open(file);
    if (!reader.ok()) return reader.status();
    for (int i = 0; i < 100; ++i) {
      const auto field = (*reader)->Next();
      if (!field.ok()) return field.status();
      if (field->name.empty()) return absl::OkStatus();
      if (const auto s = (*reader)->Skip(field->size); !s.ok()) return s;
    }
    return absl::OkStatus();
  };
  ASSERT_THAT(read_all(), IsOk());
  for (size_t size = 0; size < good.size(); ++size) {
    Spill(file, good.substr(0, size));
    EXPECT_FALSE(read_all().ok()) << size;
  }
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x40);
    Spill(file, bad);
    EXPECT_FALSE(read_all().ok()) << at;
  }
  // With sums that fit: bytes that somebody has made.
  Random random(2);
  for (int i = 0; i < 200; ++i) {
    std::string bytes;
    for (uint64_t n = random.NextBelow(64); n > 0; --n) {
      bytes.push_back(static_cast<char>('a' + random.NextBelow(4)));
    }
    std::filesystem::remove(file);
    Write(file, {{"a", bytes}});
    std::string forged = Slurp(file);
    std::filesystem::remove(file);
    Write(file, {{bytes.empty() ? "b" : bytes, forged}});
    EXPECT_THAT(read_all(), IsOk());
  }
}

TEST_F(Checkpoints, TheNewestStayAndCanBeRead) {
  Save(10, "ten");
  Save(20, "twenty");
  Save(30, "thirty");
  const CheckpointFolder folder(path_);
  EXPECT_EQ(folder.Steps(), (std::vector<int64_t>{30, 20}));
  const auto manifest = folder.ReadManifest(30);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ(manifest->facts[0].second, "lenet");
  EXPECT_THAT(folder.CheckPart(30, manifest->parts[0]), IsOk());
  const auto text = DescribeCheckpoints(path_);
  ASSERT_THAT(text, IsOk());
  EXPECT_NE(text->find("step 30: whole"), std::string::npos) << *text;
  EXPECT_NE(text->find("6 bytes  x"), std::string::npos) << *text;
}

// A process may be killed between any two of these states.
TEST_F(Checkpoints, OneThatIsNotWholeIsNone) {
  Save(10, "ten");
  const CheckpointFolder folder(path_);
  const auto begun = folder.Begin(20);
  ASSERT_THAT(begun, IsOk());
  EXPECT_EQ(folder.Steps(), std::vector<int64_t>{10});
  Write(CheckpointFolder::PartPath(*begun, 0), {{"x", "twenty"}});
  EXPECT_EQ(folder.Steps(), std::vector<int64_t>{10});
  Spill(*begun + "/MANIFEST", ManifestText({.step = 20}));
  EXPECT_EQ(folder.Steps(), std::vector<int64_t>{10});
  // The next attempt at this step finds an empty folder.
  ASSERT_THAT(folder.Begin(20), IsOk());
  EXPECT_TRUE(std::filesystem::is_empty(*begun));
  Save(20, "again");
  EXPECT_EQ(folder.Steps(), (std::vector<int64_t>{20, 10}));
}

// Else a disk that was full once stays so.
TEST_F(Checkpoints, WhatWasBegunOfOtherStepsGoes) {
  Save(10, "ten");
  const CheckpointFolder folder(path_);
  const auto killed = folder.Begin(20);
  ASSERT_THAT(killed, IsOk());
  Spill(CheckpointFolder::PartPath(*killed, 0), "half");
  const auto failed = folder.Begin(30);
  ASSERT_THAT(failed, IsOk());
  EXPECT_FALSE(std::filesystem::exists(*killed));
  Spill(CheckpointFolder::PartPath(*failed, 0), "half");
  folder.Discard();
  EXPECT_FALSE(std::filesystem::exists(*failed));
  EXPECT_EQ(folder.Steps(), std::vector<int64_t>{10});
  EXPECT_THAT(folder.CheckPart(10, folder.ReadManifest(10)->parts[0]), IsOk());
}

// They go to a terminal.
TEST_F(Checkpoints, TextsOfFilesAreEscaped) {
  Save(10, "ten");
  const CheckpointFolder folder(path_);
  const auto begun = folder.Begin(20);
  ASSERT_THAT(begun, IsOk());
  const std::string part = CheckpointFolder::PartPath(*begun, 0);
  Manifest manifest{.step = 20, .facts = {{"net\x1b[2J", "\x1b]0;a\x07"}}};
  manifest.parts.push_back({"worker-0.part", Write(part, {{"x", "y"}})});
  ASSERT_THAT(folder.Commit(*begun, manifest, 2), IsOk());
  auto text = DescribeCheckpoints(path_);
  ASSERT_THAT(text, IsOk());
  EXPECT_NE(text->find("\\033]0;a\\007"), std::string::npos) << *text;
  EXPECT_EQ(text->find('\x1b'), std::string::npos) << *text;
  manifest.parts[0].sha256 = "\x1b[2J";
  Spill(path_ + "/step-000000000020/MANIFEST", ManifestText(manifest));
  EXPECT_EQ(folder.CheckPart(20, manifest.parts[0]).message().find('\x1b'),
            std::string::npos);
  Write(path_ + "/part", {{"\x1b[2J", ""}});
  EXPECT_THAT((*PartReader::Open(path_ + "/part"))->Next(),
              StatusIs(StatusCode::kDataLoss, "control characters"));
}

TEST_F(Checkpoints, DamageIsFoundAndNamed) {
  Save(10, "ten");
  const CheckpointFolder folder(path_);
  const std::string part = folder.PartPath(10, 0);
  const std::string good = Slurp(part);
  Spill(part, good + "x");
  EXPECT_THAT(folder.CheckPart(10, folder.ReadManifest(10)->parts[0]),
              StatusIs(StatusCode::kDataLoss, "worker-0.part: its SHA-256"));
  const std::string path = path_ + "/step-000000000010/MANIFEST";
  const std::string text = Slurp(path);
  for (size_t at = 0; at < text.size(); ++at) {
    std::string bad = text;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    EXPECT_FALSE(ParseManifest(bad).ok()) << at;
    EXPECT_FALSE(ParseManifest(text.substr(0, at)).ok()) << at;
  }
  Spill(path, "");
  EXPECT_THAT(folder.ReadManifest(10),
              StatusIs(StatusCode::kDataLoss, "MANIFEST"));
}

// A FIFO or a device held the reader up for ever, and a link leads anywhere.
TEST_F(Checkpoints, OnlyFilesOfTheFolderAreRead) {
  Save(10, "ten");
  const CheckpointFolder folder(path_);
  const std::string step = path_ + "/step-000000000010";
  const Manifest manifest = *folder.ReadManifest(10);
  for (const std::string name : {"/MANIFEST", "/worker-0.part"}) {
    const std::string kept = path_ + name;
    std::filesystem::rename(step + name, kept);
    const auto expect_refused = [&](const char* why) {
      const absl::Status status = name == "/MANIFEST"
                                      ? folder.ReadManifest(10).status()
                                      : folder.CheckPart(10, manifest.parts[0]);
      EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument, why));
      EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument, step + name));
      EXPECT_THAT(*DescribeCheckpoints(path_), ::testing::HasSubstr(why));
      EXPECT_FALSE(name == "/worker-0.part" &&
                   PartReader::Open(step + name).ok());
      std::filesystem::remove(step + name);
    };
    ASSERT_EQ(mkfifo((step + name).c_str(), 0600), 0);
    expect_refused("no regular file");
    std::filesystem::create_symlink(kept, step + name);
    expect_refused("symbolic link");
    std::filesystem::create_directory(step + name);
    expect_refused("a folder");
    std::filesystem::rename(kept, step + name);
  }
  EXPECT_THAT(folder.CheckPart(10, manifest.parts[0]), IsOk());
  std::filesystem::create_directory_symlink(step, path_ + "/step-000000000020");
  EXPECT_EQ(folder.Steps(), std::vector<int64_t>{10});
}

// What is nested that deeply overflowed the stack.
TEST(Manifests, ThatAreNestedDeeplyAreRefused) {
  const std::string deep =
      std::string(200'000, '[') + std::string(200'000, ']');
  const std::string head =
      R"({"format":"telegrad-checkpoint","version":2,"step":1,"parts":)";
  const std::string line = absl::StrCat(head, deep, "}\n");
  EXPECT_FALSE(
      ParseManifest(absl::StrCat(line, Sha256OfBytes(line), "\n")).ok());
}

// With a hash that fits, as anybody can make one.
TEST(Manifests, AreCheckedFieldByField) {
  const auto with = [](const std::string& line) {
    return ParseManifest(
        absl::StrCat(line, "\n", Sha256OfBytes(line + "\n"), "\n"));
  };
  const std::string head =
      R"({"format":"telegrad-checkpoint","version":2,"step":1,"facts":{},)";
  EXPECT_THAT(with(head + R"("parts":[{"file":"a","sha256":""}]})"), IsOk());
  for (const char* bad :
       {"", "[]", "{}", R"({"format":7})", R"({"format":"other"})"}) {
    EXPECT_FALSE(with(bad).ok()) << bad;
  }
  for (const char* parts :
       {"[]", "7", "[7]", R"([{"file":"../a","sha256":""}])",
        R"([{"file":".a","sha256":""}])", R"([{"file":"a"}])",
        R"([{"file":"a\u001b","sha256":""}])"}) {
    EXPECT_FALSE(with(absl::StrCat(head, "\"parts\":", parts, "}")).ok())
        << parts;
  }
  EXPECT_THAT(with(R"({"format":"telegrad-checkpoint","version":9})"),
              StatusIs(StatusCode::kFailedPrecondition, "version 9"));
}

}  // namespace
}  // namespace telegrad
