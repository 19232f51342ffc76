#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compression/codec.h"
#include "compression/threshold.h"

namespace telegrad {

// A codec with its settings, as users write it: NAME[:ITEM]..., an item being
// option=value, or the bare value of the codec's first option, or, for a codec
// with a threshold, the threshold: "2bit:auto", "2bit:0.5:batch", "topk:0.01",
// "powersgd:rank=2", "dgc:0.001:warmup=1000".
struct CodecSpec {
  const Codec* codec = nullptr;
  CodecOptions options;
  std::optional<ThresholdSpec> threshold;  // where the text has one
};

// NotFound for an unknown codec, InvalidArgument for an unknown option or a
// value out of range; both list what there is.
absl::StatusOr<CodecSpec> ParseCodecSpec(absl::string_view text);

}  // namespace telegrad
