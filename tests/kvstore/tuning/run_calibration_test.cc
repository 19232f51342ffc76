#include "kvstore/tuning/run_calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/device_access.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/tuning/known_speeds.h"
#include "tests/testing/status_matchers.h"
#include "topology/cost_model.h"

// The figures that a run's plan is made with, the same on all workers.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::SizeIs;
using ::testing::StartsWith;

ClusterConfig JobWith(const std::string& codec) {
  ClusterConfig config;
  config.compression = {.type = codec};
  return config;
}

TEST(CalibrateRun, AgreesOnTheSlowestWorkersFigures) {
  const ClusterConfig config = JobWith("2bit");
  std::vector<absl::StatusOr<RunCalibration>> runs(2);
  Cluster(config).Run([&](KVStore& store) {
    t_codec_speed = store.group().rank() == 0 ? 3e9 : 2e9;
    runs[static_cast<size_t>(store.group().rank())] =
        CalibrateRun(store, {.compression = config.compression,
                             .codecs = {"2bit", "fp16"},
                             .num_elems = 4096,
                             .cpus = store.group().rank() == 0 ? 4 : 6,
                             .budget = std::chrono::milliseconds(1),
                             .measure_codec = KnownSpeeds});
  });
  for (const auto& run : runs) {
    ASSERT_THAT(run, IsOk());
    EXPECT_EQ(run->agreed, runs[0]->agreed);
    EXPECT_THAT(run->notes, IsEmpty());
    EXPECT_EQ(run->agreed.cores.value, 4);
    EXPECT_LE(run->agreed.reduce.value, run->mine.reduce.value * 1.0001);
    EXPECT_GE(run->agreed.handover_s.value,
              run->mine.handover_s.value / 1.0001);
    ASSERT_THAT(run->agreed.codecs, SizeIs(2));
    EXPECT_EQ(run->agreed.codecs[0].encode.value, 2e9);
    EXPECT_TRUE(run->agreed.codecs[0].encode.is_grounded());
  }
  EXPECT_EQ(runs[0]->mine.codecs[0].encode.value, 3e9);
}

TEST(CalibrateRun, ACodecThatOneCannotMeasureIsANoteForAll) {
  const ClusterConfig config = JobWith("2bit");
  Cluster(config).Run([&](KVStore& store) {
    t_codec_speed = store.group().rank() == 0 ? 1e9 : 0;
    const auto run =
        CalibrateRun(store, {.compression = config.compression,
                             .codecs = {"2bit"},
                             .num_elems = 4096,
                             .budget = std::chrono::milliseconds(1),
                             .measure_codec = KnownSpeeds});
    ASSERT_THAT(run, IsOk());
    EXPECT_THAT(run->agreed.codecs, IsEmpty());
    EXPECT_THAT(run->notes, Contains(HasSubstr("2bit has no ")));
  });
}

// Named figures of 2bit, with a reason of so many bytes.
template <size_t kReasonBytes>
absl::StatusOr<CodecFigures> Renamed(absl::string_view text,
                                     const CompressionConfig& compression,
                                     const CalibrationOptions& options) {
  auto figures = KnownSpeeds("2bit", compression, options);
  if (!figures.ok()) return figures;
  figures->name = std::string(text);
  figures->encode.reason.assign(kReasonBytes, '.');
  return figures;
}

// By the emulated device.
TEST(CalibrateRun, MeasuresTheDeviceAndItsBus) {
  t_codec_speed = 1e9;  // whatever another test has left
  const ClusterConfig config = JobWith("2bit");
  for (const int num_there : {1, 2}) {
    std::vector<absl::StatusOr<RunCalibration>> runs(2);
    Cluster(config).Run([&](KVStore& store) {
      const int rank = store.group().rank();
      runs[static_cast<size_t>(rank)] = CalibrateRun(
          store, {.compression = config.compression,
                  .codecs = {"2bit"},
                  .num_elems = 4096,
                  .device = rank < num_there ? kEmulatedDevice : Device{},
                  .budget = std::chrono::milliseconds(1),
                  .measure_codec = KnownSpeeds});
    });
    for (const auto& run : runs) {
      ASSERT_THAT(run, IsOk());
      EXPECT_EQ(run->agreed, runs[0]->agreed);
      EXPECT_THAT(run->notes, IsEmpty());
      const CodecFigures& codec = run->agreed.codecs.front();
      EXPECT_TRUE(codec.on_gpu);
      EXPECT_EQ(codec.decode_add.value, t_codec_speed);
      const LinkFigures* bus = run->agreed.FindLink(kBusLink);
      ASSERT_EQ(bus != nullptr, num_there == 2);
      if (bus == nullptr) continue;
      EXPECT_GT(bus->receive.value, 0);
      EXPECT_NE(codec.encode.value, t_codec_speed);
    }
  }
}

TEST(CalibrateRun, TakesAsManyCodecsAsTheRunNames) {
  const ClusterConfig config = JobWith("2bit");
  RunCalibrationOptions options{.compression = config.compression,
                                .num_elems = 4096,
                                .budget = std::chrono::milliseconds(1),
                                .measure_codec = Renamed<100>};
  for (int i = 0; i < 100; ++i) {
    options.codecs.push_back(absl::StrCat("codec", i));
  }
  Cluster(config).Run([&](KVStore& store) {
    const auto run = CalibrateRun(store, options);
    ASSERT_THAT(run, IsOk());
    EXPECT_THAT(run->agreed.codecs, SizeIs(100));
    EXPECT_THAT(run->notes, IsEmpty());
  });
}

TEST(CalibrateRun, CodecsThatCannotBeSentAreANoteForAll) {
  const ClusterConfig config = JobWith("2bit");
  Cluster(config).Run([&](KVStore& store) {
    const auto run = CalibrateRun(
        store, {.compression = config.compression,
                .codecs = {"2bit"},
                .num_elems = 4096,
                .cpus = 4,
                .budget = std::chrono::milliseconds(1),
                .measure_codec = store.group().rank() == 0 ? Renamed<(1 << 20)>
                                                           : KnownSpeeds});
    ASSERT_THAT(run, IsOk());
    EXPECT_THAT(run->agreed.codecs, IsEmpty());
    EXPECT_EQ(run->agreed.cores.value, 4);
    EXPECT_THAT(run->notes, ElementsAre(StartsWith("no codec is predicted")));
  });
}

}  // namespace
}  // namespace telegrad
