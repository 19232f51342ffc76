#include "kvstore/tuning/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/codec_spec.h"
#include "kvstore/engine/codec/codec_policy.h"
#include "kvstore/engine/codec/reply_format.h"
#include "kvstore/tuning/codec_bench.h"
#include "kvstore/tuning/timing.h"

namespace telegrad {
namespace {

constexpr int kMostWorkers = 1 << 15;
constexpr size_t kLeastElems = size_t{1} << 12;
// Elements of arrays that no cache holds, whatever a machine says of its own.
constexpr size_t kLeastMostElems = size_t{1} << 21;
constexpr size_t kMostMostElems = size_t{1} << 24;

Reply ReplyOf(ReplyFormat format) {
  switch (format) {
    case ReplyFormat::kDense:
      return Reply::kDense;
    case ReplyFormat::kSum:
      return Reply::kSum;
    case ReplyFormat::kReencode:
      return Reply::kReencode;
  }
  return Reply::kDense;
}

// The bits that a reply takes, by number of workers.
std::vector<BitsForWorkers> ReplyBits(const PreparedCodec& codec,
                                      ReplyFormat format) {
  std::vector<BitsForWorkers> all;
  // Sums of codes grow by a bit after 2^k - 1 workers.
  for (int workers = 1; workers < kMostWorkers; workers = 2 * workers + 1) {
    const double bits =
        8.0 * static_cast<double>(ReplyBytes(codec, format, workers)) /
        static_cast<double>(codec.num_elems());
    if (!all.empty() && all.back().bits == bits) {
      all.back().max_workers = workers;
    } else {
      all.push_back({workers, bits});
    }
  }
  return all;
}

// Bits of a reply of codes, by number of workers: as often those of a push as
// the largest push is in the largest reply. A threshold's quantum is that of
// all workers together: as much as comes from one goes out, where their signs
// agree, and less where they do not.
std::vector<BitsForWorkers> CodeBits(const PreparedCodec& codec,
                                     double push_bits) {
  const auto bytes_of = [&codec](int workers) {
    return static_cast<double>(
        ReplyBytes(codec, ReplyFormat::kReencode, workers));
  };
  const double first = bytes_of(1);
  const double second = bytes_of(2) - first;
  std::vector<BitsForWorkers> all;
  for (int workers = 1; workers < kMostWorkers; workers = 2 * workers + 1) {
    const double pushes =
        second > 0 ? 1 + (bytes_of(workers) - first) / second : 1;
    if (all.empty() || all.back().bits < pushes * push_bits) {
      all.push_back({workers, pushes * push_bits});
    } else {
      all.back().max_workers = workers;
    }
  }
  return all;
}

// Speeds of all that a codec does in this reply mode.
absl::Status MeasureSpeeds(CodecBench& bench, ReplyFormat format,
                           const CalibrationOptions& options, double elems,
                           CodecFigures& figures) {
  const bool sums = format == ReplyFormat::kSum;
  const bool reencodes = format == ReplyFormat::kReencode;
  std::vector<Work> works = {[&] { return bench.Encode(); },
                             [&] { return bench.DecodeAdd(); }};
  if (sums) works.push_back([&] { return bench.Sum(); });
  works.push_back(
      [&, sums] { return sums ? bench.DecodeSum() : bench.Decode(); });
  if (reencodes) works.push_back([&] { return bench.Reencode(); });
  if (reencodes && figures.is_summable) {
    works.push_back([&] { return bench.ReencodeTwice(); });
  }
  ASSIGN_OR_RETURN(const std::vector<Timing> timings,
                   TimeInTurns(works, options.repeats, options.budget));
  auto next = timings.begin();
  const double workers = options.num_workers;
  figures.encode = Rate(elems, *next++);
  figures.decode_add = Rate(elems, *next++);
  if (sums) figures.sum = Rate(workers * elems, *next++);
  figures.decode = Rate(elems, *next++);
  if (!reencodes) return absl::OkStatus();
  // Without the adding up, which `decode_add` counts, or `sum` where one loop
  // adds codes and encodes: then what twice as many take more.
  Timing reencode = *next++;
  double merge_s = workers * elems / figures.decode_add.value;
  const double least_s = 0.1 * reencode.seconds;
  if (figures.is_summable) {
    Timing sum = *next++;
    sum.seconds = std::max(least_s, sum.seconds - reencode.seconds);
    figures.sum = Rate(workers * elems, sum);
    merge_s = sum.seconds;
  }
  reencode.seconds = std::max(least_s, reencode.seconds - merge_s);
  figures.reply_encode = Rate(elems, reencode);
  return absl::OkStatus();
}

absl::StatusOr<CodecFigures> Measure(absl::string_view text,
                                     const CodecSpec& spec, ReplyFormat format,
                                     const CalibrationOptions& options) {
  const CodecTraits& traits = spec.codec->traits();
  const auto workers = static_cast<uint32_t>(options.num_workers);
  const size_t chunk_elems =
      std::max<size_t>(1, std::min(options.num_elems, options.chunk_elems));
  const size_t num_elems = options.num_elems / chunk_elems * chunk_elems;
  ASSIGN_OR_RETURN(const std::unique_ptr<CodecBench> bench,
                   CodecBench::Make(*spec.codec, spec.options,
                                    {num_elems, chunk_elems, workers}));
  CodecFigures figures{.name = std::string(text),
                       .is_lossy = !traits.lossless,
                       .is_summable = traits.summable,
                       .reply = ReplyOf(format)};
  RETURN_IF_ERROR(MeasureSpeeds(*bench, format, options,
                                static_cast<double>(num_elems), figures));
  figures.push_bits = bench->payload_bits();
  if (format == ReplyFormat::kReencode && !traits.constant_width) {
    figures.reply_bits = CodeBits(bench->codec(), figures.push_bits);
  } else {
    figures.reply_bits = ReplyBits(bench->codec(), format);
  }

  ASSIGN_OR_RETURN(const std::unique_ptr<CodecBench> small,
                   CodecBench::Make(*spec.codec, spec.options,
                                    {kTinyElems, kTinyElems, workers}));
  ASSIGN_OR_RETURN(const Timing call, Time([&] { return small->Encode(); },
                                           options.repeats, options.budget));
  figures.call_s = Seconds(call, "encode of 256 elements");
  return figures;
}

// A file could have been edited.
bool IsOf(absl::string_view codec, const Calibration& calibration) {
  const CodecFigures* figures = calibration.FindCodec(codec);
  return figures != nullptr && figures->encode.value > 0 &&
         figures->decode.value > 0 && figures->decode_add.value > 0;
}

}  // namespace

size_t CalibrationElems(size_t num_elems) {
  // 0 or -1 where it is not known.
  const auto cache =
      static_cast<size_t>(std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), long{0}));
  const size_t most = std::bit_ceil(
      std::clamp(cache / sizeof(float), kLeastMostElems, kMostMostElems));
  return std::bit_ceil(std::clamp(num_elems, kLeastElems, most));
}

absl::StatusOr<CodecFigures> MeasureCodec(absl::string_view text,
                                          const CompressionConfig& compression,
                                          const CalibrationOptions& options) {
  ASSIGN_OR_RETURN(const JobCodec spec,
                   ParseJobCodec(text, compression.packing));
  const ReplyFormat format = FormatOf(spec.codec->traits(), compression, {});
  if (options.cache == nullptr) return Measure(text, spec, format, options);
  const std::string what = absl::StrCat(
      "codec ", text, " reply ", ToString(format), " workers ",
      options.num_workers, " elements ", options.num_elems, " chunks ",
      options.chunk_elems, spec.options.packing == 1 ? " radix" : "");
  const std::optional<Calibration> known = options.cache->Load(what);
  if (known.has_value() && IsOf(text, *known)) return *known->FindCodec(text);
  ASSIGN_OR_RETURN(CodecFigures figures, Measure(text, spec, format, options));
  Calibration calibration;
  calibration.codecs.push_back(figures);
  options.cache->Store(what, calibration);
  return figures;
}

}  // namespace telegrad
