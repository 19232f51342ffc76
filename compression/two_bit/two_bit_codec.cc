#include "compression/two_bit/two_bit_codec.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/payload_views.h"
#include "compression/shape_checks.h"
#include "compression/two_bit/packing.h"
#include "compression/two_bit/reencode_units.h"

namespace telegrad {
namespace {

absl::Status CheckThreshold(float threshold) {
  if (threshold > 0 && std::isfinite(threshold)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("threshold ", threshold, "; it must be positive"));
}

class PreparedTwoBit : public PreparedCodec {
 public:
  PreparedTwoBit(const CodecTraits& codec_traits, size_t num_elems,
                 const kernels::KernelTable& table, PackingId packing)
      : traits_(codec_traits),
        num_elems_(num_elems),
        kernels_(table),
        packing_(PackingOf(packing, table)) {}

  const CodecTraits& traits() const override { return traits_; }
  size_t num_elems() const override { return num_elems_; }
  uint8_t packing() const override { return static_cast<uint8_t>(packing_.id); }
  size_t max_encoded_bytes() const override {
    return packing_.num_bytes(num_elems_);
  }
  size_t sum_bytes(uint32_t num_payloads) const override {
    return packing_.sum_bytes(num_elems_, num_payloads);
  }

  absl::Status Encode(ConstBytes grad, CodecState& state,
                      const EncodeParams& params, Bytes out,
                      EncodeResult* result, Stream stream) const override {
    return EncodeBy(packing_.encode, AsFloats(grad), grad.size, state, params,
                    out, result, stream);
  }

  absl::Status EncodeHalf(HalfFormat format, ConstBytes grad, CodecState& state,
                          const EncodeParams& params, Bytes out,
                          EncodeResult* result, Stream stream) const override {
    auto* const encode = format == HalfFormat::kFp16 ? packing_.encode_fp16
                                                     : packing_.encode_bf16;
    if (encode == nullptr) {
      return PreparedCodec::EncodeHalf(format, grad, state, params, out, result,
                                       stream);
    }
    return EncodeBy(encode, AsHalves(grad), grad.size, state, params, out,
                    result, stream);
  }

  absl::StatusOr<std::optional<BatchPart>> BatchPartOf(const EncodeItem& item,
                                                       Stream) const override {
    auto* const encode = !item.half.has_value() ? packing_.encode_many
                         : *item.half == HalfFormat::kFp16
                             ? packing_.encode_many_fp16
                             : packing_.encode_many_bf16;
    if (encode == nullptr) return std::nullopt;
    const size_t grad_bytes = item.half.has_value() ? 2 : 4;
    RETURN_IF_ERROR(CheckEncode(item.grad.size, grad_bytes, *item.state,
                                item.params, item.out));
    return BatchPart{.encode = encode,
                     .span = SpanOf(item, AsFloats(item.state->residual),
                                    item.params.threshold)};
  }

  absl::Status Validate(ConstBytes payload) const override {
    RETURN_IF_ERROR(CheckSize("payload", payload.size, max_encoded_bytes()));
    if (packing_.are_codes(AsCodes(payload), num_elems_)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        "payload holds what is no code, or codes behind its end");
  }

  absl::Status Decode(ConstBytes payload, float threshold, Bytes out,
                      Stream stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, threshold, out));
    packing_.decode(AsCodes(payload), num_elems_, threshold, AsFloats(out),
                    stream);
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<DecodePart>> DecodePartOf(
      const DecodeItem& item) const override {
    const bool is_sum = item.num_payloads != 0;
    auto* const decode =
        is_sum ? packing_.packed_sum_decode_many : packing_.decode_many;
    if (decode == nullptr) return std::nullopt;
    const Bytes room = FloatRoomOf(item);
    RETURN_IF_ERROR(is_sum ? CheckDecodeSum(item.payload, item.num_payloads,
                                            item.threshold, room)
                           : CheckDecode(item.payload, item.threshold, room));
    return DecodePart{.decode = decode,
                      .tile_elems = packing_.decode_tile(item.num_payloads),
                      .span = SpanOf(item, item.threshold)};
  }

  absl::Status DecodeAdd(ConstBytes payload, float threshold, Bytes sum,
                         Stream stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, threshold, sum));
    packing_.decode_add(AsCodes(payload), num_elems_, threshold, AsFloats(sum),
                        stream);
    return absl::OkStatus();
  }

  absl::Status SumCodes(std::span<const ConstBytes> payloads, Bytes out,
                        Stream stream) const override {
    RETURN_IF_ERROR(CheckPayloads(payloads, max_encoded_bytes()));
    const auto count = static_cast<uint32_t>(payloads.size());
    RETURN_IF_ERROR(CheckCapacity("output", out.size, sum_bytes(count)));
    packing_.sum_pack(Pointers(payloads).data(), count, num_elems_,
                      AsCodes(out), stream);
    return absl::OkStatus();
  }

  absl::Status ValidateSum(ConstBytes sum,
                           uint32_t num_payloads) const override {
    RETURN_IF_ERROR(CheckNumPayloads(num_payloads));
    RETURN_IF_ERROR(CheckSize("sums", sum.size, sum_bytes(num_payloads)));
    if (packing_.are_sums(AsCodes(sum), num_payloads, num_elems_)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        "packed sums hold what is no sum, or sums behind their end");
  }

  absl::Status DecodeSum(ConstBytes sum, uint32_t num_payloads, float threshold,
                         Bytes out, Stream stream) const override {
    RETURN_IF_ERROR(CheckDecodeSum(sum, num_payloads, threshold, out));
    packing_.packed_sum_decode(AsCodes(sum), num_payloads, num_elems_,
                               threshold, AsFloats(out), stream);
    return absl::OkStatus();
  }

  absl::Status SumDecode(std::span<const ConstBytes> payloads, float threshold,
                         Bytes out, Stream stream) const override {
    RETURN_IF_ERROR(CheckPayloads(payloads, max_encoded_bytes()));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, 4 * num_elems_));
    RETURN_IF_ERROR(CheckThreshold(threshold));
    packing_.sum_decode(Pointers(payloads).data(),
                        static_cast<uint32_t>(payloads.size()), num_elems_,
                        threshold, AsFloats(out), stream);
    return absl::OkStatus();
  }

  absl::Status Reencode(std::span<const ConstBytes> payloads,
                        const EncodeParams&, int16_t scale,
                        ReencodeState& state, Bytes out, size_t* encoded_bytes,
                        Stream stream) const override {
    RETURN_IF_ERROR(CheckPayloads(payloads, max_encoded_bytes()));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, max_encoded_bytes()));
    const auto count = static_cast<uint32_t>(payloads.size());
    ASSIGN_OR_RETURN(const uint32_t shift,
                     AdoptScale(scale, num_elems_, kernels_, state, stream));
    packing_.reencode(Pointers(payloads).data(), count, num_elems_,
                      state.residual.as<int32_t>(), shift,
                      static_cast<int32_t>(ReencodeQuantum(count) << shift),
                      AsCodes(out), stream);
    const size_t bytes = max_encoded_bytes();
    kernels_.put(&bytes, sizeof(bytes), encoded_bytes, stream);
    return absl::OkStatus();
  }

  absl::Status ReleaseResidual(float threshold, int16_t scale,
                               ReencodeState& state, Bytes sum,
                               Stream stream) const override {
    RETURN_IF_ERROR(CheckSize("sum", sum.size, 4 * num_elems_));
    if (state.is_set) {
      const float unit = std::ldexp(threshold, state.unit_scale - scale);
      // Integers of 32 bits with one quantum are codes of that kernel, too.
      kernels_.block.shared_decode_add(AsCodes(state.residual.view()),
                                       num_elems_, 32, 0, unit, AsFloats(sum),
                                       stream);
    }
    state = {};
    return absl::OkStatus();
  }

  float ReencodeThreshold(float threshold,
                          uint32_t num_payloads) const override {
    return threshold * static_cast<float>(ReencodeQuantum(num_payloads));
  }

 private:
  template <typename Encoder, typename Element>
  absl::Status EncodeBy(Encoder encode, const Element* grad, size_t grad_bytes,
                        CodecState& state, const EncodeParams& params,
                        Bytes out, EncodeResult* result, Stream stream) const {
    RETURN_IF_ERROR(
        CheckEncode(grad_bytes, sizeof(Element), state, params, out));
    BeginResult({.encoded_bytes = max_encoded_bytes()}, kernels_, result,
                stream);
    encode(grad, AsFloats(state.residual), num_elems_, params.threshold,
           params.nonfinite, AsCodes(out), &result->stats, stream);
    return absl::OkStatus();
  }
  absl::Status CheckEncode(size_t grad_bytes, size_t element_bytes,
                           const CodecState& state, const EncodeParams& params,
                           Bytes out) const {
    RETURN_IF_ERROR(
        CheckSize("gradient", grad_bytes, element_bytes * num_elems_));
    RETURN_IF_ERROR(CheckSize("residual", state.residual.size, 4 * num_elems_));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, max_encoded_bytes()));
    return CheckThreshold(params.threshold);
  }
  absl::Status CheckDecode(ConstBytes payload, float threshold,
                           Bytes out) const {
    RETURN_IF_ERROR(CheckSize("payload", payload.size, max_encoded_bytes()));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, 4 * num_elems_));
    return CheckThreshold(threshold);
  }

  absl::Status CheckDecodeSum(ConstBytes sum, uint32_t num_payloads,
                              float threshold, Bytes out) const {
    RETURN_IF_ERROR(CheckNumPayloads(num_payloads));
    RETURN_IF_ERROR(CheckSize("sums", sum.size, sum_bytes(num_payloads)));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, 4 * num_elems_));
    return CheckThreshold(threshold);
  }

  const CodecTraits& traits_;
  const size_t num_elems_;
  const kernels::KernelTable& kernels_;
  const Packing packing_;
};

MadeCodec MakeTwoBit(const CodecTraits& traits, size_t num_elems,
                     const kernels::KernelTable& table,
                     const CodecOptions& options) {
  return std::make_unique<PreparedTwoBit>(
      traits, num_elems, table,
      options.packing == 0 ? PackingId::kPlain : PackingId::kRadix);
}

}  // namespace

const Codec& TwoBitCodec() {
  static const Codec* codec = new Codec(
      {
          .name = "2bit",
          .id = CodecId::kTwoBit,
          .summable = true,
          .needs_threshold = true,
          .summary =
              "-t, 0 or +t per element with error feedback, as MXNet's 2bit",
          .decodes_any_bits = true,
          .options = {{"packing", &CodecOptions::packing, 0, 0, 1, true,
                       "0: MXNet's 2 bits per code; 1: radix, 1.6 bits"}},
      },
      MakeTwoBit);
  return *codec;
}

}  // namespace telegrad
