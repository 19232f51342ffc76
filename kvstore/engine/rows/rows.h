#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor_view.h"
#include "kvstore/engine/codec/shard_plan.h"
#include "kvstore/options.h"

// Rows of a tensor that some views have instead of all, and what travels of
// them in a chunk, which may begin and end within a row:
//   rows  = count:u64 { id:u64 }         strictly ascending, each in the chunk
//   push  = rows { floats }              of each row what lies in the chunk,
//                                        or these by a codec: row_codec.h
// A pull is rows, its answer the floats alone.
namespace telegrad {

// InvalidArgument unless the tensor has rows, the ids are in their range, and
// there are as many bytes of float32 in host memory as the rows have.
absl::Status CheckRowViews(const TensorSpec& tensor,
                           std::span<const TensorView> views, int num_devices);
bool HasRows(std::span<const TensorView> views);

// Ids in order, each once.
std::vector<uint64_t> SortedRows(std::span<const int64_t> rows);
// Rows of a view by SortedRows: repeated ones added, in the view's order.
Buffer AddRows(const TensorSpec& tensor, const TensorView& view,
               std::span<const uint64_t> sorted);
// The other way: each of the view's rows becomes that of `values`.
void GiveRows(const TensorSpec& tensor, std::span<const uint64_t> sorted,
              const float* values, const TensorView& view);

// These two are for `values` of all rows of the tensor.
void AddRows(const TensorSpec& tensor, const TensorView& view, float* values);
void GiveRows(const TensorSpec& tensor, const float* values,
              const TensorView& view);

// The rows that have elements of a chunk, of those sorted.
struct RowRange {
  size_t begin = 0;  // range of the sorted ids
  size_t end = 0;
  size_t num_elems = 0;  // elements that these rows have in the chunk
};
RowRange RowsIn(const Chunk& chunk, size_t row_elems,
                std::span<const uint64_t> sorted);

// `values`: of all sorted rows, null for a pull.
Buffer PackRows(const Chunk& chunk, size_t row_elems,
                std::span<const uint64_t> sorted, const float* values);
// Bytes of that many ids and their count.
constexpr size_t RowIdBytes(size_t num_rows) { return 8 + 8 * num_rows; }
// Bytes of a chunk with all of its rows.
size_t MaxRowBytes(const Chunk& chunk, size_t row_elems, bool has_values);

// Bytes from a network. InvalidArgument unless they are rows of the chunk.
absl::StatusOr<std::vector<uint64_t>> ReadRows(const Chunk& chunk,
                                               size_t row_elems,
                                               ConstBytes payload);
// A push into the chunk's dense elements; all others become 0.
absl::Status SpreadRows(const Chunk& chunk, size_t row_elems,
                        ConstBytes payload, float* dense);
// What a pull is answered with, of the chunk's dense elements.
void CollectRows(const Chunk& chunk, size_t row_elems,
                 std::span<const uint64_t> rows, const float* dense,
                 float* out);
// Puts such an answer to its places in the values of all sorted rows.
void PlaceRows(const Chunk& chunk, size_t row_elems,
               std::span<const uint64_t> sorted, const float* answer,
               float* values);

}  // namespace telegrad
