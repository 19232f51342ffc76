#include "kvstore/tuning/calibration_cache.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "kvstore/tuning/calibrate.h"
#include "kvstore/tuning/run_calibration.h"
#include "tests/kvstore/cluster.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;

constexpr double kStored = 12345;  // elements/s: nothing is so slow

class Cache : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/cache-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    folder_ = root_ + "/telegrad";
  }
  void TearDown() override { fs::remove_all(root_); }

  CalibrationCache Open(const std::string& identity = "0123 cpu a x2",
                        bool recalibrate = false) {
    return CalibrationCache(
        {.folder = folder_, .identity = identity, .recalibrate = recalibrate});
  }

  static double Encode(CalibrationCache& cache) {
    const auto figures = MeasureCodec("2bit", {},
                                      {.num_elems = 4096,
                                       .repeats = 2,
                                       .budget = std::chrono::milliseconds(1),
                                       .cache = &cache});
    EXPECT_THAT(figures, IsOk());
    return figures.ok() ? figures->encode.value : 0;
  }

  // Makes the file of one measurement and puts kStored into it.
  void StoreKnown(const std::string& identity = "0123 cpu a x2") {
    CalibrationCache cache = Open(identity, /*recalibrate=*/true);
    CodecFigures figures =
        *MeasureCodec("2bit", {},
                      {.num_elems = 4096,
                       .repeats = 2,
                       .budget = std::chrono::milliseconds(1)});
    figures.encode.value = kStored;
    Calibration calibration;
    calibration.codecs.push_back(figures);
    cache.Store("codec 2bit reply sum workers 2 elements 4096 chunks 524288",
                calibration);
    EXPECT_THAT(cache.TakeNotes(), IsEmpty());
  }

  std::string OnlyFile() {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      files.push_back(entry.path());
    }
    EXPECT_EQ(files.size(), 1u);
    return files.empty() ? "" : files[0];
  }

  static std::string Read(const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::trunc) << text;
  }

  std::string root_;
  std::string folder_;
};

TEST_F(Cache, GivesWhatWasStored) {
  StoreKnown();
  CalibrationCache cache = Open();
  EXPECT_EQ(Encode(cache), kStored);
  EXPECT_THAT(cache.TakeNotes(),
              ElementsAre(AllOf(HasSubstr("codec 2bit"), HasSubstr(OnlyFile()),
                                HasSubstr("--recalibrate"))));
  EXPECT_THAT(cache.TakeNotes(), IsEmpty());
}

TEST_F(Cache, LeavesWhatTheSameRunHasStored) {
  const auto started = fs::file_time_type::clock::now();
  StoreKnown();
  const auto open = [&](fs::file_time_type before) {
    return CalibrationCache(
        {.folder = folder_, .identity = "0123 cpu a x2", .before = before});
  };
  // Times of files may lag behind the clock by a tick of the kernel's.
  CalibrationCache same = open(started - std::chrono::seconds(1));
  EXPECT_GT(Encode(same), kStored);
  EXPECT_THAT(same.TakeNotes(), IsEmpty());
  StoreKnown();
  CalibrationCache next = open(started + std::chrono::hours(1));
  EXPECT_EQ(Encode(next), kStored);
}

TEST_F(Cache, KeepsWhatWasMeasured) {
  CalibrationCache cache = Open();
  const double measured = Encode(cache);
  EXPECT_GT(measured, kStored);
  EXPECT_THAT(cache.TakeNotes(), IsEmpty());
  EXPECT_EQ(Encode(cache), measured);
}

TEST_F(Cache, KeepsWhatCoresDoTogether) {
  CalibrationCache cache = Open();
  const CalibrationOptions options{.num_elems = 4096,
                                   .repeats = 2,
                                   .budget = std::chrono::milliseconds(1),
                                   .cache = &cache};
  const Calibration cores = MeasureCores(options);
  EXPECT_GT(cores.check.value, 0);
  EXPECT_EQ(MeasureCores(options), cores);
}

// As `telegrad-perf calibrate --keep` and a run do, for models of any size.
TEST_F(Cache, GivesRunsTheCoresOfLargeModels) {
  CalibrationCache cache = Open();
  constexpr size_t kMany = 138'000'000;
  constexpr auto kShort = std::chrono::milliseconds(1);
  const Calibration kept = MeasureCores({.num_elems = CalibrationElems(kMany),
                                         .repeats = 2,
                                         .budget = kShort,
                                         .cache = &cache});
  testing::Cluster(testing::Job(1)).Run([&](KVStore& store) {
    const auto run = CalibrateRun(
        store, {.num_elems = kMany, .cache = &cache, .budget = kShort});
    ASSERT_THAT(run, IsOk());
    EXPECT_EQ(run->mine.reduce, kept.reduce);
    EXPECT_EQ(run->mine.copy, kept.copy);
  });
}

TEST_F(Cache, RecalibratesWhenAsked) {
  StoreKnown();
  CalibrationCache cache = Open("0123 cpu a x2", /*recalibrate=*/true);
  const double measured = Encode(cache);
  EXPECT_GT(measured, kStored);
  EXPECT_THAT(cache.TakeNotes(), IsEmpty());
  CalibrationCache next = Open();
  EXPECT_EQ(Encode(next), measured);
}

TEST_F(Cache, IgnoresAndReplacesWhatAnotherVersionStored) {
  StoreKnown("0123 cpu a x2 telegrad 0.0.9");
  const std::string file = OnlyFile();
  CalibrationCache cache = Open("0123 cpu a x2 telegrad 0.1.0");
  const double measured = Encode(cache);
  EXPECT_GT(measured, kStored);
  EXPECT_THAT(cache.TakeNotes(),
              ElementsAre(HasSubstr("ignored: it is of another machine or "
                                    "version")));
  EXPECT_EQ(OnlyFile(), file);
  EXPECT_EQ(Encode(cache), measured);
}

TEST_F(Cache, KeepsMachinesApart) {
  StoreKnown("4567 cpu a x2");
  CalibrationCache cache = Open();
  EXPECT_GT(Encode(cache), kStored);
  EXPECT_THAT(cache.TakeNotes(), IsEmpty());
  CalibrationCache other = Open("4567 cpu a x2");
  EXPECT_EQ(Encode(other), kStored);
}

TEST_F(Cache, IgnoresAndReplacesBrokenFiles) {
  StoreKnown();
  const std::string file = OnlyFile();
  const std::string good = Read(file);
  const std::string heading = good.substr(0, good.find('\n') + 1);
  for (const std::string& text :
       {std::string(), std::string("{}"), heading, good.substr(0, 200),
        good.substr(0, good.size() / 2), heading + "[]",
        heading + std::string(50000, '['), std::string(300000, 'x'),
        good + "x"}) {
    Write(file, text);
    CalibrationCache cache = Open();
    const double measured = Encode(cache);
    EXPECT_GT(measured, kStored) << text.substr(0, 300);
    const std::vector<std::string> notes = cache.TakeNotes();
    ASSERT_THAT(notes, ElementsAre(HasSubstr(" is ignored: ")));
    EXPECT_LT(notes[0].size(), 1000u);
    EXPECT_EQ(Encode(cache), measured);
  }
}

TEST_F(Cache, DoesNotTakeSpeedsOfZero) {
  StoreKnown();
  const std::string file = OnlyFile();
  std::string text = Read(file);
  for (size_t at; (at = text.find("12345.0")) != std::string::npos;) {
    text.replace(at, 7, "0.0");
  }
  Write(file, text);
  CalibrationCache cache = Open();
  EXPECT_GT(Encode(cache), kStored);
}

TEST_F(Cache, IsNotKeptByAFifo) {
  StoreKnown();
  const std::string file = OnlyFile();
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  CalibrationCache cache = Open();
  EXPECT_GT(Encode(cache), kStored);
  EXPECT_THAT(cache.TakeNotes(),
              ElementsAre(HasSubstr("ignored: is no regular file")));
}

TEST_F(Cache, NeedsNoFolder) {
  folder_.clear();
  CalibrationCache cache = Open();
  EXPECT_GT(Encode(cache), kStored);
  EXPECT_THAT(cache.TakeNotes(), IsEmpty());
}

TEST_F(Cache, SaysThatAFolderCannotBeMade) {
  Write(root_ + "/file", "");
  folder_ = root_ + "/file/telegrad";
  CalibrationCache cache = Open();
  EXPECT_GT(Encode(cache), kStored);
  EXPECT_THAT(
      cache.TakeNotes(),
      ElementsAre(AllOf(HasSubstr("codec 2bit"), HasSubstr("is not kept: "))));
}

TEST_F(Cache, SaysThatAFolderCannotBeWritten) {
  if (geteuid() == 0) GTEST_SKIP() << "root writes everywhere";
  ASSERT_EQ(mkdir(folder_.c_str(), 0500), 0);
  CalibrationCache cache = Open();
  EXPECT_GT(Encode(cache), kStored);
  EXPECT_THAT(cache.TakeNotes(), ElementsAre(HasSubstr("is not kept: ")));
}

TEST(CalibrationFolder, IsTheUsersCache) {
  EXPECT_EQ(CalibrationFolder("/x", "/home/a"), "/x/telegrad");
  EXPECT_EQ(CalibrationFolder("", "/home/a"), "/home/a/.cache/telegrad");
  EXPECT_EQ(CalibrationFolder("relative", "/home/a"),
            "/home/a/.cache/telegrad");
  EXPECT_EQ(CalibrationFolder(nullptr, nullptr), "");
  EXPECT_EQ(CalibrationFolder(nullptr, ""), "");
}

TEST(CpuModel, IsThatOfTheFirstProcessor) {
  const auto model = [](const std::string& text) {
    auto tree = std::make_unique<MemoryTree>();
    EXPECT_TRUE(tree->AddFolder("sys"));
    EXPECT_TRUE(tree->AddFile("proc/cpuinfo", text));
    const auto root = SysRoot::FromTree(std::move(tree), "test");
    EXPECT_THAT(root, IsOk());
    return root.ok() ? CpuModel(*root) : "none";
  };
  EXPECT_EQ(model("processor\t: 0\nmodel\t: 1\nmodel name\t: Xeon: A \n"
                  "\nmodel name\t: B\n"),
            "Xeon: A");
  EXPECT_EQ(model("processor\t: 0\nBogoMIPS\t: 50\n"), "");
  EXPECT_EQ(model("model name"), "");
}

TEST(CalibrationIdentity, NamesWhatSpeedsDependOn) {
  Machine machine{.arch = "x86_64", .cpus = 4};
  const std::string identity = CalibrationIdentity(machine, "Xeon\n7", "1.2");
  EXPECT_THAT(identity, AllOf(HasSubstr(" cpu Xeon\\n7 x4"),
                              HasSubstr("telegrad 1.2"), HasSubstr("cpu/")));
  machine.numa_nodes = 2;
  EXPECT_NE(CalibrationIdentity(machine, "Xeon\n7", "1.2"), identity);
}

}  // namespace
}  // namespace telegrad
