#include "kvstore/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "compression/codec_spec.h"
#include "kvstore/dist/codec_policy.h"
#include "kvstore/dist/reply_format.h"
#include "kvstore/dist/timing.h"

namespace telegrad {
namespace {

constexpr size_t kTinyElems = 256;
// Gradients of different steps are the same values from different places on.
constexpr size_t kPlaces = 256;
constexpr size_t kPlaceElems = 16;
// Payloads that a bench takes in turns, where they are lists of elements: no
// CPU has learned by heart what comes next, as it would of one.
constexpr size_t kNumLists = 4;
constexpr int kMostWorkers = 1 << 15;
constexpr size_t kLeastElems = size_t{1} << 12;
// Of arrays that no cache holds, whatever a machine says of its own.
constexpr size_t kLeastMostElems = size_t{1} << 21;
constexpr size_t kMostMostElems = size_t{1} << 24;

template <typename Draw>
Buffer Repeated(size_t num_elems, uint64_t seed, const Draw& draw) {
  Buffer array(4 * num_elems);
  Random random(seed, 0);
  std::array<float, 4093> pattern{};
  for (float& value : pattern) value = draw(random);
  for (size_t i = 0; i < num_elems; ++i) {
    array.as<float>()[i] = pattern[i % pattern.size()];
  }
  return array;
}

Buffer NormalGradient(size_t num_elems, uint64_t seed) {
  return Repeated(num_elems, seed, [](Random& r) { return r.NextNormal(); });
}

// What many steps of error feedback leave: a walk that starts again from zero
// where it reaches a threshold is spread like the sum of two uniform variables.
Buffer SettledResidual(size_t num_elems, uint64_t seed, float threshold) {
  return Repeated(num_elems, seed, [threshold](Random& r) {
    return threshold * (r.NextUniform() - r.NextUniform());
  });
}

Reply ReplyOf(ReplyFormat format) {
  switch (format) {
    case ReplyFormat::kDense:
      return Reply::kDense;
    case ReplyFormat::kSums:
      return Reply::kSum;
    case ReplyFormat::kCodes:
      return Reply::kReencode;
  }
  return Reply::kDense;
}

// One codec on arrays of one size, with all that its calls need.
class Bench {
 public:
  Bench(const CodecSpec& spec, const PreparedCodec& codec, uint32_t workers)
      : codec_(codec),
        workers_(workers),
        grad_(NormalGradient(codec.num_elems() + kPlaces * kPlaceElems, 1)),
        frame_(codec.max_encoded_bytes()),
        reply_(codec.max_encoded_bytes()),
        sum_(codec.sum_bytes(workers)),
        out_(4 * codec.num_elems()) {
    const CodecTraits& traits = spec.codec->traits();
    if (traits.needs_threshold) {
      params_.threshold = static_cast<float>(
          std::exp2(std::round(std::log2(traits.auto_threshold_per_rms))));
    }
    if (!traits.needs_residual) return;
    residual_ = SettledResidual(codec.num_elems(), 2, params_.threshold);
    state_.residual = residual_.view();
  }

  // Before all else but Encode.
  absl::Status MakePayloads() {
    const size_t count = codec_.traits().constant_width ? size_t{1} : kNumLists;
    while (sent_.size() < count) {
      RETURN_IF_ERROR(Encode());
      sent_.emplace_back(encoded_bytes_);
      std::memcpy(sent_.back().data(), frame_.data(), encoded_bytes_);
    }
    return absl::OkStatus();
  }
  // Before Reencode: what a server of many steps holds back of lists.
  absl::Status SettleReencode() {
    if (sent_.size() == 1 || params_.threshold == 0) return absl::OkStatus();
    RETURN_IF_ERROR(Reencode());
    const Buffer settled = SettledResidual(
        codec_.num_elems(), 3,
        params_.threshold * static_cast<float>(std::bit_ceil(workers_)));
    std::memcpy(reencode_.residual.data(), settled.data(), settled.size());
    return absl::OkStatus();
  }

  absl::Status Encode() {
    const size_t place = ++params_.step * 37 % kPlaces * kPlaceElems;
    const ConstBytes grad = {grad_.as<float>() + place, out_.size()};
    EncodeResult result;
    RETURN_IF_ERROR(
        codec_.Encode(grad, state_, params_, frame_.view(), &result, {}));
    encoded_bytes_ = result.encoded_bytes;
    return absl::OkStatus();
  }
  absl::Status Decode() {
    return codec_.Decode(NextPayload(), params_.threshold, out_.view(), {});
  }
  // A server has looked through each contribution when it arrived.
  absl::Status DecodeAdd() {
    const ConstBytes payload = NextPayload();
    RETURN_IF_ERROR(codec_.Validate(payload));
    return codec_.DecodeAdd(payload, params_.threshold, out_.view(), {});
  }
  absl::Status Sum() {
    ASSIGN_OR_RETURN(const std::vector<ConstBytes> payloads,
                     ValidPayloads(workers_));
    return codec_.SumCodes(payloads, sum_.view(), {});
  }
  absl::Status DecodeSum() {
    RETURN_IF_ERROR(codec_.ValidateSum(sum_.view(), workers_));
    return codec_.DecodeSum(sum_.view(), workers_, params_.threshold,
                            out_.view(), {});
  }
  absl::Status Reencode() { return Reencode(workers_, reencode_); }
  absl::Status ReencodeTwice() {  // as much
    return Reencode(2 * workers_, reencode_twice_);
  }
  double payload_bits() const {
    return 8.0 * static_cast<double>(encoded_bytes_) /
           static_cast<double>(codec_.num_elems());
  }

 private:
  ConstBytes NextPayload() { return sent_[next_sent_++ % sent_.size()].view(); }
  absl::StatusOr<std::vector<ConstBytes>> ValidPayloads(uint32_t count) {
    std::vector<ConstBytes> payloads(count);
    for (ConstBytes& payload : payloads) {
      payload = NextPayload();
      RETURN_IF_ERROR(codec_.Validate(payload));
    }
    return payloads;
  }
  absl::Status Reencode(uint32_t count, ReencodeState& state) {
    EncodeParams params = params_;
    params.source = kServerSource;
    ASSIGN_OR_RETURN(const std::vector<ConstBytes> payloads,
                     ValidPayloads(count));
    size_t reply_bytes = 0;
    return codec_.Reencode(payloads, params, 0, state, reply_.view(),
                           &reply_bytes, {});
  }

  const PreparedCodec& codec_;
  const uint32_t workers_;
  Buffer grad_;
  Buffer residual_;
  Buffer frame_;
  Buffer reply_;
  Buffer sum_;
  Buffer out_;
  size_t encoded_bytes_ = 0;
  std::vector<Buffer> sent_;
  size_t next_sent_ = 0;
  CodecState state_;
  ReencodeState reencode_;
  ReencodeState reencode_twice_;
  EncodeParams params_;
};

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

// Speeds of all that a codec does in this reply mode.
absl::Status MeasureSpeeds(Bench& bench, ReplyFormat format,
                           const CalibrationOptions& options, double elems,
                           CodecFigures& figures) {
  const bool sums = format == ReplyFormat::kSums;
  const bool reencodes = format == ReplyFormat::kCodes;
  RETURN_IF_ERROR(bench.MakePayloads());
  if (reencodes) RETURN_IF_ERROR(bench.SettleReencode());
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
  ASSIGN_OR_RETURN(
      const std::unique_ptr<PreparedCodec> codec,
      spec.codec->Prepare(options.num_elems, Device{}, spec.options));
  const auto elems = static_cast<double>(options.num_elems);
  Bench bench(spec, *codec, static_cast<uint32_t>(options.num_workers));
  CodecFigures figures{.name = std::string(text),
                       .is_lossy = !traits.lossless,
                       .is_summable = traits.summable,
                       .reply = ReplyOf(format)};
  RETURN_IF_ERROR(MeasureSpeeds(bench, format, options, elems, figures));
  figures.push_bits = bench.payload_bits();
  if (format == ReplyFormat::kCodes && !traits.constant_width) {
    // What it could be at most says little. A server's quantum is that of all
    // workers together: as much as comes from one goes out, where their signs
    // agree, and less where they do not.
    figures.reply_bits = {{kMostWorkers - 1, figures.push_bits}};
  } else {
    figures.reply_bits = ReplyBits(*codec, format);
  }

  ASSIGN_OR_RETURN(const std::unique_ptr<PreparedCodec> tiny,
                   spec.codec->Prepare(kTinyElems, Device{}, spec.options));
  Bench small(spec, *tiny, static_cast<uint32_t>(options.num_workers));
  ASSIGN_OR_RETURN(const Timing call, Time([&] { return small.Encode(); },
                                           options.repeats, options.budget));
  figures.call_s = Seconds(call, "encode of 256 elements");
  return figures;
}

const char* NameOf(ReplyFormat format) {
  switch (format) {
    case ReplyFormat::kDense:
      return "dense";
    case ReplyFormat::kSums:
      return "sum";
    case ReplyFormat::kCodes:
      return "reencode";
  }
  return "";
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
  const std::string what =
      absl::StrCat("codec ", text, " reply ", NameOf(format), " workers ",
                   options.num_workers, " elements ", options.num_elems,
                   spec.options.packing == 1 ? " radix" : "");
  const std::optional<Calibration> known = options.cache->Load(what);
  if (known.has_value() && IsOf(text, *known)) return *known->FindCodec(text);
  ASSIGN_OR_RETURN(CodecFigures figures, Measure(text, spec, format, options));
  Calibration calibration;
  calibration.codecs.push_back(figures);
  options.cache->Store(what, calibration);
  return figures;
}

}  // namespace telegrad
