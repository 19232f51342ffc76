#include "compression/sparse/value_list.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compression/sparse/clear_ahead.h"
#include "compression/sparse/index_list.h"

namespace telegrad {
namespace {

struct Header {
  uint8_t format = 0;
  uint8_t zero[3] = {};
  uint32_t count = 0;
};
static_assert(sizeof(Header) == 8);

Header HeaderOf(ConstBytes payload) {
  Header header;
  std::memcpy(&header, payload.data, sizeof(header));
  return header;
}

std::span<const uint8_t> IndexBytes(ConstBytes payload, size_t count) {
  const size_t from = sizeof(Header) + 4 * count;
  return {reinterpret_cast<const uint8_t*>(payload.data) + from,
          payload.size - from};
}

float ValueAt(ConstBytes payload, size_t i) {
  float value;
  std::memcpy(&value, payload.data + sizeof(Header) + 4 * i, sizeof(value));
  return value;
}

// visit(index, value), in ascending order.
template <typename Visit>
void ForEachValue(ConstBytes payload, size_t n, Visit visit) {
  const Header header = HeaderOf(payload);
  size_t i = 0;
  ForEachIndexBlock<0>(static_cast<IndexFormat>(header.format),
                       IndexBytes(payload, header.count), n,
                       [&](std::span<const uint32_t> indices) {
                         for (const uint32_t index : indices) {
                           visit(index, ValueAt(payload, i++));
                         }
                       });
}

}  // namespace

size_t WriteValueList(std::span<const uint32_t> indices, const float* values,
                      size_t n, Bytes out) {
  const IndexListSize list = SmallestIndexList<0>(indices, n);
  const Header header = {.format = static_cast<uint8_t>(list.format),
                         .count = static_cast<uint32_t>(indices.size())};
  const size_t value_bytes = 4 * indices.size();
  std::memcpy(out.data, &header, sizeof(header));
  if (value_bytes != 0) {
    std::memcpy(out.data + sizeof(header), values, value_bytes);
  }
  WriteIndexList<0>(
      list.format, indices, n,
      reinterpret_cast<uint8_t*>(out.data) + sizeof(header) + value_bytes);
  return sizeof(header) + value_bytes + list.num_bytes;
}

absl::Status ValidateValueList(ConstBytes payload, size_t n, size_t max_count) {
  if (payload.size < sizeof(Header)) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload of ", payload.size, " bytes"));
  }
  const Header header = HeaderOf(payload);
  if ((header.zero[0] | header.zero[1] | header.zero[2]) != 0) {
    return absl::InvalidArgumentError("reserved bytes are not 0");
  }
  if (header.count > max_count ||
      sizeof(Header) + 4 * size_t{header.count} > payload.size) {
    return absl::InvalidArgumentError(
        absl::StrCat(header.count, " values in ", payload.size,
                     " bytes; at most ", max_count, " are sent"));
  }
  for (size_t i = 0; i < header.count; ++i) {
    const float value = ValueAt(payload, i);
    if (!std::isfinite(value) || value == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("value ", i, " is ", value));
    }
  }
  return ValidateIndexList<0>(header.format, IndexBytes(payload, header.count),
                              header.count, n);
}

void DecodeValueList(ConstBytes payload, size_t n, float* out) {
  ClearAhead clear(out, n);
  ForEachValue(payload, n, [&](size_t index, float value) {
    clear.Until(index);
    out[index] = value;
  });
  clear.All();
}

void AddValueList(ConstBytes payload, size_t n, float* sum) {
  ForEachValue(payload, n,
               [sum](size_t index, float value) { sum[index] += value; });
}

}  // namespace telegrad
