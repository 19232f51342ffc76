#include "kvstore/engine/rows/row_codec.h"

#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/engine/rows/rows.h"

namespace telegrad {
namespace {

// What EncodeRows and DecodeRows know of a payload once its ids are read.
struct RowPayload {
  size_t head_bytes = 0;  // the ids
  size_t num_elems = 0;
  // Their codec; null: there are none.
  std::unique_ptr<PreparedCodec> codec = nullptr;
};

absl::StatusOr<RowPayload> Open(const CodecSetting& codec, const Chunk& chunk,
                                size_t row_elems, ConstBytes payload) {
  ASSIGN_OR_RETURN(const std::vector<uint64_t> rows,
                   ReadRows(chunk, row_elems, payload));
  RowPayload opened{.head_bytes = RowIdBytes(rows.size()),
                    .num_elems = RowsIn(chunk, row_elems, rows).num_elems};
  if (opened.num_elems == 0) return opened;
  ASSIGN_OR_RETURN(opened.codec, codec.codec->Prepare(opened.num_elems,
                                                      Device{}, codec.options));
  return opened;
}

Bytes Behind(const Buffer& buffer, size_t head_bytes) {
  return {buffer.data() + head_bytes, buffer.size() - head_bytes};
}

}  // namespace

EncodeParams ParamsOfRows(const CompressionConfig& compression,
                          const Chunk& chunk, uint64_t step, uint64_t source) {
  const bool propagates = compression.nonfinite == NonFinitePolicy::kPropagate;
  return {.nonfinite = propagates ? NonFinite::kPropagate : NonFinite::kZero,
          .stream = StreamOf(chunk),
          .step = step,
          .source = source};
}

absl::StatusOr<Buffer> EncodeRows(const CodecSetting& codec, const Chunk& chunk,
                                  size_t row_elems, ConstBytes rows,
                                  const EncodeParams& params) {
  ASSIGN_OR_RETURN(const RowPayload opened,
                   Open(codec, chunk, row_elems, rows));
  const size_t head = opened.head_bytes;
  const size_t num_bytes =
      opened.codec == nullptr ? 0 : opened.codec->max_encoded_bytes();
  Buffer encoded(head + num_bytes);
  std::memcpy(encoded.data(), rows.data, head);
  if (opened.codec == nullptr) return encoded;
  // Where the codec leaves it alone.
  const Buffer residual(
      opened.codec->traits().needs_residual ? 4 * opened.num_elems : 0);
  CodecState state{.residual = residual.view()};
  EncodeResult result;
  RETURN_IF_ERROR(opened.codec->Encode({rows.data + head, 4 * opened.num_elems},
                                       state, params, Behind(encoded, head),
                                       &result, Stream{}));
  return encoded;
}

absl::StatusOr<Buffer> DecodeRows(const CodecSetting& codec, const Chunk& chunk,
                                  size_t row_elems, ConstBytes encoded) {
  ASSIGN_OR_RETURN(const RowPayload opened,
                   Open(codec, chunk, row_elems, encoded));
  const size_t head = opened.head_bytes;
  const ConstBytes codes(encoded.data + head, encoded.size - head);
  Buffer rows(head + 4 * opened.num_elems);
  std::memcpy(rows.data(), encoded.data, head);
  if (opened.codec == nullptr) {
    if (codes.size == 0) return rows;
    return absl::InvalidArgumentError(
        absl::StrCat(codes.size, " bytes of values of no rows"));
  }
  RETURN_IF_ERROR(opened.codec->Validate(codes));
  RETURN_IF_ERROR(opened.codec->Decode(codes, 0, Behind(rows, head), Stream{}));
  return rows;
}

absl::StatusOr<size_t> MaxEncodedRowBytes(const CodecSetting& codec,
                                          const Chunk& chunk,
                                          size_t row_elems) {
  ASSIGN_OR_RETURN(
      const std::unique_ptr<PreparedCodec> all,
      codec.codec->Prepare(chunk.num_elems, Device{}, codec.options));
  return MaxRowBytes(chunk, row_elems, false) + all->max_encoded_bytes();
}

PayloadFormat FormatOfRows(const CodecSetting& codec) {
  const CodecTraits& traits = codec.codec->traits();
  return {.codec = static_cast<uint8_t>(traits.id),
          .codec_version = traits.wire_version};
}

}  // namespace telegrad
