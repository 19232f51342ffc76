#include <gtest/gtest.h>

#include "kvstore/auto_compression.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/known_speeds.h"
#include "tests/testing/status_matchers.h"

// What AutoCompression takes from a run's plan, and gives it.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::IsOk;

absl::StatusOr<CodecFigures> NoSpeeds(absl::string_view,
                                      const CompressionConfig&,
                                      const CalibrationOptions&) {
  return absl::UnavailableError("measured");
}

TEST(AutoCompression, DoesNotMeasureWhatIsKnown) {
  ClusterConfig config;
  config.compression = {
      .type = "2bit", .alternatives = {"fp16"}, .starts_dense = true};
  Cluster(config).Run([&](KVStore& store) {
    AutoOptions options{.compression = config.compression,
                        .measure_codec = NoSpeeds};
    EXPECT_FALSE(AutoCompression(store, options).Start().ok());
    options.known.codecs = {KnownCodec("fp16", 16), KnownCodec("2bit", 2)};
    AutoCompression automatic(store, options);
    EXPECT_THAT(automatic.Start(), IsOk());
    EXPECT_FALSE(automatic.TakeMeasurement().has_value());
  });
}

TEST(AutoCompression, TellsOnceWhatADecisionWasMadeWith) {
  ClusterConfig config;
  config.compression = {.type = "2bit", .starts_dense = true};
  Cluster(config).Run([&](KVStore& store) {
    AutoOptions options{.compression = config.compression};
    options.known.codecs = {KnownCodec("2bit", 2)};
    AutoCompression automatic(store, options);
    ASSERT_THAT(automatic.Start(), IsOk());
    const StepTimes times{.step = 0.25, .exchange = 0.25, .wait = 0.25};
    for (int step = 0; step < 9; ++step) {
      EXPECT_FALSE(automatic.TakeMeasurement().has_value()) << step;
      ASSERT_THAT(automatic.AfterStep(times), IsOk());
    }
    const auto measured = automatic.TakeMeasurement();
    ASSERT_TRUE(measured.has_value());
    EXPECT_TRUE(measured->is_first);
    EXPECT_EQ(measured->seen.median.exchange, 0.25);
    EXPECT_EQ(measured->name, automatic.is_compressing() ? "2bit" : "none");
    EXPECT_FALSE(automatic.TakeMeasurement().has_value());
  });
}

}  // namespace
}  // namespace telegrad
