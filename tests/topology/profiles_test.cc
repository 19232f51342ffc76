#include "topology/profiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(GradientProfile, BuiltInOnesHaveThePublishedSizes) {
  // Parameters with 1,001 classes; VGG16, ResNet50 and ResNet152 agree with
  // torchvision's 1,000-class models plus one class.
  const std::map<std::string, std::pair<size_t, int64_t>> expected = {
      {"alexnet", {16, 61'842'345}},      {"vgg16", {32, 138'361'641}},
      {"inceptionv3", {190, 23'819'401}}, {"resnet50", {161, 25'559'081}},
      {"resnet152", {467, 60'194'857}},
  };
  std::map<std::string, std::pair<size_t, int64_t>> found;
  for (const std::string& name : GradientProfileNames()) {
    const auto profile = LoadGradientProfile(name);
    ASSERT_TRUE(profile.ok()) << profile.status();
    found[name] = {profile->tensors.size(), profile->num_elems()};
  }
  EXPECT_EQ(found, expected);
}

TEST(GradientProfile, LayersAreReadyLastFirst) {
  const auto profile = ParseGradientProfile(
      "p", "name,shape,elements\na,2x2,4\na.b,2,2\nc,3x2,6\nc.b,3,3\n");
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_THAT(profile->ReadyShares(), ElementsAre(1.0, 1.0, 0.5, 0.5));
}

TEST(GradientProfile, SaysWhenGradientsAreReady) {
  const auto profile = ParseGradientProfile(
      "p",
      "name,shape,elements,ready_ms\na,2x2,4,80\na.b,2,2,60.5\nc,3x2,6,20\n");
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_THAT(profile->ReadyShares(), ElementsAre(1.0, 60.5 / 80, 0.25));
}

TEST(GradientProfile, ReadsFiles) {
  const std::string path = testing::TempDir() + "profiles_test.csv";
  std::ofstream(path) << "name,shape,elements\r\nw,10x3,30\r\n";
  const auto profile = LoadGradientProfile(path);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_THAT(profile->tensors,
              ElementsAre(ProfileTensor{
                  .name = "w", .num_elems = 30, .is_matrix = true}));
  std::remove(path.c_str());
  EXPECT_EQ(LoadGradientProfile(path).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_THAT(LoadGradientProfile("lenet").status().message(),
              HasSubstr("vgg16"));
}

TEST(GradientProfile, RefusesWhatIsNotOne) {
  const auto why = [](const std::string& lines) {
    return std::string(
        ParseGradientProfile("p", "name,shape,elements\n" + lines)
            .status()
            .message());
  };
  EXPECT_THAT(why(""), HasSubstr("no tensors"));
  EXPECT_THAT(why("a,2x2,5\n"), HasSubstr("has 4 elements"));
  EXPECT_THAT(why("a,2xx2,4\n"), HasSubstr("not a shape"));
  EXPECT_THAT(why("a,2x-2,4\n"), HasSubstr("not a shape"));
  EXPECT_THAT(why("a,,4\n"), HasSubstr("not a shape"));
  EXPECT_THAT(why("a,4\n"), HasSubstr("line 2: not name,shape,elements"));
  EXPECT_THAT(why("a,0,0\n"), HasSubstr("not a number of elements"));
  EXPECT_THAT(why("a,1048576x1048576x1048576,4\n"), HasSubstr("not a shape"));
  EXPECT_THAT(why("a,1048576x1048576,1099511627776\nb,1,1\n"),
              HasSubstr("2^40"));
  EXPECT_THAT(why("a,2x2,4,1\n"), HasSubstr("not name,shape,elements"));
  for (const std::string time : {"", "0", "-1", "x", "nan", "inf", "1e999"}) {
    EXPECT_THAT(ParseGradientProfile(
                    "p", "name,shape,elements,ready_ms\na,2x2,4," + time)
                    .status()
                    .message(),
                HasSubstr("line 2: '" + time + "' is not a time"));
  }
  EXPECT_THAT(ParseGradientProfile("p", "").status().message(),
              HasSubstr("expected name,shape,elements"));
}

}  // namespace
}  // namespace telegrad
