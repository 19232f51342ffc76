#include "compression/sign/one_bit_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/self_contained_codec.h"
#include "compression/shape_checks.h"
#include "compression/sign/sign_payload.h"

namespace telegrad {
namespace {

using kernels::OneBitBytes;
using kernels::SignBytes;
using kernels::SignCountBytes;

float MagnitudeOf(ConstBytes payload) {
  float magnitude;
  std::memcpy(&magnitude, AsCodes(payload) + payload.size - 4,
              sizeof(magnitude));
  return magnitude;
}

// A power of two from 1 to 32768, the least that is kMaxSumContributors or
// more.
bool IsMagnitude(float magnitude) {
  int exponent = 0;
  return std::frexp(magnitude, &exponent) == 0.5f && exponent >= 1 &&
         exponent <= 16;
}

class PreparedOneBit : public SelfContainedCodec {
 public:
  PreparedOneBit(const CodecTraits& codec_traits, size_t num_elems,
                 const kernels::KernelTable& table, float threshold)
      : SelfContainedCodec(codec_traits, num_elems, table),
        threshold_(threshold) {}

  size_t max_encoded_bytes() const override { return OneBitBytes(num_elems()); }
  size_t sum_bytes(uint32_t num_payloads) const override {
    return SignCountBytes(num_elems(), num_payloads);
  }

  absl::Status Encode(ConstBytes grad, CodecState& state,
                      const EncodeParams& params, Bytes out,
                      EncodeResult* result, Stream stream) const override {
    return EncodeAs(1, grad, state, params, out, result, stream);
  }

  absl::StatusOr<std::optional<BatchPart>> BatchPartOf(const EncodeItem& item,
                                                       Stream) const override {
    auto* const encode = kernels().batch.one_bit;
    if (encode == nullptr || item.half.has_value()) return std::nullopt;
    RETURN_IF_ERROR(CheckEncode(item.grad, *item.state, item.out));
    return BatchPart{
        .encode = encode,
        .span = SpanOf(item, AsFloats(item.state->residual), threshold_)};
  }

  absl::Status Validate(ConstBytes payload) const override {
    RETURN_IF_ERROR(CheckSize("payload", payload.size, max_encoded_bytes()));
    if (!IsMagnitude(MagnitudeOf(payload))) {
      return absl::InvalidArgumentError(
          absl::StrCat("payload has magnitude ", MagnitudeOf(payload),
                       ", which is no power of two from 1 to 32768"));
    }
    if (AreUnusedBitsZero(AsCodes(payload), num_elems())) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError("payload holds bits behind its end");
  }

  absl::Status Decode(ConstBytes payload, float, Bytes out,
                      Stream stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, out));
    kernels().sign.one_bit_decode(AsCodes(payload), num_elems(), AsFloats(out),
                                  stream);
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<DecodePart>> DecodePartOf(
      const DecodeItem& item) const override {
    const bool is_sum = item.num_payloads != 0;
    auto* const decode =
        is_sum ? kernels().batch.count_decode : kernels().batch.one_bit_decode;
    if (decode == nullptr) return std::nullopt;
    const Bytes room = FloatRoomOf(item);
    RETURN_IF_ERROR(is_sum ? CheckSum(item.payload, item.num_payloads, room)
                           : CheckDecode(item.payload, room));
    return DecodePart{.decode = decode, .span = SpanOf(item, 0)};
  }

  absl::Status DecodeAdd(ConstBytes payload, float, Bytes sum,
                         Stream stream) const override {
    RETURN_IF_ERROR(CheckDecode(payload, sum));
    kernels().sign.one_bit_decode_add(AsCodes(payload), num_elems(),
                                      AsFloats(sum), stream);
    return absl::OkStatus();
  }

  absl::Status SumCodes(std::span<const ConstBytes> payloads, Bytes out,
                        Stream stream) const override {
    ASSIGN_OR_RETURN(const FramePointers frames, Frames(payloads));
    const auto count = static_cast<uint32_t>(frames.size());
    RETURN_IF_ERROR(CheckCapacity("output", out.size, sum_bytes(count)));
    kernels().sign.count_pack(frames.data(), count, num_elems(), AsCodes(out),
                              stream);
    return absl::OkStatus();
  }

  absl::Status DecodeSum(ConstBytes sum, uint32_t num_payloads, float,
                         Bytes out, Stream stream) const override {
    RETURN_IF_ERROR(CheckSum(sum, num_payloads, out));
    kernels().sign.count_decode(AsCodes(sum), num_payloads, num_elems(),
                                AsFloats(out), stream);
    return absl::OkStatus();
  }

  absl::Status SumDecode(std::span<const ConstBytes> payloads, float threshold,
                         Bytes out, Stream stream) const override {
    if (is_on_gpu()) {
      return SelfContainedCodec::SumDecode(payloads, threshold, out, stream);
    }
    ASSIGN_OR_RETURN(FramePointers frames, Frames(payloads));
    RETURN_IF_ERROR(CheckCapacity("output", out.size, 4 * num_elems()));
    SumParts(frames, AsFloats(out), stream);
    return absl::OkStatus();
  }

 protected:
  // The server's magnitude is the least power of two >= W, so that what it
  // sends keeps up with workers who agree.
  absl::Status EncodeSum(uint32_t num_payloads, const EncodeParams& params,
                         ReencodeState& state, Bytes out,
                         Stream stream) const override {
    return EncodeAs(std::bit_ceil(num_payloads), state.sum.view(), state.codec,
                    params, out, state.result.as<EncodeResult>(), stream);
  }

 private:
  absl::Status CheckSum(ConstBytes sum, uint32_t num_payloads,
                        Bytes out) const {
    RETURN_IF_ERROR(CheckSize("sums", sum.size, sum_bytes(num_payloads)));
    return CheckCapacity("output", out.size, 4 * num_elems());
  }

  // With codes of +-magnitude, and the threshold in units of it.
  absl::Status EncodeAs(uint32_t magnitude, ConstBytes grad, CodecState& state,
                        const EncodeParams& params, Bytes out,
                        EncodeResult* result, Stream stream) const {
    RETURN_IF_ERROR(CheckEncode(grad, state, out));
    BeginResult({.encoded_bytes = max_encoded_bytes()}, kernels(), result,
                stream);
    const auto unit = static_cast<float>(magnitude);
    kernels().sign.one_bit_encode(AsFloats(grad), AsFloats(state.residual),
                                  num_elems(), threshold_ * unit, unit,
                                  params.nonfinite, AsCodes(out),
                                  &result->stats, stream);
    return absl::OkStatus();
  }

  // Only pushes, whose magnitude is 1, can be added as counts.
  absl::StatusOr<FramePointers> Frames(
      std::span<const ConstBytes> payloads) const {
    RETURN_IF_ERROR(CheckPayloads(payloads, max_encoded_bytes()));
    FramePointers frames;
    for (const ConstBytes& payload : payloads) {
      if (!is_on_gpu() && MagnitudeOf(payload) != 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("a payload of magnitude ", MagnitudeOf(payload),
                         " in a sum of those of magnitude 1"));
      }
      frames.push_back(AsCodes(payload));
    }
    return frames;
  }

  // Packs and decodes part after part, so that counts stay in the L1 cache.
  void SumParts(FramePointers& frames, float* out, Stream stream) const {
    constexpr size_t kPart = 4096;
    uint8_t counts[SignCountBytes(kPart, kernels::kMaxSumContributors)];
    const auto count = static_cast<uint32_t>(frames.size());
    for (size_t i = 0; i < num_elems(); i += kPart) {
      const size_t size = std::min(kPart, num_elems() - i);
      kernels().sign.count_pack(frames.data(), count, size, counts, stream);
      kernels().sign.count_decode(counts, count, size, out + i, stream);
      for (const uint8_t*& frame : frames) frame += SignBytes(kPart);
    }
  }

  const float threshold_;
};

MadeCodec MakeOneBit(const CodecTraits& traits, size_t num_elems,
                     const kernels::KernelTable& table,
                     const CodecOptions& options) {
  return std::make_unique<PreparedOneBit>(
      traits, num_elems, table, static_cast<float>(options.bit_threshold));
}

}  // namespace

const Codec& OneBitCodec() {
  static const Codec* codec = new Codec(
      {
          .name = "1bit",
          .id = CodecId::kOneBitMxnet,
          .summable = true,
          .summary =
              "-1 or +1 per element with error feedback, as MXNet's 1bit",
          .decodes_any_bits = true,
          .options = {{"threshold", &CodecOptions::bit_threshold, 0, -1e9, 1e9,
                       false, "above it +1 is sent, else -1"}},
      },
      MakeOneBit);
  return *codec;
}

}  // namespace telegrad
