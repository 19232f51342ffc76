#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "topology/cost_model.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kVgg16Elems = 138'357'544;

TEST(BreakEven, HandValues) {
  // k = k' = 2 * 7 / 8; a top-k of 1 % in pairs leaves 2 % of the bytes.
  EXPECT_NEAR(BreakEvenBytesPerS(1.75, 1.75, 0.02, 8e9, 2, 40e9) * 8 / 1e9,
              78.4, 0.1);
  EXPECT_NEAR(BreakEvenBytesPerS(1.75, 1.75, 0.02, 0.8e9, 2, 4e9) * 8 / 1e9,
              7.84, 0.01);
  EXPECT_NEAR(BreakEvenBytesPerS(1.75, 1.75, 0.5, 6e9, 1, 6e9) * 8 / 1e9, 21,
              0.1);
  EXPECT_EQ(BreakEvenBytesPerS(1.75, 7, 0.5, 6e9, 1, 6e9), 0);
}

TEST(BreakEven, OverlappedCodecOfOneCore) {
  // Two workers, 1.30 ns per element in all: dense sends 4 bytes per element.
  const CodecCost codec{.name = "2bit",
                        .compresses = true,
                        .encode_s = 0.68e-9,
                        .merge_s = 0.24e-9,
                        .decode_s = 0.38e-9,
                        .push_bits = 2,
                        .reply_bits = 2};
  ClusterCost cluster = {
      .workers = 2, .reduce_elems_per_s = 1e18, .bytes_per_s = 1};
  const auto gbps = [&](const CodecCost& each) {
    return BreakEvenBytesPerS(Aggregation::kRing,
                              Aggregation::kColocatedServers, cluster, each,
                              kVgg16Elems) *
           8 / 1e9;
  };
  EXPECT_NEAR(gbps(codec), 4 / 1.30 * 8, 0.5);  // the first and last chunk: 2 %
  CodecCost heavy = codec;
  heavy.push_bits = heavy.reply_bits = 40;
  EXPECT_EQ(gbps(heavy), 0);
  // A transport that needs more of the core than the codec.
  cluster.cpu_s_per_byte = 1e-9;
  EXPECT_EQ(gbps(codec), std::numeric_limits<double>::infinity());
}

TEST(CodecCost, TakesWidthsByWorkersAndSpeedsByCores) {
  const Calibration calibration = AssumedCalibration();
  ClusterCost cluster = {.workers = 4, .reduce_elems_per_s = 1e18};
  cluster.cores = 2;
  const auto cost = CostOf(*calibration.FindCodec("2bit"), cluster);
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_EQ(cost->push_bits, 2);
  EXPECT_EQ(cost->reply_bits, 4);
  EXPECT_DOUBLE_EQ(cost->encode_s, 1 / (2 * 1.46e9));
  EXPECT_EQ(cost->reply_encode_s, 0);
  const auto slow = CostOf(*calibration.FindCodec("2bit"), cluster, -1);
  EXPECT_DOUBLE_EQ(slow->encode_s, cost->encode_s / 0.75);
  cluster.workers = 1 << 20;
  EXPECT_THAT(
      CostOf(*calibration.FindCodec("2bit"), cluster).status().message(),
      HasSubstr("no width"));
  CodecFigures silent = *calibration.FindCodec("fp16");
  silent.decode = {};
  EXPECT_THAT(CostOf(silent, cluster).status().message(),
              HasSubstr("no decode speed"));
}

}  // namespace
}  // namespace telegrad
