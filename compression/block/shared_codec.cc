#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/block/block_codecs.h"
#include "compression/block/scaled_codec.h"
#include "compression/device_kernels.h"
#include "kernels/block_rules.h"

namespace telegrad {
namespace {

// Thresholds for which quanta, their inverses and sums of 32767 decoded codes
// are finite; servers' thresholds are up to 2^15 times workers'.
constexpr float kLeastThreshold = 0x1p-110f;
constexpr float kMostThreshold = 0x1p116f;

// With these, `auto` puts 3.5 to 7 (int8shared) or 3.1 to 6.2 (int4shared) root
// mean squares within the largest code.
constexpr double kPerRms = 1.25;
constexpr float kQuantaOfInt8 = 32;
constexpr float kQuantaOfInt4 = 2;

absl::Status CheckThreshold(float threshold) {
  if (threshold >= kLeastThreshold && threshold <= kMostThreshold) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("threshold ", threshold, "; it must be ", kLeastThreshold,
                   " to ", kMostThreshold));
}

int32_t SumAt(const uint8_t* sums, size_t i, uint32_t bits) {
  if (bits <= 8) return kernels::UnpackCode(sums, i, bits);
  if (bits == 16) {
    int16_t value;
    std::memcpy(&value, sums + 2 * i, sizeof(value));
    return value;
  }
  int32_t value;
  std::memcpy(&value, sums + 4 * i, sizeof(value));
  return value;
}

class PreparedShared : public SelfContainedCodec {
 public:
  PreparedShared(const CodecTraits& codec_traits, size_t num_elems,
                 const kernels::KernelTable& table, uint32_t bits, float quanta)
      : SelfContainedCodec(codec_traits, num_elems, table),
        bits_(bits),
        levels_(kernels::SharedLevels(bits)),
        quanta_(quanta) {}

  size_t max_encoded_bytes() const override {
    return kernels::CodeBytes(num_elems(), bits_);
  }

  absl::Status Encode(ConstBytes grad, CodecState& state,
                      const EncodeParams& params, Bytes out,
                      EncodeResult* result, Stream stream) const override {
    RETURN_IF_ERROR(CheckEncode(grad, state, out));
    RETURN_IF_ERROR(CheckThreshold(params.threshold));
    BeginResult({.encoded_bytes = max_encoded_bytes()}, kernels(), result,
                stream);
    kernels().block.shared_quantize(
        AsFloats(grad), AsFloats(state.residual), num_elems(), bits_,
        params.threshold / quanta_, params.nonfinite, AsCodes(out),
        &result->stats, stream);
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<BatchPart>> BatchPartOf(const EncodeItem& item,
                                                       Stream) const override {
    auto* const encode = kernels().batch.shared_quantize;
    if (encode == nullptr || item.half.has_value()) return std::nullopt;
    RETURN_IF_ERROR(CheckEncode(item.grad, *item.state, item.out));
    RETURN_IF_ERROR(CheckThreshold(item.params.threshold));
    return BatchPart{.encode = encode,
                     .format = {.bits = bits_},
                     .span = SpanOf(item, AsFloats(item.state->residual),
                                    item.params.threshold / quanta_)};
  }

  absl::StatusOr<std::optional<DecodePart>> DecodePartOf(
      const DecodeItem& item) const override {
    auto* const decode = kernels().batch.shared_decode;
    if (decode == nullptr) return std::nullopt;
    const Bytes room = FloatRoomOf(item);
    const bool is_sum = item.num_payloads != 0;
    RETURN_IF_ERROR(
        is_sum ? CheckSum(item.payload, item.num_payloads, item.threshold, room)
               : CheckSizes(item.payload, item.threshold, room));
    return DecodePart{
        .decode = decode,
        .format = {.bits = is_sum ? SumBits(item.num_payloads) : bits_,
                   .odd = kernels::IsOdd(bits_)},
        .span = SpanOf(item, item.threshold / quanta_)};
  }

  absl::Status Validate(ConstBytes payload) const override {
    RETURN_IF_ERROR(CheckSize("payload", payload.size, max_encoded_bytes()));
    return CheckCodes(AsCodes(payload), num_elems(), bits_, levels_);
  }

  absl::Status Decode(ConstBytes payload, float threshold, Bytes out,
                      Stream stream) const override {
    RETURN_IF_ERROR(CheckSizes(payload, threshold, out));
    kernels().block.shared_decode(AsCodes(payload), num_elems(), bits_, Odd(1),
                                  threshold / quanta_, AsFloats(out), stream);
    return absl::OkStatus();
  }

  absl::Status DecodeAdd(ConstBytes payload, float threshold, Bytes sum,
                         Stream stream) const override {
    RETURN_IF_ERROR(CheckSizes(payload, threshold, sum));
    kernels().block.shared_decode_add(AsCodes(payload), num_elems(), bits_,
                                      Odd(1), threshold / quanta_,
                                      AsFloats(sum), stream);
    return absl::OkStatus();
  }

  size_t sum_bytes(uint32_t num_payloads) const override {
    return kernels::CodeBytes(num_elems(), SumBits(num_payloads));
  }

  absl::Status SumCodes(std::span<const ConstBytes> payloads, Bytes out,
                        Stream stream) const override {
    RETURN_IF_ERROR(CheckPayloads(payloads, max_encoded_bytes()));
    const auto count = static_cast<uint32_t>(payloads.size());
    RETURN_IF_ERROR(CheckCapacity("output", out.size, sum_bytes(count)));
    kernels().block.sum_codes(Pointers(payloads).data(), count, num_elems(),
                              bits_, SumBits(count), AsCodes(out), stream);
    return absl::OkStatus();
  }

  absl::Status ValidateSum(ConstBytes sum,
                           uint32_t num_payloads) const override {
    RETURN_IF_ERROR(CheckSize("sums", sum.size, sum_bytes(num_payloads)));
    const uint32_t bits = SumBits(num_payloads);
    const int64_t least = -int64_t{num_payloads} * levels_;
    const int64_t most = -least - Odd(num_payloads);
    bool is_within = true;
    for (size_t i = 0; i < num_elems(); ++i) {
      const int64_t k = SumAt(AsCodes(sum), i, bits);
      is_within &= k >= least && k <= most;
    }
    if (is_within) {
      return bits > 8 ? absl::OkStatus()
                      : CheckCodes(AsCodes(sum), num_elems(), bits,
                                   1u << (bits - 1));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("a sum of ", num_payloads, " codes is beyond ", most));
  }

  absl::Status DecodeSum(ConstBytes sum, uint32_t num_payloads, float threshold,
                         Bytes out, Stream stream) const override {
    RETURN_IF_ERROR(CheckSum(sum, num_payloads, threshold, out));
    kernels().block.shared_decode(AsCodes(sum), num_elems(),
                                  SumBits(num_payloads), Odd(num_payloads),
                                  threshold / quanta_, AsFloats(out), stream);
    return absl::OkStatus();
  }

  absl::Status SumDecode(std::span<const ConstBytes> payloads, float threshold,
                         Bytes out, Stream stream) const override {
    RETURN_IF_ERROR(CheckPayloads(payloads, max_encoded_bytes()));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, 4 * num_elems()));
    RETURN_IF_ERROR(CheckThreshold(threshold));
    kernels().block.shared_sum_decode(
        Pointers(payloads).data(), static_cast<uint32_t>(payloads.size()),
        num_elems(), bits_, threshold / quanta_, AsFloats(out), stream);
    return absl::OkStatus();
  }

 private:
  // How many odd codes there are in so many added.
  uint32_t Odd(uint32_t num_payloads) const {
    return kernels::IsOdd(bits_) ? num_payloads : 0;
  }

  // 8, 16 or 32, the least that holds num_payloads * levels; odd: any up to 8.
  uint32_t SumBits(uint32_t num_payloads) const {
    if (kernels::IsOdd(bits_)) {
      const auto bits = bits_ + std::bit_width(num_payloads - 1);
      return bits <= 8 ? bits : bits <= 16 ? 16 : 32;
    }
    const uint64_t most = uint64_t{num_payloads} * levels_;
    return bits_ == 4 && most <= 127 ? 8 : most <= 32767 ? 16 : 32;
  }

  absl::Status CheckSizes(ConstBytes payload, float threshold,
                          Bytes out) const {
    RETURN_IF_ERROR(CheckSize("payload", payload.size, max_encoded_bytes()));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, 4 * num_elems()));
    return CheckThreshold(threshold);
  }
  absl::Status CheckSum(ConstBytes sum, uint32_t num_payloads, float threshold,
                        Bytes out) const {
    RETURN_IF_ERROR(CheckSize("sums", sum.size, sum_bytes(num_payloads)));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, 4 * num_elems()));
    return CheckThreshold(threshold);
  }

  const uint32_t bits_;
  const uint32_t levels_;
  const float quanta_;  // in a threshold
};

// `quanta` are those in a threshold.
const Codec* NewShared(const char* name, CodecId id, const char* summary,
                       double per_rms, uint32_t bits, float quanta) {
  const auto make = [bits, quanta](const CodecTraits& traits, size_t num_elems,
                                   const kernels::KernelTable& table,
                                   const CodecOptions&) -> MadeCodec {
    RETURN_IF_ERROR(CheckHasBlockKernels(table, traits));
    return std::make_unique<PreparedShared>(traits, num_elems, table, bits,
                                            quanta);
  };
  return new Codec({.name = name,
                    .id = id,
                    .summable = true,
                    .needs_threshold = true,
                    .summary = summary,
                    .decodes_any_bits = true,
                    .auto_threshold_per_rms = per_rms},
                   make);
}

}  // namespace

const Codec& Int8SharedCodec() {
  static const Codec* codec =
      NewShared("int8shared", CodecId::kInt8Shared,
                "8-bit integers, one quantum for all workers, error feedback",
                kPerRms, 8, kQuantaOfInt8);
  return *codec;
}

const Codec& Int4SharedCodec() {
  static const Codec* codec =
      NewShared("int4shared", CodecId::kInt4Shared,
                "4-bit integers, one quantum for all workers, error feedback",
                kPerRms, 4, kQuantaOfInt4);
  return *codec;
}

const Codec& Int3SharedCodec() {
  static const Codec* codec =
      NewShared("int3shared", CodecId::kInt3Shared,
                "8 levels without 0, one scale for all workers, error feedback",
                kernels::kScaleOfEight, 3, 1);
  return *codec;
}

const Codec& Int2SharedCodec() {
  static const Codec* codec =
      NewShared("int2shared", CodecId::kInt2Shared,
                "4 levels without 0, one scale for all workers, error feedback",
                kernels::kScaleOfFour, 2, 1);
  return *codec;
}

}  // namespace telegrad
