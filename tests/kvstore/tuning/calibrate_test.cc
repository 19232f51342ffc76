#include "kvstore/tuning/calibrate.h"

#include <gtest/gtest.h>

#include "compression/codec.h"
#include "tests/testing/status_matchers.h"
#include "topology/cost_model.h"

namespace telegrad {
namespace {

using testing::IsOk;
using testing::StatusIs;

constexpr CalibrationOptions kQuick = {
    .num_elems = 5000, .repeats = 2, .budget = std::chrono::milliseconds(1)};

TEST(Calibrate, MeasuresEveryCodecInEveryReplyMode) {
  for (const Codec* codec : AllCodecs()) {
    const CodecTraits& traits = codec->traits();
    for (const ReplyMode reply :
         {ReplyMode::kAuto, ReplyMode::kReencode, ReplyMode::kDense}) {
      SCOPED_TRACE(traits.name);
      const auto figures = MeasureCodec(traits.name, {.reply = reply}, kQuick);
      ASSERT_THAT(figures, IsOk());
      Calibration calibration = AssumedCalibration();
      calibration.codecs = {*figures};
      EXPECT_THAT(CheckCalibration(calibration), IsOk());
      EXPECT_THAT(CostOf(*figures, {.workers = 2}), IsOk());
      EXPECT_EQ(figures->is_lossy, !traits.lossless);
      EXPECT_TRUE(figures->encode.is_grounded());
      EXPECT_GT(figures->encode.value, 0);
      EXPECT_GT(figures->decode.value, 0);
      EXPECT_GT(figures->push_bits, 0);
      if (traits.lossless || reply == ReplyMode::kDense) {
        EXPECT_EQ(figures->reply_bits.back().bits, 32);
      }
    }
  }
}

TEST(Calibrate, KnowsTheBitsOfTwoBitCodesAndTheirSums) {
  const auto figures =
      MeasureCodec("2bit", {}, {.num_elems = 4096, .repeats = 2});
  ASSERT_THAT(figures, IsOk());
  EXPECT_EQ(figures->reply, Reply::kSum);
  EXPECT_EQ(figures->push_bits, 2);
  // Up to 1, 3 and 7 workers: ceil(log2(2 W + 1)) bits.
  ASSERT_GE(figures->reply_bits.size(), 3u);
  EXPECT_EQ(figures->reply_bits[0], (BitsForWorkers{1, 2}));
  EXPECT_EQ(figures->reply_bits[1], (BitsForWorkers{3, 3}));
  EXPECT_EQ(figures->reply_bits[2], (BitsForWorkers{7, 4}));
}

TEST(Calibrate, TakesArraysOfAStepsSizeUpToWhatNoCacheHolds) {
  EXPECT_EQ(CalibrationElems(0), 4096u);
  EXPECT_EQ(CalibrationElems(431'080), size_t{1} << 19);
  EXPECT_EQ(CalibrationElems(size_t{1} << 20), size_t{1} << 20);
  EXPECT_GE(CalibrationElems(), size_t{1} << 21);
  EXPECT_LE(CalibrationElems(), size_t{1} << 24);
  EXPECT_EQ(CalibrationElems(138'000'000), CalibrationElems());
}

TEST(Calibrate, MeasuresTheRepliesOfCodesWithoutAWidth) {
  const auto figures =
      MeasureCodec("threshold", {}, {.num_elems = 1 << 16, .repeats = 2});
  ASSERT_THAT(figures, IsOk());
  EXPECT_EQ(figures->reply, Reply::kReencode);
  ASSERT_EQ(figures->reply_bits.size(), 1u);
  EXPECT_GT(figures->reply_bits[0].bits, 0.5 * figures->push_bits);
  EXPECT_LT(figures->reply_bits[0].bits, 2 * figures->push_bits);
  EXPECT_THAT(CostOf(*figures, {.workers = 4}), IsOk());
}

TEST(Calibrate, RefusesWhatIsNoCodec) {
  EXPECT_THAT(MeasureCodec("3bit", {}, kQuick).status(),
              StatusIs(absl::StatusCode::kNotFound, "3bit"));
}

TEST(Calibrate, MeasuresAdditionsSumsCopiesAndHandovers) {
  const Calibration cores = MeasureCores(kQuick);
  for (const Figure& figure :
       {cores.reduce, cores.check, cores.copy, cores.handover_s}) {
    EXPECT_GT(figure.value, 0);
    EXPECT_TRUE(figure.is_grounded());
  }
  // Seconds of one way.
  EXPECT_GT(cores.handover_s.value, 1e-8);
  EXPECT_LT(cores.handover_s.value, 1e-2);
}

}  // namespace
}  // namespace telegrad
