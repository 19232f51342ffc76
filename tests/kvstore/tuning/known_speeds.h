#pragma once

#include <string>

#include "kvstore/tuning/calibrate.h"
#include "topology/calibration.h"

// Figures that do not depend on the machine that the tests run on.
namespace telegrad {

constexpr double kGigabit = 1e9 / 8;

// Elements/s of this thread's codecs, as MeasureCodec would find them.
inline thread_local double t_codec_speed = 1e9;

// Of which the sums of up to 3 workers take no more bits.
inline CodecFigures KnownCodec(const std::string& name, double bits,
                               double elems_per_s = 1e9) {
  const Figure speed = {
      .value = elems_per_s, .spread = 0.1, .confidence = Confidence::kMeasured};
  return {.name = name,
          .is_summable = true,
          .reply = Reply::kSum,
          .push_bits = bits,
          .reply_bits = {{3, bits}},
          .encode = speed,
          .decode = speed,
          .decode_add = speed,
          .sum = speed,
          .call_s = {.value = 1e-6, .confidence = Confidence::kMeasured}};
}

inline absl::StatusOr<CodecFigures> KnownSpeeds(
    absl::string_view text, const CompressionConfig& compression,
    const CalibrationOptions& options) {
  absl::StatusOr<CodecFigures> figures =
      MeasureCodec(text, compression,
                   {.num_elems = 4096,
                    .repeats = 2,
                    .budget = std::chrono::milliseconds(1),
                    .num_workers = options.num_workers});
  if (!figures.ok()) return figures;
  for (Figure* speed :
       {&figures->encode, &figures->decode, &figures->decode_add, &figures->sum,
        &figures->reply_encode}) {
    if (speed->value > 0) speed->value = t_codec_speed;
    speed->spread = 0.1;
  }
  figures->call_s.value = 1e-6;
  return figures;
}

inline LinkFigures Link(double bytes_per_s) {
  const auto figure = [](double value) {
    return Figure{.value = value, .confidence = Confidence::kMeasured};
  };
  return {.name = "link",
          .send = figure(bytes_per_s),
          .receive = figure(bytes_per_s),
          .latency_s = figure(1e-5)};
}

}  // namespace telegrad
