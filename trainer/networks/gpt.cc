#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "trainer/networks/model_builder.h"

namespace telegrad {
namespace {

struct GptShape {
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t width = 128;
  int64_t context = 128;  // positions; of the data where it says so
};

absl::StatusOr<GptShape> ParseGpt(const std::string& options) {
  GptShape shape;
  if (options.empty()) return shape;
  struct Option {
    const char* name;
    int64_t GptShape::*field;
    int64_t most;
  };
  constexpr Option kOptions[] = {{"layers", &GptShape::layers, 256},
                                 {"heads", &GptShape::heads, 256},
                                 {"width", &GptShape::width, 65536},
                                 {"context", &GptShape::context, 65536}};
  for (const absl::string_view text : absl::StrSplit(options, ',')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(text, absl::MaxSplits('=', 1));
    bool is_known = false;
    for (const Option& option : kOptions) {
      int64_t value = 0;
      if (parts.first != option.name) continue;
      is_known = absl::SimpleAtoi(parts.second, &value) && value >= 1 &&
                 value <= option.most;
      shape.*option.field = value;
    }
    if (!is_known) {
      return absl::InvalidArgumentError(absl::StrCat(
          "network gpt: '", text,
          "': it takes layers=, heads=, width=, "
          "context=, separated by commas, each a number from 1 on"));
    }
  }
  if (shape.width % shape.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("network gpt: width=", shape.width,
                     " is no multiple of heads=", shape.heads));
  }
  return shape;
}

}  // namespace

absl::StatusOr<int> GptContext(const std::string& options) {
  ASSIGN_OR_RETURN(const GptShape shape, ParseGpt(options));
  return static_cast<int>(shape.context);
}

// Radford et al., 2019 (GPT-2), section 2.3: normalisation before each part and
// behind the last; without dropout; the classes have weights of their own.
absl::StatusOr<Model> MakeGpt(const ModelRequest& request) {
  ASSIGN_OR_RETURN(const GptShape shape, ParseGpt(request.options));
  if (request.spec.context < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        request.spec.name, " reads text, not images; --data text has some"));
  }
  ModelBuilder builder(request.spec);
  const Fill narrow =
      Normal(0.02f / std::sqrt(2.0f * static_cast<float>(shape.layers)));
  int x = builder.Embedding(ModelBuilder::kInput, "token",
                            request.spec.num_classes, shape.width);
  x = builder.Positions(x, "position");
  for (int64_t i = 0; i < shape.layers; ++i) {
    const std::string layer = absl::StrCat("layer", i, ".");
    int y = builder.LayerNorm(x, layer + "norm1");
    y = builder.Dense(y, layer + "qkv", 3 * shape.width, Normal(0.02f));
    y = builder.Attention(y, shape.heads);
    x = builder.Sum(x, builder.Dense(y, layer + "out", shape.width, narrow));
    y = builder.LayerNorm(x, layer + "norm2");
    y = builder.Dense(y, layer + "fc1", 4 * shape.width, Normal(0.02f));
    y = builder.Dense(builder.Gelu(y), layer + "fc2", shape.width, narrow);
    x = builder.Sum(x, y);
  }
  x = builder.LayerNorm(x, "norm");
  return builder.Build(
      builder.Dense(x, "classes", request.spec.num_classes, Normal(0.02f)));
}

}  // namespace telegrad
