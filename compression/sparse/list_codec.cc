#include "compression/sparse/list_codec.h"

#include <type_traits>

#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/encode_many.h"

namespace telegrad {

static_assert(std::is_same_v<decltype(EncodeResult::encoded_bytes), uint64_t>,
              "kernels write it");

void ListCodec::WriteOnGpu(const uint32_t* words, const uint64_t* num_words,
                           float threshold, void* parts, Bytes out,
                           EncodeResult* result, Stream stream) const {
  kernels().sparse_list.write(content_, words, num_words, num_elems(),
                              threshold, AsCodes(out), &result->encoded_bytes,
                              parts, stream);
}

absl::StatusOr<std::optional<DecodePart>> ListCodec::DecodePartOf(
    const DecodeItem& item) const {
  const kernels::BatchKernels& batch = kernels().batch;
  auto* const decode = content_ == kernels::SparseContent::kSigns
                           ? batch.sign_list_decode
                           : batch.value_list_decode;
  if (decode == nullptr || item.num_payloads != 0) return std::nullopt;
  RETURN_IF_ERROR(CheckDecode(item.payload, FloatRoomOf(item)));
  return DecodePart{.decode = decode, .span = SpanOf(item, 0)};
}

absl::Status ListCodec::DecodeOnGpu(ConstBytes payload, Bytes out,
                                    Stream stream) const {
  return ReadOnGpu(kernels().sparse_list.decode, payload, out, stream);
}

absl::Status ListCodec::DecodeAddOnGpu(ConstBytes payload, Bytes sum,
                                       Stream stream) const {
  return ReadOnGpu(kernels().sparse_list.decode_add, payload, sum, stream);
}

absl::Status ListCodec::ReadOnGpu(kernels::ReadSparseListFn* read,
                                  ConstBytes payload, Bytes out,
                                  Stream stream) const {
  return parts_.With(stream, kernels::kSparseListScratchBytes, kernels(),
                     [&](Bytes parts) {
                       read(content_, AsCodes(payload), payload.size,
                            num_elems(), AsFloats(out), parts.data, stream);
                       return absl::OkStatus();
                     });
}

}  // namespace telegrad
