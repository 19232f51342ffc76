#include "topology/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_replace.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

TEST(Calibration, DefaultsAreValidAndAssumed) {
  const Calibration calibration = AssumedCalibration();
  EXPECT_TRUE(CheckCalibration(calibration).ok());
  ASSERT_NE(calibration.FindCodec("2bit"), nullptr);
  ASSERT_NE(calibration.FindLink("TCP"), nullptr);
  EXPECT_EQ(calibration.FindCodec("nothing"), nullptr);
  for (const CodecFigures& codec : calibration.codecs) {
    EXPECT_FALSE(codec.encode.is_grounded()) << codec.name;
  }
}

TEST(Calibration, SurvivesJson) {
  Calibration calibration = AssumedCalibration();
  calibration.codecs[0].encode = {.value = 1.5e9,
                                  .spread = 0.04,
                                  .confidence = Confidence::kMeasured,
                                  .reason = "median of 15, \"quoted\""};
  calibration.check.value = 8e9;
  calibration.copy.value = 5e9;
  calibration.handover_s.value = 5e-6;
  calibration.links[0].frame_cpu_s_per_byte.value = 2e-10;
  const auto read = CalibrationFromJson(CalibrationToJson(calibration));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, calibration);

  const std::string compact = CalibrationToJson(calibration, -1);
  EXPECT_EQ(compact.find('\n'), compact.size() - 1);
  const auto again = CalibrationFromJson(compact);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, calibration);

  const std::string path = testing::TempDir() + "calibration_test.json";
  std::ofstream(path) << CalibrationToJson(calibration);
  const auto loaded = LoadCalibration(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*loaded, calibration);
  std::ofstream(path) << "text";
  EXPECT_THAT(std::string(LoadCalibration(path).status().message()),
              testing::HasSubstr(path));
  std::remove(path.c_str());
  EXPECT_EQ(LoadCalibration(path).status().code(), absl::StatusCode::kNotFound);
}

TEST(Calibration, RefusesWhatIsNotOne) {
  const std::string good = CalibrationToJson(AssumedCalibration());
  const auto why = [&](const std::string& from, const std::string& to) {
    const std::string bad = absl::StrReplaceAll(good, {{from, to}});
    EXPECT_NE(bad, good) << from;
    return std::string(CalibrationFromJson(bad).status().message());
  };
  EXPECT_THAT(why("\"encode\"", "\"encoded\""), HasSubstr("not known"));
  EXPECT_THAT(why("\"assumed\"", "\"certain\""), HasSubstr("confidence"));
  EXPECT_THAT(why("0.25", "1.0"), HasSubstr("spread"));
  EXPECT_THAT(why("0.25", "\"much\""), HasSubstr("not a number"));
  EXPECT_THAT(why("0.25", "-1"), HasSubstr("spread"));
  EXPECT_THAT(why("\"dense\"", "\"thin\""), HasSubstr("reply"));
  EXPECT_THAT(why("calibration-1", "calibration-2"), HasSubstr("schema"));
  EXPECT_THAT(why("\"1bit\"", "\"fp16\""), HasSubstr("twice"));
  EXPECT_THAT(why("\"1bit\"", "\"\""), HasSubstr("no name"));
  EXPECT_THAT(why("\"max_workers\": 1,", "\"max_workers\": 0,"),
              HasSubstr("max_workers"));
  EXPECT_THAT(why("\"max_workers\": 1,", "\"max_workers\": 9,"),
              HasSubstr("ascending"));
  EXPECT_THAT(why("\"push_bits\": 2.0,", "\"push_bits\": 0,"),
              HasSubstr("push_bits"));
  EXPECT_THAT(CalibrationFromJson("").status().message(), HasSubstr("JSON"));
  EXPECT_THAT(CalibrationFromJson("[]").status().message(),
              HasSubstr("object"));
  EXPECT_FALSE(CalibrationFromJson(std::string(100'000, '[')).ok());
  EXPECT_THAT(
      CalibrationFromJson(std::string((4 << 20) + 1, ' ')).status().message(),
      HasSubstr("4 MiB"));
}

TEST(Calibration, ChecksValuesThatCodeMade) {
  Calibration calibration = AssumedCalibration();
  calibration.cores.value = NAN;
  EXPECT_THAT(CheckCalibration(calibration).message(), HasSubstr("cores"));
}

}  // namespace
}  // namespace telegrad
