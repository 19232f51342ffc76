#include "base/status_macros.h"
#include "compression/block/block_codecs.h"
#include "compression/block/scaled_codec.h"
#include "compression/device_kernels.h"
#include "kernels/block_rules.h"
#include "kernels/gather.h"

namespace telegrad {
namespace {

class PreparedLinear : public ScaledCodec {
 public:
  PreparedLinear(const CodecTraits& codec_traits, size_t num_elems,
                 const kernels::KernelTable& table,
                 const kernels::BlockFormat& format, bool has_residual)
      : ScaledCodec(codec_traits, num_elems, table, format),
        has_residual_(has_residual) {}

  absl::Status Encode(ConstBytes grad, CodecState& state,
                      const EncodeParams& params, Bytes out,
                      EncodeResult* result, Stream stream) const override {
    RETURN_IF_ERROR(CheckEncode(grad, state, out));
    BeginResult({.encoded_bytes = max_encoded_bytes()}, kernels(), result,
                stream);
    kernels().block.quantize(AsFloats(grad), AsFloats(state.residual),
                             num_elems(), format(), params.nonfinite,
                             AsCodes(out), &result->stats, stream);
    if (!has_residual_) {
      kernels::GatherKernelsOf(kernels().device)
          .clear(4 * num_elems(), state.residual.data, stream);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<BatchPart>> BatchPartOf(const EncodeItem& item,
                                                       Stream) const override {
    auto* const encode = kernels().batch.quantize;
    if (encode == nullptr || item.half.has_value() || !has_residual_) {
      return std::nullopt;
    }
    RETURN_IF_ERROR(CheckEncode(item.grad, *item.state, item.out));
    return BatchPart{.encode = encode,
                     .format = format(),
                     .tile_elems = TileOf(format().block),
                     .span = SpanOf(item, AsFloats(item.state->residual), 0)};
  }

 private:
  const bool has_residual_;
};

const Codec* NewLinear(const char* name, CodecId id, const char* summary,
                       uint32_t bits, double block = 1024) {
  const auto make = [bits](const CodecTraits& traits, size_t num_elems,
                           const kernels::KernelTable& table,
                           const CodecOptions& options) -> MadeCodec {
    RETURN_IF_ERROR(CheckHasBlockKernels(table, traits));
    RETURN_IF_ERROR(CheckBlockOption(options.block));
    const kernels::BlockFormat format = {
        .block = static_cast<size_t>(options.block),
        .bits = bits,
        .levels = kernels::SharedLevels(bits),
        .odd = kernels::IsOdd(bits)};
    return std::make_unique<PreparedLinear>(traits, num_elems, table, format,
                                            options.residual != 0);
  };
  return new Codec(
      {.name = name,
       .id = id,
       .summary = summary,
       .decodes_any_bits = true,
       .options = {{"block", &CodecOptions::block, block, 64, 65536, true,
                    "elements per scale, a multiple of 64"},
                   {"residual", &CodecOptions::residual, 1, 0, 1, true,
                    "0: drop what is rounded off"}}},
      make);
}

}  // namespace

const Codec& Int8Codec() {
  static const Codec* codec =
      NewLinear("int8", CodecId::kInt8,
                "8-bit integers, a scale per block, error feedback", 8);
  return *codec;
}

const Codec& Int4Codec() {
  static const Codec* codec =
      NewLinear("int4", CodecId::kInt4,
                "4-bit integers, a scale per block, error feedback", 4);
  return *codec;
}

const Codec& Int3Codec() {
  static const Codec* codec = NewLinear(
      "int3", CodecId::kInt3,
      "8 levels without 0, a scale per block, error feedback", 3, 256);
  return *codec;
}

const Codec& Int2Codec() {
  static const Codec* codec = NewLinear(
      "int2", CodecId::kInt2,
      "4 levels without 0, a scale per block, error feedback", 2, 256);
  return *codec;
}

}  // namespace telegrad
