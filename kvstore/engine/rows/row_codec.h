#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "compression/codec.h"
#include "kvstore/engine/codec/settings.h"
#include "kvstore/engine/codec/shard_plan.h"

// Pushes of rows with values by a codec (engine/rows.h): the elements of all
// rows in a chunk, one behind the other, are encoded as a gradient of their
// own. Each push may have other rows, so that only codecs fit that keep nothing
// between steps.
namespace telegrad {

EncodeParams ParamsOfRows(const CompressionConfig& compression,
                          const Chunk& chunk, uint64_t step, uint64_t source);
// `rows` is what PackRows gives.
absl::StatusOr<Buffer> EncodeRows(const CodecSetting& codec, const Chunk& chunk,
                                  size_t row_elems, ConstBytes rows,
                                  const EncodeParams& params);
// And back, with the values that codes stand for. Bytes from a network:
// InvalidArgument unless EncodeRows can have written them.
absl::StatusOr<Buffer> DecodeRows(const CodecSetting& codec, const Chunk& chunk,
                                  size_t row_elems, ConstBytes encoded);
// The most bytes that EncodeRows writes, for all of a chunk's rows.
absl::StatusOr<size_t> MaxEncodedRowBytes(const CodecSetting& codec,
                                          const Chunk& chunk, size_t row_elems);
PayloadFormat FormatOfRows(const CodecSetting& codec);

}  // namespace telegrad
