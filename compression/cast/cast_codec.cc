#include "compression/cast/cast_codec.h"

#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/self_contained_codec.h"
#include "compression/shape_checks.h"

namespace telegrad {
namespace {

using kernels::CastBytes;
using kernels::CastFormatKernels;

CodecTraits MakeTraits(const char* name, CodecId id, const char* summary) {
  return {
      .name = name,
      .id = id,
      .summary = summary,
      .keeps_nonfinite = true,
      .decodes_any_bits = true,
      .options = {{"residual", &CodecOptions::residual, 1, 0, 1, true,
                   "0: drop what the cast rounds off"}},
  };
}

// Every two bytes are a code that Encode can write for some gradient, but for
// payloads of NaN, so Validate looks at the size alone.
class PreparedCast : public SelfContainedCodec {
 public:
  PreparedCast(const CodecTraits& codec_traits, size_t num_elems,
               const kernels::KernelTable& table,
               const CastFormatKernels& format,
               kernels::EncodeManyFn* encode_many,
               kernels::DecodeManyFn* decode_many, bool has_residual)
      : SelfContainedCodec(codec_traits, num_elems, table),
        format_(format),
        encode_many_(encode_many),
        decode_many_(decode_many),
        has_residual_(has_residual) {}

  size_t max_encoded_bytes() const override { return CastBytes(num_elems()); }

  absl::Status Encode(ConstBytes grad, CodecState& state,
                      const EncodeParams& params, Bytes out,
                      EncodeResult* result, Stream stream) const override {
    RETURN_IF_ERROR(CheckEncode(grad, state, out));
    BeginResult({.encoded_bytes = max_encoded_bytes()}, kernels(), result,
                stream);
    format_.encode(
        AsFloats(grad), has_residual_ ? AsFloats(state.residual) : nullptr,
        num_elems(), params.nonfinite, AsCodes(out), &result->stats, stream);
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<BatchPart>> BatchPartOf(const EncodeItem& item,
                                                       Stream) const override {
    if (encode_many_ == nullptr || item.half.has_value()) return std::nullopt;
    RETURN_IF_ERROR(CheckEncode(item.grad, *item.state, item.out));
    float* const residual =
        has_residual_ ? AsFloats(item.state->residual) : nullptr;
    return BatchPart{.encode = encode_many_, .span = SpanOf(item, residual, 0)};
  }

  absl::Status Validate(ConstBytes payload) const override {
    return CheckSize("payload", payload.size, max_encoded_bytes());
  }

  absl::Status Decode(ConstBytes payload, float, Bytes out,
                      Stream stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, out));
    format_.decode(AsCodes(payload), num_elems(), AsFloats(out), stream);
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<DecodePart>> DecodePartOf(
      const DecodeItem& item) const override {
    if (decode_many_ == nullptr || item.num_payloads != 0) return std::nullopt;
    RETURN_IF_ERROR(CheckDecode(item.payload, FloatRoomOf(item)));
    return DecodePart{.decode = decode_many_, .span = SpanOf(item, 0)};
  }

  absl::Status DecodeAdd(ConstBytes payload, float, Bytes sum,
                         Stream stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, sum));
    format_.decode_add(AsCodes(payload), num_elems(), AsFloats(sum), stream);
    return absl::OkStatus();
  }

 private:
  const CastFormatKernels format_;
  kernels::EncodeManyFn* const encode_many_;
  kernels::DecodeManyFn* const decode_many_;
  const bool has_residual_;
};

MadeCodec MakeCast(const CodecTraits& traits, size_t num_elems,
                   const kernels::KernelTable& table,
                   const CodecOptions& options) {
  const bool is_fp16 = traits.id == CodecId::kFp16;
  return std::make_unique<PreparedCast>(
      traits, num_elems, table, is_fp16 ? table.cast.fp16 : table.cast.bf16,
      is_fp16 ? table.batch.fp16 : table.batch.bf16,
      is_fp16 ? table.batch.fp16_decode : table.batch.bf16_decode,
      options.residual != 0);
}

}  // namespace

const Codec& Fp16Codec() {
  static const Codec* codec =
      new Codec(MakeTraits("fp16", CodecId::kFp16,
                           "IEEE half precision with error feedback"),
                MakeCast);
  return *codec;
}

const Codec& Bf16Codec() {
  static const Codec* codec = new Codec(
      MakeTraits("bf16", CodecId::kBf16, "bfloat16 with error feedback"),
      MakeCast);
  return *codec;
}

}  // namespace telegrad
