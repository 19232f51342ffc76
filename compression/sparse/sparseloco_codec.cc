#include "compression/sparse/sparseloco_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/encode_many.h"
#include "compression/self_contained_codec.h"
#include "kernels/block_top.h"

namespace telegrad {
namespace {

using kernels::kTopBins;
using kernels::kTopBlock;

constexpr double kMostDensity = double{kernels::kMostTop} / kTopBlock;

absl::Status WrongPayload(size_t at, const char* what) {
  return absl::InvalidArgumentError(
      absl::StrCat("payload's ", what, " ", at, " is none that is written"));
}

// Checks that each block's places ascend, and none is past the end.
absl::Status CheckPlaces(const uint8_t* places, size_t n, size_t keep) {
  size_t j = 0;
  for (size_t from = 0; from < n; from += kTopBlock) {
    const size_t size = std::min(kTopBlock, n - from);
    size_t least = 0;
    for (const size_t end = j + kernels::TopOfBlock(size, keep); j < end; ++j) {
      const size_t place = kernels::TopPlaceAt(places, j);
      if (place < least || place >= size) return WrongPayload(j, "place");
      least = place + 1;
    }
  }
  return absl::OkStatus();
}

// Checks that levels are numbers, and 0 where no code has them.
absl::Status CheckLevels(ConstBytes payload, const uint8_t* codes,
                         size_t num_top) {
  std::array<float, kTopBins> levels;
  std::memcpy(levels.data(), payload.data, sizeof(levels));
  std::array<size_t, kTopBins> counts{};
  for (size_t j = 0; j < num_top; ++j) ++counts[kernels::TopCodeAt(codes, j)];
  for (size_t bin = 0; bin < kTopBins; ++bin) {
    const bool is_right = counts[bin] == 0
                              ? std::bit_cast<uint32_t>(levels[bin]) == 0
                              : std::abs(levels[bin]) <= kernels::kMostTopLevel;
    if (!is_right) return WrongPayload(bin, "level");
  }
  return absl::OkStatus();
}

class PreparedSparseLoCo : public SelfContainedCodec {
 public:
  PreparedSparseLoCo(const CodecTraits& codec_traits, size_t num_elems,
                     const kernels::KernelTable& table,
                     const kernels::TopRule& rule)
      : SelfContainedCodec(codec_traits, num_elems, table),
        rule_(rule),
        num_top_(kernels::NumTop(num_elems, rule.keep)) {}

  size_t max_encoded_bytes() const override {
    return kernels::TopPayloadBytes(num_top_);
  }

  absl::Status Encode(ConstBytes grad, CodecState& state,
                      const EncodeParams& params, Bytes out,
                      EncodeResult* result, Stream stream) const override {
    RETURN_IF_ERROR(CheckEncode(grad, state, out));
    RETURN_IF_ERROR(MakeRoom(kernels::TopScratchBytes(num_elems(), rule_.keep),
                             kernels(), state.scratch, stream));
    BeginResult({.encoded_bytes = max_encoded_bytes()}, kernels(), result,
                stream);
    kernels::TopRule rule = rule_;
    if (params.source == kServerSource) rule.decay = 1;
    kernels().block_top.encode(AsFloats(grad), AsFloats(state.residual),
                               num_elems(), rule, params.nonfinite,
                               AsCodes(out), &result->stats,
                               state.scratch.data(), stream);
    return absl::OkStatus();
  }

  absl::Status Validate(ConstBytes payload) const override {
    RETURN_IF_ERROR(CheckSize("payload", payload.size, max_encoded_bytes()));
    const uint8_t* const places = AsCodes(payload) + kernels::kTopPlacesAt;
    const uint8_t* const codes =
        AsCodes(payload) + kernels::TopCodesAt(num_top_);
    RETURN_IF_ERROR(CheckPlaces(places, num_elems(), rule_.keep));
    RETURN_IF_ERROR(CheckLevels(payload, codes, num_top_));
    if ((num_top_ % 2 != 0 && codes[-1] >> 4 != 0) ||
        (num_top_ % 4 != 0 && codes[num_top_ / 4] >> 2 * (num_top_ % 4) != 0)) {
      return absl::InvalidArgumentError("payload has bits behind an end");
    }
    return absl::OkStatus();
  }

  absl::Status Decode(ConstBytes payload, float, Bytes out,
                      Stream stream) const override {
    return Read(kernels().block_top.decode, payload, out, stream);
  }
  absl::StatusOr<std::optional<DecodePart>> DecodePartOf(
      const DecodeItem& item) const override {
    auto* const decode = kernels().batch.top_decode;
    if (decode == nullptr || item.num_payloads != 0) return std::nullopt;
    RETURN_IF_ERROR(CheckDecode(item.payload, FloatRoomOf(item)));
    DecodePart part = {.decode = decode, .span = SpanOf(item, 0)};
    part.span.k = static_cast<uint32_t>(rule_.keep);
    return part;
  }
  absl::Status DecodeAdd(ConstBytes payload, float, Bytes sum,
                         Stream stream) const override {
    return Read(kernels().block_top.decode_add, payload, sum, stream);
  }

 private:
  absl::Status Read(kernels::TopDecodeFn* read, ConstBytes payload, Bytes out,
                    Stream stream) const {
    RETURN_IF_ERROR(CheckDecode(payload, out));
    read(AsCodes(payload), num_elems(), rule_.keep, AsFloats(out), stream);
    return absl::OkStatus();
  }

  const kernels::TopRule rule_;
  const size_t num_top_;
};

MadeCodec MakeSparseLoCo(const CodecTraits& traits, size_t num_elems,
                         const kernels::KernelTable& table,
                         const CodecOptions& options) {
  // A whole block's are a multiple of four: kernels/block_top.h.
  const auto fours =
      static_cast<size_t>(std::ceil(options.density * kTopBlock / 4));
  return std::make_unique<PreparedSparseLoCo>(
      traits, num_elems, table,
      kernels::TopRule{
          .keep = std::clamp(4 * fours, size_t{4}, kernels::kMostTop),
          .decay = static_cast<float>(options.decay)});
}

}  // namespace

const Codec& SparseLoCoCodec() {
  static const Codec* codec = new Codec(
      {
          .name = "sparseloco",
          .id = CodecId::kSparseLoCo,
          .summary = "the 64 largest of each 4096 in 2 bits, for local steps",
          .conserves = false,
          .options = {{"density", &CodecOptions::density, 1.0 / 64, 1e-6,
                       kMostDensity, false,
                       "share of the elements that is sent"},
                      {"decay", &CodecOptions::decay, 0.95, 0, 1, false,
                       "what a worker keeps of its residual in each step"}},
      },
      MakeSparseLoCo);
  return *codec;
}

}  // namespace telegrad
