#include "base/status_macros.h"
#include "compression/block/block_codecs.h"
#include "compression/block/scaled_codec.h"
#include "compression/device_kernels.h"
#include "kernels/block_rules.h"
#include "kernels/gather.h"

namespace telegrad {
namespace {

CodecTraits MakeTraits(const char* name, CodecId id, const char* summary,
                       double block = 1024) {
  return {
      .name = name,
      .id = id,
      .wire_version = 1,
      .lossless = false,
      .summable = false,
      .constant_width = true,
      .needs_residual = true,
      .needs_threshold = false,
      .summary = summary,
      .decodes_any_bits = true,
      .options = {{.name = "block",
                   .field = &CodecOptions::block,
                   .standard = block,
                   .low = 64,
                   .high = 65536,
                   .is_integer = true,
                   .help = "elements per scale, a multiple of 64"},
                  {.name = "residual",
                   .field = &CodecOptions::residual,
                   .standard = 1,
                   .low = 0,
                   .high = 1,
                   .is_integer = true,
                   .help = "0: drop what is rounded off"}},
  };
}

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

class Linear : public Codec {
 public:
  Linear(CodecTraits codec_traits, uint32_t bits)
      : traits_(std::move(codec_traits)), bits_(bits) {}

  const CodecTraits& traits() const override { return traits_; }
  absl::StatusOr<std::unique_ptr<PreparedCodec>> Make(
      size_t num_elems, Device device,
      const CodecOptions& options) const override {
    ASSIGN_OR_RETURN(const kernels::KernelTable* table,
                     KernelsFor(num_elems, device));
    RETURN_IF_ERROR(CheckHasBlockKernels(*table, traits_));
    RETURN_IF_ERROR(CheckBlockOption(options.block));
    const kernels::BlockFormat format = {
        .block = static_cast<size_t>(options.block),
        .bits = bits_,
        .levels = kernels::SharedLevels(bits_),
        .odd = kernels::IsOdd(bits_)};
    return std::make_unique<PreparedLinear>(traits_, num_elems, *table, format,
                                            options.residual != 0);
  }

 private:
  const CodecTraits traits_;
  const uint32_t bits_;
};

}  // namespace

const Codec& Int8Codec() {
  static const Linear* codec = new Linear(
      MakeTraits("int8", CodecId::kInt8,
                 "8-bit integers, a scale per block, error feedback"),
      8);
  return *codec;
}

const Codec& Int4Codec() {
  static const Linear* codec = new Linear(
      MakeTraits("int4", CodecId::kInt4,
                 "4-bit integers, a scale per block, error feedback"),
      4);
  return *codec;
}

const Codec& Int3Codec() {
  static const Linear* codec = new Linear(
      MakeTraits("int3", CodecId::kInt3,
                 "8 levels without 0, a scale per block, error feedback", 256),
      3);
  return *codec;
}

const Codec& Int2Codec() {
  static const Linear* codec = new Linear(
      MakeTraits("int2", CodecId::kInt2,
                 "4 levels without 0, a scale per block, error feedback", 256),
      2);
  return *codec;
}

}  // namespace telegrad
