#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "trainer/network.h"
#include "trainer/networks/model.h"
#include "trainer/networks/torch_network.h"

namespace telegrad {
namespace {

struct NetworkLine {
  const char* name;
  const char* description;
  absl::StatusOr<Model> (*make)(const NetworkSpec&);
};

constexpr NetworkLine kNetworks[] = {
    {"linear", "softmax regression, one layer", MakeLinear},
    {"mlp", "128 and 64 ReLU units, then softmax", MakeMlp},
    {"lenet", "two convolutions, two dense layers, tanh", MakeLeNet},
};

constexpr int kMostChannels = 64;
constexpr int kMostSide = 4096;
constexpr int kMostClasses = 65536;

absl::Status CheckInput(const NetworkSpec& spec) {
  if (spec.channels < 1 || spec.channels > kMostChannels || spec.rows < 1 ||
      spec.rows > kMostSide || spec.cols < 1 || spec.cols > kMostSide ||
      spec.num_classes < 2 || spec.num_classes > kMostClasses) {
    return absl::InvalidArgumentError(absl::StrCat(
        "network ", spec.name, ": input of ", spec.channels, " x ", spec.rows,
        " x ", spec.cols, " in ", spec.num_classes, " classes does not fit"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> MakeNetwork(const NetworkSpec& spec) {
  std::vector<std::string> names;
  for (const NetworkLine& line : kNetworks) {
    names.push_back(line.name);
    if (spec.name != line.name) continue;
    RETURN_IF_ERROR(CheckInput(spec));
    ASSIGN_OR_RETURN(Model model, line.make(spec));
    return MakeTorchNetwork(spec, std::move(model));
  }
  return absl::NotFoundError(absl::StrCat(
      "no network '", spec.name, "'; there are ", absl::StrJoin(names, ", ")));
}

std::string DescribeNetworks() {
  std::string text;
  for (const NetworkLine& line : kNetworks) {
    absl::StrAppendFormat(&text, "  %-8s %s\n", line.name, line.description);
  }
  return text;
}

}  // namespace telegrad
