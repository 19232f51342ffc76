#include "kvstore/tuning/device_speeds.h"

#include <gtest/gtest.h>

#include "base/device_access.h"
#include "compression/codec.h"
#include "tests/testing/status_matchers.h"
#include "topology/cost_model.h"

namespace telegrad {
namespace {

using testing::IsOk;
using testing::StatusIs;

constexpr CalibrationOptions kFew = {.num_elems = 9000,
                                     .chunk_elems = 4096,
                                     .repeats = 2,
                                     .budget = std::chrono::milliseconds(1)};

// By an emulated device, whose memory no host code may touch.
TEST(DeviceSpeeds, AreMeasuredOfEveryCodec) {
  for (const Codec* codec : AllCodecs()) {
    const std::string& name = codec->traits().name;
    SCOPED_TRACE(name);
    const auto core = MeasureCodec(name, {}, kFew);
    ASSERT_THAT(core, IsOk());
    CodecFigures figures = *core;
    ASSERT_THAT(MeasureOnDevice(kEmulatedDevice, name, {}, kFew, figures),
                IsOk());
    EXPECT_TRUE(figures.on_gpu);
    EXPECT_TRUE(figures.encode.is_grounded());
    EXPECT_GT(figures.encode.value, 0);
    EXPECT_GT(figures.decode.value, 0);
    // A server's work is a core's.
    EXPECT_EQ(figures.decode_add, core->decode_add);
    EXPECT_EQ(figures.sum, core->sum);
    EXPECT_EQ(figures.reply_bits, core->reply_bits);
    Calibration calibration = AssumedCalibration();
    calibration.codecs = {figures};
    EXPECT_THAT(CheckCalibration(calibration), IsOk());
    EXPECT_THAT(CostOf(figures, {.workers = 2}), IsOk());
  }
}

TEST(DeviceSpeeds, OfTheBusGoBothWays) {
  const auto bus = MeasureBus(kEmulatedDevice, kFew);
  ASSERT_THAT(bus, IsOk());
  EXPECT_EQ(bus->name, "bus");
  EXPECT_GT(bus->send.value, 0);
  EXPECT_GT(bus->receive.value, 0);
  EXPECT_GT(bus->latency_s.value, 0);
}

TEST(DeviceSpeeds, SayWhyThereIsNoDevice) {
  const Device none{DeviceKind::kCuda, 1000};
  CodecFigures figures;
  EXPECT_FALSE(MeasureOnDevice(none, "2bit", {}, kFew, figures).ok());
  EXPECT_FALSE(MeasureBus(none, kFew).ok());
  EXPECT_THAT(MeasureOnDevice(kEmulatedDevice, "3bit", {}, kFew, figures),
              StatusIs(absl::StatusCode::kNotFound, "3bit"));
}

}  // namespace
}  // namespace telegrad
