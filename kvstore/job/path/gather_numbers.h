#pragma once

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kvstore/job/path/worker_group.h"
#include "topology/calibration.h"

namespace telegrad {

// A number of which the slowest worker's counts: the largest time, the smallest
// speed.
struct SlowestNumber {
  double* value = nullptr;
  bool is_time = true;
};

// All workers meet; each number becomes the slowest worker's, for all alike and
// rounded to nine digits. They must be finite and not negative. Errors are the
// group's, or InvalidArgument for what a worker sent, with nothing changed.
absl::Status GatherSlowest(WorkerGroup& group, absl::string_view name,
                           std::span<const SlowestNumber> numbers);

inline constexpr Figure CodecFigures::*kCodecSpeeds[] = {
    &CodecFigures::encode, &CodecFigures::decode, &CodecFigures::decode_add,
    &CodecFigures::sum, &CodecFigures::reply_encode};

// A codec's, for GatherSlowest.
void AppendNumbers(CodecFigures& codec, std::vector<SlowestNumber>* numbers);

}  // namespace telegrad
