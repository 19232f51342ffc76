#include "compression/block/scaled_codec.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/encode_many.h"

namespace telegrad {

absl::Status CheckBlockOption(double block) {
  if (std::fmod(block, kernels::kBlockMultiple) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "block=", block, "; it must be a multiple of ", kernels::kBlockMultiple));
}

absl::Status CheckHasBlockKernels(const kernels::KernelTable& table,
                                  const CodecTraits& traits) {
  if (table.block.quantize != nullptr) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat(table.name, " has no kernels for codec ", traits.name));
}

absl::Status ScaledCodec::Validate(ConstBytes payload) const {
  return CheckBlockPayload(payload, num_elems(), format_);
}

absl::Status ScaledCodec::Decode(ConstBytes payload, float, Bytes out,
                                 Stream stream) const {
  RETURN_IF_ERROR(CheckDecode(payload, out));
  kernels().block.decode(AsCodes(payload), num_elems(), format_, AsFloats(out),
                         stream);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<DecodePart>> ScaledCodec::DecodePartOf(
    const DecodeItem& item) const {
  auto* const decode = kernels().batch.block_decode;
  if (decode == nullptr || item.num_payloads != 0) return std::nullopt;
  RETURN_IF_ERROR(CheckDecode(item.payload, FloatRoomOf(item)));
  return DecodePart{
      .decode = decode, .format = format_, .span = SpanOf(item, 0)};
}

absl::Status ScaledCodec::DecodeAdd(ConstBytes payload, float, Bytes sum,
                                    Stream stream) const {
  RETURN_IF_ERROR(CheckDecode(payload, sum));
  kernels().block.decode_add(AsCodes(payload), num_elems(), format_,
                             AsFloats(sum), stream);
  return absl::OkStatus();
}

}  // namespace telegrad
