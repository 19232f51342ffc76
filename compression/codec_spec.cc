#include "compression/codec_spec.h"

#include <cmath>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

std::string DescribeOptions(const CodecTraits& traits) {
  std::vector<std::string> lines;
  if (traits.needs_threshold) lines.push_back("a threshold");
  for (const CodecOption& option : traits.options) {
    lines.push_back(
        absl::StrCat(option.name, "=", option.low, " to ", option.high));
  }
  return lines.empty() ? "nothing" : absl::StrJoin(lines, ", ");
}

absl::Status SetOption(const CodecTraits& traits, absl::string_view name,
                       absl::string_view text, CodecOptions& options) {
  for (const CodecOption& option : traits.options) {
    if (option.name != name) continue;
    double value = 0;
    if (!absl::SimpleAtod(text, &value) ||
        !(value >= option.low && value <= option.high) ||
        (option.is_integer && value != std::floor(value))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "codec ", traits.name, ": ", name, "='", text, "' is not ",
          option.is_integer ? "an integer" : "a number", " from ", option.low,
          " to ", option.high));
    }
    options.*option.field = value;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("codec ", traits.name, " has no '", name, "'; it takes ",
                   DescribeOptions(traits)));
}

}  // namespace

absl::StatusOr<CodecSpec> ParseCodecSpec(absl::string_view text) {
  // An empty view may split into no item at all.
  if (text.empty()) return FindCodec("").status();
  const std::vector<absl::string_view> items = absl::StrSplit(text, ':');
  CodecSpec spec;
  ASSIGN_OR_RETURN(spec.codec, FindCodec(items[0]));
  const CodecTraits& traits = spec.codec->traits();
  spec.options = StandardOptions(traits);
  std::string threshold;
  for (size_t i = 1; i < items.size(); ++i) {
    const size_t equals = items[i].find('=');
    if (equals != absl::string_view::npos) {
      RETURN_IF_ERROR(SetOption(traits, items[i].substr(0, equals),
                                items[i].substr(equals + 1), spec.options));
    } else if (traits.needs_threshold) {
      absl::StrAppend(&threshold, threshold.empty() ? "" : ":", items[i]);
    } else if (i == 1 && !traits.options.empty()) {
      RETURN_IF_ERROR(
          SetOption(traits, traits.options[0].name, items[i], spec.options));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("codec ", traits.name, " cannot take '", items[i],
                       "'; it takes ", DescribeOptions(traits)));
    }
  }
  if (!threshold.empty()) {
    ASSIGN_OR_RETURN(spec.threshold, ParseThreshold(threshold));
  }
  // What no range says: a block of 100.
  const absl::Status made =
      spec.codec->PrepareCold(/*num_elems=*/64, Device{}, spec.options)
          .status();
  if (absl::IsInvalidArgument(made)) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec ", traits.name, ": ", made.message()));
  }
  return spec;
}

}  // namespace telegrad
