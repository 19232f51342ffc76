#include "compression/self_contained_codec.h"

#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace telegrad {

absl::Status SelfContainedCodec::CheckEncode(ConstBytes grad,
                                             const CodecState& state, Bytes out,
                                             size_t element_bytes) const {
  RETURN_IF_ERROR(CheckSize("gradient", grad.size, element_bytes * num_elems_));
  RETURN_IF_ERROR(CheckSize("residual", state.residual.size,
                            traits_.needs_residual ? 4 * num_elems_ : 0));
  return CheckCapacity("output", out.size, max_encoded_bytes());
}

absl::Status SelfContainedCodec::CheckDecode(ConstBytes payload,
                                             Bytes out) const {
  // A GPU's payloads lie where only the GPU can look at them.
  RETURN_IF_ERROR(
      kernels_.device == DeviceKind::kCpu
          ? Validate(payload)
          : CheckSize("payload", payload.size, max_encoded_bytes()));
  return CheckCapacity("output", out.size, 4 * num_elems_);
}

absl::Status SelfContainedCodec::Decode(ConstBytes payload, float threshold,
                                        Bytes out, Stream stream) const {
  RETURN_IF_ERROR(CheckDecode(payload, out));
  if (kernels_.device != DeviceKind::kCpu) {
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
                                           Bytes out, Stream) const {
  RETURN_IF_ERROR(CheckSize("sums", sum.size, 4 * num_elems_));
  RETURN_IF_ERROR(CheckCapacity("output", out.size, 4 * num_elems_));
  std::memmove(out.data, sum.data, sum.size);
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
  if (kernels_.device != DeviceKind::kCpu) {
    return absl::UnimplementedError("re-encoding on a GPU's server");
  }
  PrepareReencode(state);
  if (state.sum.size() == 0) state.sum = Buffer(4 * num_elems_);
  RETURN_IF_ERROR(
      SumDecode(payloads, params.threshold, state.sum.view(), stream));
  EncodeParams own = params;
  own.threshold = ReencodeThreshold(params.threshold,
                                    static_cast<uint32_t>(payloads.size()));
  EncodeResult result;
  RETURN_IF_ERROR(
      Encode(state.sum.view(), state.codec, own, out, &result, stream));
  *encoded_bytes = result.encoded_bytes;
  return absl::OkStatus();
}

void SelfContainedCodec::PrepareReencode(ReencodeState& state) const {
  if (state.is_set) return;
  if (traits_.needs_residual) {
    state.residual = Buffer(4 * num_elems_);
    state.codec.residual = state.residual.view();
  }
  state.is_set = true;
}

float SelfContainedCodec::ReencodeThreshold(float threshold,
                                            uint32_t num_payloads) const {
  if (!traits_.needs_threshold) return threshold;
  return threshold * static_cast<float>(std::bit_ceil(num_payloads));
}

}  // namespace telegrad
