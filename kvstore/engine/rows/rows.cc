#include "kvstore/engine/rows/rows.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "base/status_macros.h"
#include "kernels/dispatch.h"

namespace telegrad {
namespace {

constexpr size_t kIdBytes = 8;  // bytes of a count, and of an id

// What of a row lies in a chunk.
struct Piece {
  size_t in_row = 0;
  size_t in_chunk = 0;
  size_t num_elems = 0;
};
Piece PieceOf(const Chunk& chunk, size_t row_elems, uint64_t row) {
  const size_t first = static_cast<size_t>(row) * row_elems;
  const size_t begin = std::max(first, chunk.begin);
  const size_t end = std::min(first + row_elems, chunk.begin + chunk.num_elems);
  if (begin >= end) return {};
  return {begin - first, begin - chunk.begin, end - begin};
}

// The first row of a chunk, and how many there are.
size_t FirstRow(const Chunk& chunk, size_t row_elems) {
  return chunk.begin / row_elems;
}
size_t NumRows(const Chunk& chunk, size_t row_elems) {
  return (chunk.begin + chunk.num_elems - 1) / row_elems + 1 -
         FirstRow(chunk, row_elems);
}

// A row's place among sorted ones.
auto PlacesIn(std::span<const uint64_t> sorted) {
  return [sorted](int64_t row) {
    return std::lower_bound(sorted.begin(), sorted.end(),
                            static_cast<uint64_t>(row)) -
           sorted.begin();
  };
}

// `place`: of a row in `values`.
template <typename Place>
void AddRowsTo(const TensorSpec& tensor, const TensorView& view, float* values,
               const Place& place) {
  const size_t n = tensor.row_elems;
  const auto* from = reinterpret_cast<const float*>(view.bytes.data);
  for (const int64_t row : *view.rows) {
    float* const to = values + static_cast<size_t>(place(row)) * n;
    kernels::CpuKernels().add_f32(from, n, to, {});
    from += n;
  }
}

template <typename Place>
void GiveRowsOf(const TensorSpec& tensor, const float* values,
                const TensorView& view, const Place& place) {
  const size_t n = tensor.row_elems;
  std::byte* to = view.bytes.data;
  for (const int64_t row : *view.rows) {
    std::memcpy(to, values + static_cast<size_t>(place(row)) * n, 4 * n);
    to += 4 * n;
  }
}

}  // namespace

bool HasRows(std::span<const TensorView> views) {
  return std::any_of(views.begin(), views.end(), [](const TensorView& view) {
    return view.rows.has_value();
  });
}

absl::Status CheckRowViews(const TensorSpec& tensor,
                           std::span<const TensorView> views, int num_devices) {
  if (tensor.row_elems == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", tensor.name, " has no rows: TensorSpec::row_elems is 0"));
  }
  const bool is_on_host =
      std::all_of(tensor.devices.begin(), tensor.devices.end(),
                  [](Device device) { return device == Device{}; });
  if (tensor.dtype != Dtype::kFloat32 || !is_on_host) {
    return absl::UnimplementedError(
        absl::StrCat("tensor ", tensor.name, " of ", ToString(tensor.dtype),
                     is_on_host ? "" : " on a device",
                     ": rows are of float32 in host memory"));
  }
  if (views.size() != static_cast<size_t>(num_devices)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", tensor.name, " with ", views.size(),
                     " views in a store of ", num_devices));
  }
  const auto num_rows =
      static_cast<int64_t>(tensor.num_elems / tensor.row_elems);
  for (const TensorView& view : views) {
    if (!view.rows.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", tensor.name, ": views with row ids and without"));
    }
    for (const int64_t row : *view.rows) {
      if (row >= 0 && row < num_rows) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", tensor.name, " has rows 0 to ", num_rows - 1,
                       "; a view has row ", row));
    }
    const size_t num_bytes = 4 * tensor.row_elems * view.rows->size();
    if (view.dtype == Dtype::kFloat32 && view.bytes.size == num_bytes &&
        view.bytes.device == Device{}) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", tensor.name, ": ", view.rows->size(), " rows of ",
        tensor.row_elems, " elements have ", num_bytes,
        " bytes of float32 in host memory; this view has ", view.bytes.size,
        " bytes of ", ToString(view.dtype),
        view.bytes.device == Device{} ? "" : " on a device"));
  }
  return absl::OkStatus();
}

std::vector<uint64_t> SortedRows(std::span<const int64_t> rows) {
  std::vector<uint64_t> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  return sorted;
}

Buffer AddRows(const TensorSpec& tensor, const TensorView& view,
               std::span<const uint64_t> sorted) {
  Buffer sums(4 * tensor.row_elems * sorted.size());
  AddRowsTo(tensor, view, sums.as<float>(), PlacesIn(sorted));
  return sums;
}

void AddRows(const TensorSpec& tensor, const TensorView& view, float* values) {
  AddRowsTo(tensor, view, values, std::identity());
}

void GiveRows(const TensorSpec& tensor, std::span<const uint64_t> sorted,
              const float* values, const TensorView& view) {
  GiveRowsOf(tensor, values, view, PlacesIn(sorted));
}

void GiveRows(const TensorSpec& tensor, const float* values,
              const TensorView& view) {
  GiveRowsOf(tensor, values, view, std::identity());
}

RowRange RowsIn(const Chunk& chunk, size_t row_elems,
                std::span<const uint64_t> sorted) {
  const uint64_t first = FirstRow(chunk, row_elems);
  const uint64_t last = first + NumRows(chunk, row_elems);
  RowRange range;
  range.begin = static_cast<size_t>(
      std::lower_bound(sorted.begin(), sorted.end(), first) - sorted.begin());
  range.end = static_cast<size_t>(
      std::lower_bound(sorted.begin(), sorted.end(), last) - sorted.begin());
  for (size_t i = range.begin; i < range.end; ++i) {
    range.num_elems += PieceOf(chunk, row_elems, sorted[i]).num_elems;
  }
  return range;
}

Buffer PackRows(const Chunk& chunk, size_t row_elems,
                std::span<const uint64_t> sorted, const float* values) {
  const RowRange range = RowsIn(chunk, row_elems, sorted);
  const size_t count = range.end - range.begin;
  const size_t num_floats = values == nullptr ? 0 : range.num_elems;
  Buffer payload(RowIdBytes(count) + 4 * num_floats);
  std::byte* at = payload.data();
  StoreLittleEndian(at, uint64_t{count});
  for (size_t i = range.begin; i < range.end; ++i) {
    StoreLittleEndian(at += kIdBytes, sorted[i]);
  }
  at += kIdBytes;
  for (size_t i = range.begin; values != nullptr && i < range.end; ++i) {
    const Piece piece = PieceOf(chunk, row_elems, sorted[i]);
    std::memcpy(at, values + i * row_elems + piece.in_row, 4 * piece.num_elems);
    at += 4 * piece.num_elems;
  }
  return payload;
}

size_t MaxRowBytes(const Chunk& chunk, size_t row_elems, bool has_values) {
  return RowIdBytes(NumRows(chunk, row_elems)) +
         (has_values ? 4 * chunk.num_elems : 0);
}

absl::StatusOr<std::vector<uint64_t>> ReadRows(const Chunk& chunk,
                                               size_t row_elems,
                                               ConstBytes payload) {
  const size_t most = NumRows(chunk, row_elems);
  uint64_t count = UINT64_MAX;
  if (payload.size >= kIdBytes)
    count = LoadLittleEndian<uint64_t>(payload.data);
  if (count > most || payload.size < kIdBytes + kIdBytes * count) {
    return absl::InvalidArgumentError(absl::StrCat(
        payload.size, " bytes of row ids for a chunk of ", most, " rows"));
  }
  std::vector<uint64_t> rows(static_cast<size_t>(count));
  const uint64_t first = FirstRow(chunk, row_elems);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = LoadLittleEndian<uint64_t>(payload.data + kIdBytes * (i + 1));
    if (rows[i] >= first && rows[i] - first < most &&
        (i == 0 || rows[i] > rows[i - 1])) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("row ", rows[i], " out of order, or not of rows ", first,
                     " to ", first + most - 1));
  }
  return rows;
}

absl::Status SpreadRows(const Chunk& chunk, size_t row_elems,
                        ConstBytes payload, float* dense) {
  ASSIGN_OR_RETURN(const std::vector<uint64_t> rows,
                   ReadRows(chunk, row_elems, payload));
  const RowRange range = RowsIn(chunk, row_elems, rows);
  const size_t head = RowIdBytes(rows.size());
  if (payload.size != head + 4 * range.num_elems) {
    return absl::InvalidArgumentError(absl::StrCat(rows.size(), " rows in ",
                                                   payload.size, " bytes, not ",
                                                   head + 4 * range.num_elems));
  }
  std::memset(dense, 0, 4 * chunk.num_elems);
  const std::byte* from = payload.data + head;
  for (const uint64_t row : rows) {
    const Piece piece = PieceOf(chunk, row_elems, row);
    std::memcpy(dense + piece.in_chunk, from, 4 * piece.num_elems);
    from += 4 * piece.num_elems;
  }
  return absl::OkStatus();
}

void CollectRows(const Chunk& chunk, size_t row_elems,
                 std::span<const uint64_t> rows, const float* dense,
                 float* out) {
  for (const uint64_t row : rows) {
    const Piece piece = PieceOf(chunk, row_elems, row);
    std::memcpy(out, dense + piece.in_chunk, 4 * piece.num_elems);
    out += piece.num_elems;
  }
}

void PlaceRows(const Chunk& chunk, size_t row_elems,
               std::span<const uint64_t> sorted, const float* answer,
               float* values) {
  const RowRange range = RowsIn(chunk, row_elems, sorted);
  for (size_t i = range.begin; i < range.end; ++i) {
    const Piece piece = PieceOf(chunk, row_elems, sorted[i]);
    std::memcpy(values + i * row_elems + piece.in_row, answer,
                4 * piece.num_elems);
    answer += piece.num_elems;
  }
}

}  // namespace telegrad
