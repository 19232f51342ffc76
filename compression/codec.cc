#include "compression/codec.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/encode_many.h"
#include "compression/shape_checks.h"
#include "compression/warm_up.h"

namespace telegrad {

CodecOptions StandardOptions(const CodecTraits& traits) {
  CodecOptions options;
  for (const CodecOption& option : traits.options) {
    options.*option.field = option.standard;
  }
  return options;
}

absl::Status PreparedCodec::EncodeHalf(HalfFormat, ConstBytes, CodecState&,
                                       const EncodeParams&, Bytes,
                                       EncodeResult*, Stream) const {
  return absl::UnimplementedError(absl::StrCat(
      "codec ", traits().name,
      " does not take 16-bit gradients; cast them to float32 first"));
}

absl::Status PreparedCodec::ValidateSum(ConstBytes sum,
                                        uint32_t num_payloads) const {
  return CheckSize("sums", sum.size, sum_bytes(num_payloads));
}

absl::StatusOr<std::optional<BatchPart>> PreparedCodec::BatchPartOf(
    const EncodeItem&, Stream) const {
  return std::nullopt;
}

absl::StatusOr<std::optional<DecodePart>> PreparedCodec::DecodePartOf(
    const DecodeItem&) const {
  return std::nullopt;
}

absl::Status PreparedCodec::ReleaseResidual(float, int16_t,
                                            ReencodeState& state, Bytes sum,
                                            Stream) const {
  RETURN_IF_ERROR(CheckSize("sum", sum.size, 4 * num_elems()));
  state = {};
  return absl::OkStatus();
}

absl::Status PreparedCodec::Learn(ConstBytes, uint32_t, CodecState&,
                                  Stream) const {
  return absl::OkStatus();
}

MadeCodec Codec::PrepareCold(size_t num_elems, Device device,
                             const CodecOptions& options) const {
  ASSIGN_OR_RETURN(const kernels::KernelTable* table,
                   KernelsFor(num_elems, device));
  return make_(traits_, num_elems, *table, options);
}

MadeCodec Codec::Prepare(size_t num_elems, Device device,
                         const CodecOptions& options) const {
  ASSIGN_OR_RETURN(std::unique_ptr<PreparedCodec> prepared,
                   PrepareCold(num_elems, device, options));
  if (device.kind == DeviceKind::kCuda) {
    RETURN_IF_ERROR(WarmUp(*this, options, device));
  }
  return prepared;
}

}  // namespace telegrad
