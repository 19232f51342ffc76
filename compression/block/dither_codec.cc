#include <algorithm>

#include "base/random.h"
#include "base/status_macros.h"
#include "compression/block/block_codecs.h"
#include "compression/block/scaled_codec.h"
#include "compression/device_kernels.h"

namespace telegrad {
namespace {

kernels::DrawKey KeyOf(const EncodeParams& params) {
  const std::array<uint32_t, 4> mixed = Philox(params.stream, params.source);
  return {.key = uint64_t{mixed[1]} << 32 | mixed[0], .step = params.step};
}

class PreparedDither : public ScaledCodec {
 public:
  // `clip` > 0: in root mean squares.
  PreparedDither(const CodecTraits& codec_traits, size_t num_elems,
                 const kernels::KernelTable& table,
                 const kernels::BlockFormat& format, double clip)
      : ScaledCodec(codec_traits, num_elems, table, format), clip_(clip) {}

  absl::Status Encode(ConstBytes grad, CodecState& state,
                      const EncodeParams& params, Bytes out,
                      EncodeResult* result, Stream stream) const override {
    RETURN_IF_ERROR(CheckEncode(grad, state, out));
    BeginResult({.encoded_bytes = max_encoded_bytes()}, kernels(), result,
                stream);
    ASSIGN_OR_RETURN(const kernels::DitherLimit limit,
                     LimitFor(grad, state, stream));
    kernels().block.dither(AsFloats(grad), num_elems(), format(), limit,
                           KeyOf(params), params.nonfinite, AsCodes(out),
                           &result->stats, stream);
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<kernels::DitherLimit> LimitFor(ConstBytes grad,
                                                CodecState& state,
                                                Stream stream) const {
    if (clip_ == 0) return kernels::DitherLimit{};
    RETURN_IF_ERROR(MakeRoom(sizeof(double), kernels(), state.scratch, stream));
    auto* const mean_square = state.scratch.as<double>();
    kernels().sampled_power(AsFloats(grad), nullptr, num_elems(), mean_square,
                            stream);
    return kernels::DitherLimit{.clip = clip_, .mean_square = mean_square};
  }

  const double clip_;
};

uint32_t BitsFor(uint32_t levels) {
  return levels == 1 ? 2 : levels <= 7 ? 4 : 8;
}

MadeCodec MakeQsgd(const CodecTraits& traits, size_t num_elems,
                   const kernels::KernelTable& table,
                   const CodecOptions& options) {
  RETURN_IF_ERROR(CheckHasBlockKernels(table, traits));
  RETURN_IF_ERROR(CheckBlockOption(options.block));
  const bool natural = options.natural != 0;
  uint32_t levels = static_cast<uint32_t>(options.levels);
  if (natural) levels = std::min(levels, kernels::kMaxNaturalLevels);
  const kernels::BlockFormat format = {
      .block = static_cast<size_t>(options.block),
      .bits = BitsFor(levels),
      .levels = levels,
      .natural = natural};
  return std::make_unique<PreparedDither>(traits, num_elems, table, format,
                                          0.0);
}

MadeCodec MakeTernGrad(const CodecTraits& traits, size_t num_elems,
                       const kernels::KernelTable& table,
                       const CodecOptions& options) {
  RETURN_IF_ERROR(CheckHasBlockKernels(table, traits));
  // One block: the whole chunk.
  const kernels::BlockFormat format = {
      .block = (num_elems + kernels::kBlockMultiple - 1) /
               kernels::kBlockMultiple * kernels::kBlockMultiple,
      .bits = 2,
      .levels = 1};
  return std::make_unique<PreparedDither>(traits, num_elems, table, format,
                                          options.clip);
}

}  // namespace

const Codec& QsgdCodec() {
  static const Codec* codec = new Codec(
      {
          .name = "qsgd",
          .id = CodecId::kQsgd,
          .needs_residual = false,
          .summary = "stochastic rounding to a few levels per block, unbiased",
          .unbiased = true,
          .conserves = false,
          .decodes_any_bits = true,
          .options = {{"levels", &CodecOptions::levels, 127, 1, 127, true,
                       "levels beside 0; up to 7 take 4 bits, 1 takes 2"},
                      {"block", &CodecOptions::block, 512, 64, 65536, true,
                       "elements per scale, a multiple of 64"},
                      {"natural", &CodecOptions::natural, 0, 0, 1, true,
                       "1: levels are powers of two, at most 24"}},
      },
      MakeQsgd);
  return *codec;
}

const Codec& TernGradCodec() {
  static const Codec* codec = new Codec(
      {
          .name = "terngrad",
          .id = CodecId::kTernGrad,
          .needs_residual = false,
          .summary = "-s, 0 or +s per element at random, unbiased, as TernGrad",
          .unbiased = true,
          .conserves = false,
          .decodes_any_bits = true,
          .options = {{"clip", &CodecOptions::clip, 0, 0, 100, false,
                       "limit, in root mean squares of the chunk; 0: none"}},
      },
      MakeTernGrad);
  return *codec;
}

}  // namespace telegrad
