#include "kernels/sparse_list.h"

#include <cstring>

#include "kernels/reference.h"

namespace telegrad::kernels::reference {
namespace {

using Content = SparseContent;
using Format = IndexFormat;

struct Header {
  uint8_t format = 0;
  uint8_t zero[3] = {};
  uint32_t count = 0;
};
static_assert(sizeof(Header) == 8, "as the payload has it");

size_t CodeBytes(Format format) { return format == Format::kGaps16 ? 2 : 1; }

// Codes of gaps, escapes among them, that the words take.
size_t NumGaps(Content content, const uint32_t* words, size_t count,
               Format format) {
  size_t num_gaps = count;
  uint32_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t index = words[i] >> SignBits(content);
    num_gaps += (index - next) / GapLimit(format, content);
    next = index + 1;
  }
  return num_gaps;
}

void WriteGaps(Content content, const uint32_t* words, size_t count,
               Format format, uint8_t* out) {
  const uint32_t limit = GapLimit(format, content);
  const auto put = [&](uint32_t code) {
    std::memcpy(out, &code, CodeBytes(format));  // little-endian
    out += CodeBytes(format);
  };
  uint32_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t index = words[i] >> SignBits(content);
    uint32_t gap = index - next;
    for (; gap >= limit; gap -= limit) put(GapEscape(format));
    put(gap << SignBits(content) | (words[i] & SignBits(content)));
    next = index + 1;
  }
}

void WriteBitmap(Content content, const uint32_t* words, size_t count, size_t n,
                 uint8_t* out) {
  std::memset(out, 0, BitmapBytes(content, n, count));
  uint8_t* const signs = out + (n + 7) / 8;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t index = words[i] >> SignBits(content);
    out[index / 8] |= static_cast<uint8_t>(1u << index % 8);
    if (SignBits(content) == 0) continue;
    signs[i / 8] |= static_cast<uint8_t>((words[i] & 1) << i % 8);
  }
}

void Write(Content content, const uint32_t* words, const uint64_t* num_words,
           size_t n, float threshold, uint8_t* payload, uint64_t* payload_bytes,
           void*, Stream) {
  const size_t count = *num_words;
  const IndexListSize list =
      SmallestList(NumGaps(content, words, count, Format::kGaps8),
                   NumGaps(content, words, count, Format::kGaps16),
                   BitmapBytes(content, n, count));
  Header header;
  header.format = static_cast<uint8_t>(list.format);
  header.count = static_cast<uint32_t>(count);
  std::memcpy(payload, &header, sizeof(header));
  if (content == Content::kSigns) {
    std::memcpy(payload + sizeof(header), &threshold, sizeof(threshold));
  }
  uint8_t* const out = payload + ListAt(content, count);
  if (list.format == Format::kBitmap) {
    WriteBitmap(content, words, count, n, out);
  } else {
    WriteGaps(content, words, count, list.format, out);
  }
  *payload_bytes = ListAt(content, count) + list.num_bytes;
}

// visit(index, ordinal, sign) of each listed element.
template <typename Visit>
void ForEachGap(Content content, Format format, const uint8_t* list,
                size_t num_bytes, Visit visit) {
  size_t next = 0;
  size_t ordinal = 0;
  for (size_t at = 0; at + CodeBytes(format) <= num_bytes;
       at += CodeBytes(format)) {
    uint32_t code = 0;
    std::memcpy(&code, list + at, CodeBytes(format));
    next += code >> SignBits(content);
    if (code == GapEscape(format)) continue;
    visit(next++, ordinal++, code & SignBits(content));
  }
}

template <typename Visit>
void ForEachBit(Content content, const uint8_t* list, size_t n, size_t count,
                Visit visit) {
  const uint8_t* const signs = list + (n + 7) / 8;
  size_t ordinal = 0;
  for (size_t i = 0; i < n && ordinal < count; ++i) {
    if ((list[i / 8] >> i % 8 & 1) == 0) continue;
    const uint32_t sign =
        SignBits(content) != 0 ? signs[ordinal / 8] >> ordinal % 8 & 1 : 0;
    visit(i, ordinal++, sign);
  }
}

// put(value, index) of each listed element of a payload.
template <typename Put>
void Read(Content content, const uint8_t* payload, size_t num_bytes, size_t n,
          Put put) {
  if (num_bytes < ListAt(content, 0)) return;
  Header header;
  std::memcpy(&header, payload, sizeof(header));
  const size_t count = header.count;
  const size_t list_at = ListAt(content, count);
  if (list_at > num_bytes) return;
  const uint8_t* const values = payload + sizeof(header);
  const auto visit = [&](size_t index, size_t ordinal, uint32_t sign) {
    if (index >= n || ordinal >= count) return;
    const bool has_signs = content == Content::kSigns;
    float value;
    std::memcpy(&value, values + (has_signs ? 0 : 4 * ordinal), sizeof(value));
    put(sign != 0 ? -value : value, index);
  };
  const auto format = static_cast<Format>(header.format);
  if (format == Format::kGaps8 || format == Format::kGaps16) {
    ForEachGap(content, format, payload + list_at, num_bytes - list_at, visit);
  } else if (format == Format::kBitmap &&
             BitmapBytes(content, n, count) <= num_bytes - list_at) {
    ForEachBit(content, payload + list_at, n, count, visit);
  }
}

void Decode(Content content, const uint8_t* payload, size_t num_bytes, size_t n,
            float* out, void*, Stream) {
  std::memset(out, 0, 4 * n);
  Read(content, payload, num_bytes, n,
       [out](float value, size_t index) { out[index] = value; });
}

void DecodeAdd(Content content, const uint8_t* payload, size_t num_bytes,
               size_t n, float* out, void*, Stream) {
  Read(content, payload, num_bytes, n,
       [out](float value, size_t index) { out[index] += value; });
}

}  // namespace

SparseListKernels SparseList() { return {Write, Decode, DecodeAdd}; }

}  // namespace telegrad::kernels::reference
