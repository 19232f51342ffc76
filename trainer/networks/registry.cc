#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "trainer/networks/model.h"
#include "trainer/networks/network.h"

namespace telegrad {
namespace {

struct NetworkLine {
  const char* name;
  const char* variant;  // what `make` gets; null: the text behind the colon
  absl::StatusOr<Model> (*make)(const ModelRequest&);
  int channels;  // its paper's images'; 0: it reads text
  int side;
  int classes;
  const char* description;
  bool has_options = false;  // behind the variant, with a colon
};

constexpr NetworkLine kNetworks[] = {
    {"linear", "", MakeLinear, 1, 28, 10, "softmax regression, one layer"},
    {"mlp", nullptr, MakeMlp, 1, 28, 10,
     "ReLU layers of 128 and 64 units; mlp:4096,4096: of these"},
    {"lenet", "", MakeLeNet, 1, 28, 10,
     "two convolutions, two dense layers, tanh"},
    {"alexnet", "", MakeAlexNet, 3, 224, 1000,
     "five convolutions, three dense layers, dropout"},
    {"vgg11", "11", MakeVgg, 3, 224, 1000,
     "11 layers; 32 x 32: batch norm; vgg11:maps=32: half as wide", true},
    {"vgg16", "16", MakeVgg, 3, 224, 1000,
     "16 layers; 32 x 32: batch norm; vgg16:maps=32: half as wide", true},
    {"inception-v3", nullptr, MakeInception, 3, 299, 1000,
     "94 convolutions; inception-v3:aux: with the second head"},
    {"resnet18", "18", MakeResNet, 3, 224, 1000, "residual blocks"},
    {"resnet34", "34", MakeResNet, 3, 224, 1000, "residual blocks"},
    {"resnet50", "50", MakeResNet, 3, 224, 1000, "residual bottlenecks"},
    {"resnet101", "101", MakeResNet, 3, 224, 1000, "residual bottlenecks"},
    {"resnet152", "152", MakeResNet, 3, 224, 1000, "residual bottlenecks"},
    {"resnet20", "20", MakeResNet, 3, 32, 10,
     "narrow, for 32 x 32; resnet20:maps=8: half as wide", true},
    {"resnet56", "56", MakeResNet, 3, 32, 10,
     "narrow, for 32 x 32; resnet56:maps=8: half as wide", true},
    {"gpt", nullptr, MakeGpt, 0, 0, 256,
     "reads bytes; gpt:layers=4,heads=4,width=128,context=128"},
};

constexpr int kMostChannels = 64;
constexpr int kMostSide = 4096;
constexpr int kMostContext = 65536;
constexpr int kMostClasses = 65536;
constexpr int64_t kMostElems = int64_t{1} << 33;  // elements of the parameters

bool Fits(int value, int least, int most) {
  return value >= least && value <= most;
}

absl::Status CheckInput(const NetworkSpec& spec) {
  const bool fits = spec.context > 0 ? Fits(spec.context, 1, kMostContext)
                                     : Fits(spec.channels, 1, kMostChannels) &&
                                           Fits(spec.rows, 1, kMostSide) &&
                                           Fits(spec.cols, 1, kMostSide);
  if (fits && Fits(spec.num_classes, 2, kMostClasses)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "network ", spec.name, ": input of ", spec.channels, " x ", spec.rows,
      " x ", spec.cols, " in ", spec.num_classes, " classes does not fit"));
}

// Splits "mlp:4096,4096"; NotFound lists the names.
absl::StatusOr<const NetworkLine*> FindLine(absl::string_view text,
                                            std::string* options) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  std::vector<std::string> names;
  for (const NetworkLine& line : kNetworks) {
    names.push_back(line.name);
    if (parts.first != line.name) continue;
    const bool has_some = absl::StrContains(text, ':');
    if (line.variant == nullptr) {
      *options = std::string(parts.second);
      return &line;
    }
    if (has_some && !line.has_options) {
      return absl::InvalidArgumentError(
          absl::StrCat("network ", text, ": ", line.name, " has no options"));
    }
    *options = absl::StrCat(line.variant, has_some ? ":" : "", parts.second);
    return &line;
  }
  return absl::NotFoundError(absl::StrCat("no network '", text, "'; there are ",
                                          absl::StrJoin(names, ", ")));
}

std::vector<Parameter> WithoutMemory(const std::vector<ModelTensor>& tensors) {
  std::vector<Parameter> result;
  for (const ModelTensor& each : tensors) {
    size_t count = 1;
    for (const int64_t extent : each.shape)
      count *= static_cast<size_t>(extent);
    result.push_back({.name = each.name,
                      .shape = each.shape,
                      .num_elements = count,
                      .is_hidden = each.is_hidden});
  }
  return result;
}

}  // namespace

absl::StatusOr<Model> MakeModel(const NetworkSpec& spec) {
  ModelRequest request{.spec = spec, .options = ""};
  ASSIGN_OR_RETURN(const NetworkLine* const line,
                   FindLine(spec.name, &request.options));
  RETURN_IF_ERROR(CheckInput(spec));
  if (line->channels > 0 && spec.context > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("network ", spec.name, " reads images, not text"));
  }
  ASSIGN_OR_RETURN(Model model, line->make(request));
  if (model.num_elems() > kMostElems) {
    return absl::InvalidArgumentError(
        absl::StrCat("network ", spec.name, ": ", model.num_elems(),
                     " parameters, at most ", kMostElems));
  }
  return model;
}

absl::StatusOr<NetworkSpec> DefaultSpec(absl::string_view name) {
  std::string options;
  ASSIGN_OR_RETURN(const NetworkLine* const line, FindLine(name, &options));
  NetworkSpec spec{.name = std::string(name),
                   .channels = line->channels,
                   .rows = line->side,
                   .cols = line->side,
                   .num_classes = line->classes};
  if (line->channels == 0) {
    ASSIGN_OR_RETURN(spec.context, GptContext(options));
  }
  return spec;
}

absl::StatusOr<NetworkShape> ShapeOf(const NetworkSpec& spec) {
  ASSIGN_OR_RETURN(const Model model, MakeModel(spec));
  return NetworkShape{.parameters = WithoutMemory(model.parameters),
                      .buffers = WithoutMemory(model.buffers),
                      .least_batch = model.least_batch()};
}

absl::StatusOr<std::string> NetworkOfDepth(absl::string_view family,
                                           int num_layers) {
  std::vector<int> depths;
  for (const NetworkLine& line : kNetworks) {
    int depth = 0;
    absl::string_view rest = line.name;
    if (!absl::ConsumePrefix(&rest, family) || !absl::SimpleAtoi(rest, &depth))
      continue;
    if (depth == num_layers) return line.name;
    depths.push_back(depth);
  }
  if (num_layers == 0 && (family != "resnet" && family != "vgg")) {
    return std::string(family);
  }
  if (num_layers == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--network ", family, " is a family: give --num-layers ",
                     absl::StrJoin(depths, ", ")));
  }
  return absl::InvalidArgumentError(
      depths.empty()
          ? absl::StrCat("--num-layers is for --network resnet and vgg, not ",
                         family)
          : absl::StrCat("--num-layers ", num_layers, ": ", family, " has ",
                         absl::StrJoin(depths, ", ")));
}

std::string DescribeNetworks() {
  std::string text;
  for (const NetworkLine& line : kNetworks) {
    absl::StrAppendFormat(&text, "  %-12s %s\n", line.name, line.description);
  }
  return text;
}

}  // namespace telegrad
