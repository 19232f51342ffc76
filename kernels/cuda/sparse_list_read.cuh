#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/parts.cuh"
#include "kernels/sparse_list.h"

// Payloads of sparse codecs, read by kernels of two launches: parts.cuh.
namespace telegrad::kernels::cuda {

using Format = IndexFormat;

// A payload's header, checked against its size; no codes where it is wrong.
struct List {
  Format format;
  size_t count;
  const uint8_t* codes;
  size_t num_codes;
};

template <SparseContent kContent>
__device__ inline List ListOf(const uint8_t* payload, size_t num_bytes,
                              size_t n) {
  List list = {Format::kBitmap, 0, payload, 0};
  if (num_bytes < ListAt(kContent, 0)) return list;
  list.format = static_cast<Format>(payload[0]);
  list.count = reinterpret_cast<const uint32_t*>(payload)[1];
  const size_t at = ListAt(kContent, list.count);
  if (at > num_bytes) return list;
  list.codes = payload + at;
  if (list.format == Format::kGaps8) {
    list.num_codes = num_bytes - at;
  } else if (list.format == Format::kGaps16) {
    list.num_codes = (num_bytes - at) / 2;
  } else if (list.format == Format::kBitmap &&
             BitmapBytes(kContent, n, list.count) <= num_bytes - at) {
    list.num_codes = (n + 7) / 8;
  }
  return list;
}

// Codes [i, i + kPartItems) of a list; i is a multiple of kPartItems. Returns
// how many there are.
template <Format kFormat>
__device__ inline unsigned LoadCodes(const List& list, size_t i,
                                     uint32_t (&codes)[kPartItems]) {
  if (i >= list.num_codes) return 0;
  const size_t left = list.num_codes - i;
  if (left >= kPartItems) {
    if (kFormat == Format::kGaps16) {
      const auto* const words =
          reinterpret_cast<const uint32_t*>(list.codes) + i / 2;
#pragma unroll
      for (unsigned j = 0; j < kPartItems; ++j) {
        codes[j] = words[j / 2] >> j % 2 * 16 & 0xFFFFu;
      }
    } else {
      const uint32_t word =
          reinterpret_cast<const uint32_t*>(list.codes)[i / 4];
#pragma unroll
      for (unsigned j = 0; j < kPartItems; ++j)
        codes[j] = word >> 8 * j & 0xFFu;
    }
    return kPartItems;
  }
#pragma unroll
  for (unsigned j = 0; j < kPartItems; ++j) {
    if (j >= left) continue;
    codes[j] = kFormat == Format::kGaps16
                   ? reinterpret_cast<const uint16_t*>(list.codes)[i + j]
                   : list.codes[i + j];
  }
  return static_cast<unsigned>(left);
}

// What a code tells of: elements in the lower half, listed ones in the upper.
template <SparseContent kContent, Format kFormat>
__device__ inline Word Told(uint32_t code) {
  if (kFormat == Format::kBitmap) return Word(__popc(code)) << 32;
  const uint32_t is_index = code != GapEscape(kFormat) ? 1 : 0;
  return Word{(code >> SignBits(kContent)) + is_index} | Word{is_index} << 32;
}

template <SparseContent kContent, Format kFormat>
__device__ inline Word ToldOf(const uint32_t (&codes)[kPartItems],
                              unsigned num) {
  Word told = 0;
#pragma unroll
  for (unsigned j = 0; j < kPartItems; ++j) {
    if (j < num) told += Told<kContent, kFormat>(codes[j]);
  }
  return told;
}

// What a payload is read into, multiplied by `scale`.
struct Reading {
  const uint8_t* payload;
  size_t num_bytes;
  size_t n;
  DecodeOut out;
  float scale;
  Word* parts;
};

// One payload, to what is 0 already unless it is added to.
struct OneAnswer {
  Reading reading;

  __device__ const Reading& Get() const { return reading; }
  __device__ Share ShareOf() const { return ShareOfGrid(); }
  __device__ void Clear() const {}
};

// All payloads of a batch.
struct EachAnswer {
  DecodeBatch batch;

  __device__ Reading Get() const {
    const DecodeTile tile = TileOf(batch);
    const DecodeSpan& span = *tile.span;
    return {tile.codes, span.num_bytes, span.num_elems,
            tile.out,   span.scale,     AsWords(batch.parts) + span.first_tile};
  }
  __device__ Share ShareOf() const {
    const DecodeSpan& span = *TileOf(batch).span;
    Share share = ShareOfTile(batch, span, span.num_elems);
    if (share.num_blocks > kSparseListParts) {
      share.num_blocks = kSparseListParts;
    }
    return share;
  }
  __device__ void Clear() const { ClearTile(batch, TileOf(batch)); }

 private:
  static __device__ Word* AsWords(uint64_t* parts) {
    return reinterpret_cast<Word*>(Global(parts));
  }
};

template <SparseContent kContent, bool kAdd>
__device__ inline void Put(const Reading& r, const List& list, size_t index,
                           size_t ordinal, uint32_t sign) {
  if (index >= r.n || ordinal >= list.count) return;
  const auto* const values = reinterpret_cast<const float*>(r.payload + 8);
  const float value = kContent == SparseContent::kValues ? values[ordinal]
                      : sign != 0                        ? -values[0]
                                                         : values[0];
  if (kAdd) {
    float* const sums = reinterpret_cast<float*>(r.out.to);
    sums[index] = sums[index] + value;
  } else {
    r.out.StoreOne(r.scale == 1 ? value : value * r.scale, index);
  }
}

// Puts what a code tells of, after all that `before` tells of.
template <SparseContent kContent, bool kAdd, Format kFormat>
__device__ inline void PutCode(const Reading& r, const List& list, size_t i,
                               uint32_t code, Word before) {
  size_t ordinal = before >> 32;
  if (kFormat != Format::kBitmap) {
    if (code == GapEscape(kFormat)) return;
    const auto next = static_cast<uint32_t>(before);
    Put<kContent, kAdd>(r, list, next + (code >> SignBits(kContent)), ordinal,
                        code & SignBits(kContent));
    return;
  }
  const uint8_t* const signs = list.codes + list.num_codes;
  for (; code != 0; code &= code - 1, ++ordinal) {
    const bool is_signed =
        kContent == SparseContent::kSigns && ordinal < list.count;
    Put<kContent, kAdd>(r, list, 8 * i + (__ffs(code) - 1), ordinal,
                        is_signed ? signs[ordinal / 8] >> ordinal % 8 & 1 : 0);
  }
}

template <SparseContent kContent, Format kFormat>
__device__ inline Word ToldBy(const List& list, const Share& share) {
  const Part part = PartOf(list.num_codes, share);
  Word told = 0;
  for (size_t i = part.begin + kPartItems * threadIdx.x; i < part.end;
       i += kPartStep) {
    uint32_t codes[kPartItems] = {};
    const unsigned num = LoadCodes<kFormat>(list, i, codes);
    told += ToldOf<kContent, kFormat>(codes, num);
  }
  return told;
}

template <SparseContent kContent, bool kAdd, Format kFormat>
__device__ inline void ReadPart(const Reading& r, const List& list,
                                const Share& share, Word before,
                                Word (&warp_sums)[kWarps]) {
  const Part part = PartOf(list.num_codes, share);
  for (size_t from = part.begin; from < part.end; from += kPartStep) {
    __syncthreads();
    const size_t i = from + kPartItems * threadIdx.x;
    uint32_t codes[kPartItems] = {};
    const unsigned num = LoadCodes<kFormat>(list, i, codes);
    Word total = 0;
    Word at = before + CountsBefore(ToldOf<kContent, kFormat>(codes, num),
                                    warp_sums, &total);
#pragma unroll
    for (unsigned j = 0; j < kPartItems; ++j) {
      if (j >= num) continue;
      PutCode<kContent, kAdd, kFormat>(r, list, i + j, codes[j], at);
      at += Told<kContent, kFormat>(codes[j]);
    }
    before += total;
  }
}

template <SparseContent kContent, class Source>
__global__ void CountCodesKernel(const __grid_constant__ Source source) {
  __shared__ Word warp_sums[kWarps];
  source.Clear();
  const Share share = source.ShareOf();
  if (share.is_none()) return;
  const Reading& r = source.Get();
  const List list = ListOf<kContent>(r.payload, r.num_bytes, r.n);
  const Word told = list.format == Format::kGaps8
                        ? ToldBy<kContent, Format::kGaps8>(list, share)
                    : list.format == Format::kGaps16
                        ? ToldBy<kContent, Format::kGaps16>(list, share)
                        : ToldBy<kContent, Format::kBitmap>(list, share);
  Word total = 0;
  CountsBefore(told, warp_sums, &total);
  if (threadIdx.x == 0) r.parts[share.block] = total;
}

template <SparseContent kContent, bool kAdd, class Source>
__global__ void ReadListKernel(const __grid_constant__ Source source) {
  __shared__ Word warp_sums[kWarps];
  const Share share = source.ShareOf();
  if (share.is_none()) return;
  const Reading& r = source.Get();
  const List list = ListOf<kContent>(r.payload, r.num_bytes, r.n);
  Word total = 0;
  const Word before = PartsBefore(r.parts, share, warp_sums, &total);
  if (list.format == Format::kGaps8) {
    ReadPart<kContent, kAdd, Format::kGaps8>(r, list, share, before, warp_sums);
  } else if (list.format == Format::kGaps16) {
    ReadPart<kContent, kAdd, Format::kGaps16>(r, list, share, before,
                                              warp_sums);
  } else {
    ReadPart<kContent, kAdd, Format::kBitmap>(r, list, share, before,
                                              warp_sums);
  }
}

}  // namespace telegrad::kernels::cuda
