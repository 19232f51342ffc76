#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/testing/status_matchers.h"
#include "trainer/networks/network.h"

namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;

NetworkShape Shape(const NetworkSpec& spec) {
  auto shape = ShapeOf(spec);
  EXPECT_THAT(shape, IsOk());
  return shape.ok() ? *std::move(shape) : NetworkShape();
}

NetworkSpec Default(const std::string& name, int num_classes) {
  auto spec = DefaultSpec(name);
  EXPECT_THAT(spec, IsOk());
  if (!spec.ok()) return {};
  spec->num_classes = num_classes;
  return *spec;
}

size_t Count(const std::vector<Parameter>& tensors) {
  size_t total = 0;
  for (const Parameter& each : tensors) total += each.num_elements;
  return total;
}

// As tf_cnn_benchmarks writes shapes: rows x cols x in x out, and in x out.
std::string TensorFlowShape(const std::vector<int64_t>& shape) {
  std::vector<int64_t> result = shape;
  if (shape.size() == 4) result = {shape[2], shape[3], shape[1], shape[0]};
  if (shape.size() == 2) result = {shape[1], shape[0]};
  return absl::StrJoin(result, "x");
}

std::vector<std::string> ShapesOfProfile(const std::string& file) {
  std::ifstream csv(absl::StrCat(TELEGRAD_PROFILES, "/", file, ".csv"));
  std::vector<std::string> shapes;
  std::string line;
  std::getline(csv, line);
  while (std::getline(csv, line)) {
    shapes.push_back(std::vector<std::string>(absl::StrSplit(line, ','))[1]);
  }
  return shapes;
}

struct Profile {
  const char* network;
  const char* file;
};

class ModelsLikeProfiles : public ::testing::TestWithParam<Profile> {};

TEST_P(ModelsLikeProfiles, HaveTheShapesOfTfCnnBenchmarksLayerByLayer) {
  const NetworkShape shape = Shape(Default(GetParam().network, 1001));
  std::vector<std::string> shapes;
  for (const Parameter& each : shape.parameters) {
    shapes.push_back(TensorFlowShape(each.shape));
  }
  const std::vector<std::string> wanted = ShapesOfProfile(GetParam().file);
  ASSERT_FALSE(wanted.empty());
  EXPECT_EQ(shapes, wanted);
}

INSTANTIATE_TEST_SUITE_P(
    All, ModelsLikeProfiles,
    ::testing::Values(Profile{"alexnet", "alexnet"}, Profile{"vgg16", "vgg16"},
                      Profile{"inception-v3", "inceptionv3"},
                      Profile{"resnet50", "resnet50"},
                      Profile{"resnet152", "resnet152"}),
    [](const auto& test) { return std::string(test.param.file); });

struct Counted {
  const char* network;
  int side;  // 0: the paper's
  int classes;
  size_t count;
  const char* source;
};

class ModelsOfPapers : public ::testing::TestWithParam<Counted> {};

TEST_P(ModelsOfPapers, HaveTheirNumberOfParameters) {
  NetworkSpec spec = Default(GetParam().network, GetParam().classes);
  if (GetParam().side > 0) spec.rows = spec.cols = GetParam().side;
  EXPECT_EQ(Count(Shape(spec).parameters), GetParam().count)
      << GetParam().source;
}

// Of 1,000 classes: torchvision's models of the same names. ResNet-20 and 56
// with identity shortcuts have 269,722 and 853,018 (0.27 and 0.85 million, He
// et al., table 6); the two projections are 16*32 + 2*32 + 32*64 + 2*64 more.
// With m maps ResNet-20 has 1,054 m^2 + 165 m + 10: of 8 maps 68,786.
// VGG11 for 32 x 32: 9,217,728 in convolutions, 2 * 2,752 in normalisation and
// 5,130 in the last layer; of half the maps 2,304,864, 2 * 1,376 and 2,570.
INSTANTIATE_TEST_SUITE_P(
    All, ModelsOfPapers,
    ::testing::Values(
        Counted{"vgg11", 0, 1000, 132863336, "torchvision"},
        Counted{"vgg16", 0, 1000, 138357544, "torchvision"},
        Counted{"resnet18", 0, 1000, 11689512, "torchvision"},
        Counted{"resnet34", 0, 1000, 21797672, "torchvision"},
        Counted{"resnet50", 0, 1000, 25557032, "torchvision"},
        Counted{"resnet101", 0, 1000, 44549160, "torchvision"},
        Counted{"resnet152", 0, 1000, 60192808, "torchvision"},
        Counted{"resnet18", 32, 10, 11173962, "kuangliu/pytorch-cifar"},
        Counted{"vgg11", 32, 10, 9228362, "by hand"},
        Counted{"vgg11:maps=32", 32, 10, 2310186, "by hand"},
        Counted{"resnet20", 0, 10, 272474, "by hand"},
        Counted{"resnet20:maps=8", 0, 10, 68786, "by hand"},
        Counted{"resnet56", 0, 10, 855770, "by hand"},
        // 28*28*4096 + 4096 + 4096*4096 + 4096 + 4096*10 + 10.
        Counted{"mlp:4096,4096", 0, 10, 20037642, "by hand"},
        // 256*128 + 128*128, four layers of 198,272, 2*128, 129*256.
        Counted{"gpt", 0, 256, 875520, "by hand"},
        // 23,819,401 and 768*128 + 128 + 5*5*128*768 + 768 + 769*1001.
        Counted{"inception-v3:aux", 0, 1001, 27145970, "by hand"}),
    [](const auto& test) {
      std::string name = test.param.network;
      for (char& c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
      }
      return absl::StrCat(name, "_", test.param.side);
    });

using Shapes = std::vector<std::vector<int64_t>>;

Shapes ShapesOfModel(const std::string& name, int side, int classes) {
  NetworkSpec spec = Default(name, classes);
  if (side > 0) spec.rows = spec.cols = side;
  Shapes shapes;
  for (const Parameter& each : Shape(spec).parameters) {
    shapes.push_back(each.shape);
  }
  return shapes;
}

// He et al., CVPR 2016, table 1 and section 4.2, with a projection where the
// size changes, which comes first.
struct ResNetOfPaper {
  const char* network;
  int side;  // 0: the paper's
  std::vector<int> blocks;
  bool has_bottleneck;
  int64_t maps;  // of the first stage
  int64_t first_window;
};

Shapes ShapesOfPaper(const ResNetOfPaper& paper, int64_t classes) {
  Shapes shapes;
  const auto add = [&](int64_t out, int64_t in, int64_t window) {
    shapes.insert(shapes.end(), {{out, in, window, window}, {out}, {out}});
  };
  add(paper.maps, 3, paper.first_window);
  int64_t in = paper.maps;
  for (size_t stage = 0; stage < paper.blocks.size(); ++stage) {
    const int64_t maps = paper.maps << stage;
    const int64_t out = paper.has_bottleneck ? 4 * maps : maps;
    for (int block = 0; block < paper.blocks[stage]; ++block) {
      if (in != out) add(out, in, 1);
      if (paper.has_bottleneck) {
        add(maps, in, 1);
        add(maps, maps, 3);
        add(out, maps, 1);
      } else {
        add(maps, in, 3);
        add(maps, maps, 3);
      }
      in = out;
    }
  }
  shapes.insert(shapes.end(), {{classes, in}, {classes}});
  return shapes;
}

TEST(Models, OfResidualBlocksHaveThePapersShapesLayerByLayer) {
  for (const ResNetOfPaper& paper :
       std::vector<ResNetOfPaper>{{"resnet18", 0, {2, 2, 2, 2}, false, 64, 7},
                                  {"resnet18", 32, {2, 2, 2, 2}, false, 64, 3},
                                  {"resnet34", 0, {3, 4, 6, 3}, false, 64, 7},
                                  {"resnet101", 0, {3, 4, 23, 3}, true, 64, 7},
                                  {"resnet20", 0, {3, 3, 3}, false, 16, 3},
                                  {"resnet56", 0, {9, 9, 9}, false, 16, 3}}) {
    EXPECT_EQ(ShapesOfModel(paper.network, paper.side, 100),
              ShapesOfPaper(paper, 100))
        << paper.network << " " << paper.side;
  }
}

// Simonyan and Zisserman, ICLR 2015, table 1, A; GPT-2's layers.
TEST(Models, Vgg11AndGptHaveThePapersShapesLayerByLayer) {
  for (const int side : {0, 32}) {
    Shapes shapes;
    int64_t in = 3;
    for (const int64_t out : {64, 128, 256, 256, 512, 512, 512, 512}) {
      shapes.insert(shapes.end(), {{out, in, 3, 3}, {out}});
      if (side == 32) shapes.push_back({out});  // of normalisation, no bias
      in = out;
    }
    if (side == 0) {
      shapes.insert(shapes.end(),
                    {{4096, 512 * 7 * 7}, {4096}, {4096, 4096}, {4096}});
      in = 4096;
    }
    shapes.insert(shapes.end(), {{100, in}, {100}});
    EXPECT_EQ(ShapesOfModel("vgg11", side, 100), shapes) << side;
  }
  Shapes gpt = {{256, 8}, {16, 8}};
  for (int layer = 0; layer < 3; ++layer) {
    const Shapes own = {{8}, {8}, {24, 8}, {24}, {8, 8},  {8},
                        {8}, {8}, {32, 8}, {32}, {8, 32}, {8}};
    gpt.insert(gpt.end(), own.begin(), own.end());
  }
  gpt.insert(gpt.end(), {{8}, {8}, {256, 8}, {256}});
  EXPECT_EQ(ShapesOfModel("gpt:layers=3,heads=2,width=8,context=16", 0, 256),
            gpt);
}

TEST(Models, NormalisationKeepsAMeanAndAVarianceOfEachChannel) {
  const NetworkShape shape = Shape(Default("resnet18", 1000));
  ASSERT_EQ(shape.buffers.size(), 40u);  // of 20 convolutions
  EXPECT_EQ(shape.buffers[0].name, "bn0.mean");
  EXPECT_EQ(shape.buffers[1].name, "bn0.variance");
  EXPECT_EQ(Count(shape.buffers), 9600u);  // torchvision, without its counters
  EXPECT_TRUE(Shape(Default("vgg16", 1000)).buffers.empty());
}

TEST(Models, SayHowManySamplesNormalisationTakes) {
  NetworkSpec spec = Default("resnet18", 10);
  EXPECT_EQ(Shape(spec).least_batch, 1);
  spec.rows = spec.cols = 16;  // 2 x 2 in the end
  EXPECT_EQ(Shape(spec).least_batch, 1);
  spec.rows = spec.cols = 8;
  EXPECT_EQ(Shape(spec).least_batch, 2);
}

TEST(Models, TensorsOfOneDimensionAreTheOnesThatTheRuleNames) {
  std::string pattern = kOneDimension;
  ASSERT_TRUE(pattern.ends_with("=none"));
  const std::regex rule(pattern.substr(0, pattern.size() - 5));
  for (const char* name : {"lenet", "vgg16", "inception-v3:aux", "resnet50",
                           "resnet20", "gpt", "mlp:8,8"}) {
    for (const Parameter& each : Shape(Default(name, 256)).parameters) {
      EXPECT_EQ(std::regex_search(each.name, rule), each.shape.size() == 1)
          << name << " " << each.name;
    }
  }
}

TEST(Models, AreChosenByTheNumberOfLayers) {
  EXPECT_THAT(NetworkOfDepth("resnet", 50), IsOk());
  EXPECT_EQ(*NetworkOfDepth("resnet", 50), "resnet50");
  EXPECT_EQ(*NetworkOfDepth("vgg", 11), "vgg11");
  EXPECT_EQ(*NetworkOfDepth("lenet", 0), "lenet");
  EXPECT_THAT(NetworkOfDepth("resnet", 19),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "resnet has 18, 34, 50, 101, 152, 20, 56"));
  EXPECT_THAT(NetworkOfDepth("lenet", 5),
              StatusIs(absl::StatusCode::kInvalidArgument, "not lenet"));
}

// What Muon steps: neither vectors, embeddings nor what gives classes.
TEST(Models, SayWhatIsHidden) {
  const auto hidden = [](const NetworkSpec& spec) {
    std::vector<std::string> names;
    for (const Parameter& each : Shape(spec).parameters) {
      if (each.is_hidden) names.push_back(each.name);
    }
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(hidden({.name = "linear"}), Names{});
  EXPECT_EQ(hidden({.name = "lenet"}),
            (Names{"conv1.weight", "conv2.weight", "fc1.weight"}));
  EXPECT_EQ(hidden({.name = "gpt:layers=1", .context = 8}),
            (Names{"layer0.qkv.weight", "layer0.out.weight",
                   "layer0.fc1.weight", "layer0.fc2.weight"}));
  EXPECT_EQ(hidden(Default("resnet20", 10)).size(), 21u);
  EXPECT_EQ(hidden(Default("inception-v3:aux", 10)).size(), 96u);
}

TEST(Models, RefuseWhatDoesNotFit) {
  const auto refuses = [](NetworkSpec spec, const char* why) {
    EXPECT_THAT(ShapeOf(spec),
                StatusIs(absl::StatusCode::kInvalidArgument, why))
        << spec.name;
  };
  refuses({.name = "lenet", .rows = 15}, "15 x 28");
  refuses({.name = "lenet", .rows = -1}, "-1");
  refuses({.name = "alexnet", .rows = 32, .cols = 32}, "32 x 32");
  refuses({.name = "inception-v3", .rows = 64, .cols = 64}, "64 x 64");
  refuses({.name = "inception-v3:more"}, ":aux");
  refuses({.name = "mlp:4096,"}, "'' is no layer");
  refuses({.name = "mlp:70000"}, "70000");
  refuses({.name = "lenet:5"}, "no options");
  refuses({.name = "vgg11:"}, "''");
  refuses({.name = "vgg11:maps=0"}, "maps=0");
  refuses({.name = "vgg16:width=32"}, "maps=");
  refuses({.name = "resnet20:maps=2000"}, "maps=2000");
  refuses({.name = "gpt"}, "--data text");
  refuses({.name = "resnet18", .context = 64}, "not text");
  refuses({.name = "gpt:heads=3", .context = 64}, "no multiple");
  refuses({.name = "gpt:depth=3", .context = 64}, "depth=3");
  refuses({.name = "mlp:65536,65536,65536,65536", .rows = 28}, "parameters");
}

TEST(Models, AnUnknownNameListsThoseThatThereAre) {
  EXPECT_THAT(
      ShapeOf({.name = "vgg17"}),
      StatusIs(absl::StatusCode::kNotFound, "linear, mlp, lenet, alexnet"));
}

}  // namespace
}  // namespace telegrad
