#include "compression/self_contained_codec.h"

#include <bit>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/device_kernels.h"

namespace telegrad {

absl::Status SelfContainedCodec::CheckEncode(ConstBytes grad,
                                             const CodecState& state, Bytes out,
                                             size_t element_bytes) const {
  RETURN_IF_ERROR(CheckSize("gradient", grad.size, element_bytes * num_elems_));
  RETURN_IF_ERROR(CheckSize("residual", state.residual.size,
                            traits_.needs_residual ? 4 * num_elems_ : 0));
  return CheckCapacity("output", out.size, max_encoded_bytes());
}

absl::Status SelfContainedCodec::CheckPayload(ConstBytes payload) const {
  if (!is_on_gpu()) return Validate(payload);
  constexpr uint32_t kAny = std::numeric_limits<uint32_t>::max();
  if (!traits_.constant_width && payload.size <= max_reencoded_bytes(kAny)) {
    return absl::OkStatus();
  }
  return CheckSize("payload", payload.size, max_encoded_bytes());
}

absl::Status SelfContainedCodec::CheckDecode(ConstBytes payload,
                                             Bytes out) const {
  RETURN_IF_ERROR(CheckPayload(payload));
  return CheckCapacity("output", out.size, 4 * num_elems_);
}

absl::Status SelfContainedCodec::Decode(ConstBytes payload, float threshold,
                                        Bytes out, Stream stream) const {
  RETURN_IF_ERROR(CheckDecode(payload, out));
  if (is_on_gpu()) {
    return absl::UnimplementedError(
        absl::StrCat("decoding ", traits_.name, " on a GPU"));
  }
  std::memset(out.data, 0, 4 * num_elems_);
  return DecodeAdd(payload, threshold, out, stream);
}

size_t SelfContainedCodec::sum_bytes(uint32_t) const { return 4 * num_elems_; }

absl::Status SelfContainedCodec::SumCodes(std::span<const ConstBytes> payloads,
                                          Bytes out, Stream stream) const {
  return SumDecode(payloads, 0, out, stream);
}

absl::Status SelfContainedCodec::DecodeSum(ConstBytes sum, uint32_t, float,
                                           Bytes out, Stream stream) const {
  RETURN_IF_ERROR(CheckSize("sums", sum.size, 4 * num_elems_));
  RETURN_IF_ERROR(CheckCapacity("output", out.size, 4 * num_elems_));
  kernels_.copy(sum.data, sum.size, out.data, stream);
  return absl::OkStatus();
}

absl::Status SelfContainedCodec::SumDecode(std::span<const ConstBytes> payloads,
                                           float threshold, Bytes out,
                                           Stream stream) const {
  RETURN_IF_ERROR(CheckNumPayloads(payloads.size()));
  RETURN_IF_ERROR(Decode(payloads[0], threshold, out, stream));
  for (const ConstBytes& payload : payloads.subspan(1)) {
    RETURN_IF_ERROR(DecodeAdd(payload, threshold, out, stream));
  }
  return absl::OkStatus();
}

absl::Status SelfContainedCodec::Reencode(std::span<const ConstBytes> payloads,
                                          const EncodeParams& params, int16_t,
                                          ReencodeState& state, Bytes out,
                                          size_t* encoded_bytes,
                                          Stream stream) const {
  RETURN_IF_ERROR(PrepareReencode(state, stream));
  RETURN_IF_ERROR(MakeRoom(4 * num_elems_, kernels_, state.sum, stream));
  RETURN_IF_ERROR(
      MakeRoom(sizeof(EncodeResult), kernels_, state.result, stream));
  RETURN_IF_ERROR(SumForReencode(payloads, params.threshold, state, stream));
  RETURN_IF_ERROR(EncodeSum(static_cast<uint32_t>(payloads.size()), params,
                            state, out, stream));
  kernels_.copy(&state.result.as<EncodeResult>()->encoded_bytes,
                sizeof(*encoded_bytes), encoded_bytes, stream);
  return absl::OkStatus();
}

absl::Status SelfContainedCodec::PrepareReencode(ReencodeState& state,
                                                 Stream stream) const {
  if (state.is_set) return absl::OkStatus();
  if (traits_.needs_residual) {
    RETURN_IF_ERROR(MakeRoom(4 * num_elems_, kernels_, state.residual, stream));
    state.codec.residual = state.residual.view();
  }
  state.is_set = true;
  return absl::OkStatus();
}

absl::Status SelfContainedCodec::SumForReencode(
    std::span<const ConstBytes> payloads, float threshold, ReencodeState& state,
    Stream stream) const {
  return SumDecode(payloads, threshold, state.sum.view(), stream);
}

absl::Status SelfContainedCodec::EncodeSum(uint32_t num_payloads,
                                           const EncodeParams& params,
                                           ReencodeState& state, Bytes out,
                                           Stream stream) const {
  RETURN_IF_ERROR(
      CheckCapacity("output", out.size, max_reencoded_bytes(num_payloads)));
  EncodeParams own = params;
  own.threshold = ReencodeThreshold(params.threshold, num_payloads);
  own.source = kServerSource;
  own.num_summed = num_payloads;
  return Encode(state.sum.view(), state.codec, own, out,
                state.result.as<EncodeResult>(), stream);
}

absl::Status SelfContainedCodec::ReleaseResidual(float, int16_t,
                                                 ReencodeState& state,
                                                 Bytes sum,
                                                 Stream stream) const {
  RETURN_IF_ERROR(CheckSize("sum", sum.size, 4 * num_elems_));
  if (state.is_set && state.residual.size() == sum.size) {
    kernels_.add_f32(state.residual.as<float>(), num_elems_, AsFloats(sum),
                     stream);
  }
  state = {};
  return absl::OkStatus();
}

float SelfContainedCodec::ReencodeThreshold(float threshold,
                                            uint32_t num_payloads) const {
  if (!traits_.needs_threshold) return threshold;
  return threshold * static_cast<float>(std::bit_ceil(num_payloads));
}

}  // namespace telegrad
