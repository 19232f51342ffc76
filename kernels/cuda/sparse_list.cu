#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/parts.cuh"
#include "kernels/cuda/sparse_list_read.cuh"
#include "kernels/cuda/sparse_many.h"
#include "kernels/sparse_list.h"
#include "kernels/sparse_scratch.h"

namespace telegrad::kernels::cuda {
namespace {

// Escapes of both gaps in one word, as none has more than 2^32.
__device__ inline Word PackEscapes(uint32_t in8, uint32_t in16) {
  return in8 | Word{in16} << 32;
}
__device__ inline uint32_t EscapesOf(Word packed, Format format) {
  return static_cast<uint32_t>(format == Format::kGaps8 ? packed
                                                        : packed >> 32);
}

struct Words {
  const uint32_t* words;
  const Word* count;
  size_t n;
};

// A list that is to be written.
struct Listing {
  Words words;
  float threshold;
  uint8_t* payload;
  Word* payload_bytes;
  Word* parts;
};

// The block's of a list's parts.
template <class Source>
__device__ inline Share PartShare(const Source& source, size_t n) {
  // With one word in eight elements or more, each part takes several steps.
  Share share = source.ShareOf(n / 8 / kPartItems);
  if (share.num_blocks > kSparseListParts) share.num_blocks = kSparseListParts;
  return share;
}

// What lies between word i and the one before.
template <SparseContent kContent>
__device__ inline uint32_t GapAt(const uint32_t* words, size_t i) {
  const uint32_t index = words[i] >> SignBits(kContent);
  return i == 0 ? index : index - (words[i - 1] >> SignBits(kContent)) - 1;
}

template <SparseContent kContent, class Source>
__global__ void CountGapsKernel(const __grid_constant__ Source source) {
  __shared__ Word warp_sums[kWarps];
  const Listing& list = source.Get();
  const Words& w = list.words;
  const Share share = PartShare(source, w.n);
  if (share.is_none()) return;
  constexpr uint32_t kLimit8 = GapLimit(Format::kGaps8, kContent);
  constexpr uint32_t kLimit16 = GapLimit(Format::kGaps16, kContent);
  const size_t count = *w.count;
  const Part part = PartOf(count, share);
  Word escapes = 0;
  for (size_t i = part.begin + threadIdx.x; i < part.end; i += kThreads) {
    const uint32_t gap = GapAt<kContent>(w.words, i);
    escapes += PackEscapes(gap / kLimit8, gap / kLimit16);
  }
  Word total = 0;
  CountsBefore(escapes, warp_sums, &total);
  if (threadIdx.x == 0) list.parts[share.block] = total;
  // Gaps may be larger than a bitmap only then.
  if (count + w.n / kLimit8 < BitmapBytes(kContent, w.n, count)) return;
  auto* const map =
      reinterpret_cast<uint32_t*>(list.payload + ListAt(kContent, count));
  const size_t map_bytes = (w.n + 7) / 8;
  const size_t thread = share.thread();
  for (size_t i = thread; i < map_bytes / 4; i += share.num_threads()) {
    map[i] = 0;
  }
  if (thread < map_bytes % 4) {
    reinterpret_cast<uint8_t*>(map)[map_bytes / 4 * 4 + thread] = 0;
  }
}

// `before` and `own` are escapes.
template <SparseContent kContent, typename Gap>
__device__ inline void WriteGaps(const uint32_t* words, Part part,
                                 size_t before, size_t own, Gap* out,
                                 Word (&warp_sums)[kWarps]) {
  constexpr Format kFormat =
      sizeof(Gap) == 1 ? Format::kGaps8 : Format::kGaps16;
  constexpr uint32_t kLimit = GapLimit(kFormat, kContent);
  constexpr uint32_t kSignBit = SignBits(kContent);
  for (size_t i = part.begin + before + threadIdx.x;
       i < part.end + before + own; i += kThreads) {
    out[i] = static_cast<Gap>(GapEscape(kFormat));
  }
  for (size_t from = part.begin; from < part.end; from += kThreads) {
    __syncthreads();
    const size_t i = from + threadIdx.x;
    const uint32_t gap = i < part.end ? GapAt<kContent>(words, i) : 0;
    const uint32_t escapes = gap / kLimit;
    Word total = 0;
    const Word at = before + CountsBefore(escapes, warp_sums, &total) + escapes;
    if (i < part.end) {
      out[i + at] = static_cast<Gap>((gap - escapes * kLimit) << kSignBit |
                                     (words[i] & kSignBit));
    }
    before += total;
  }
}

// The map is clear. The first word of a byte sets all its bits.
template <SparseContent kContent>
__device__ inline void WriteBits(const Words& w, Part part, size_t count,
                                 uint8_t* map) {
  constexpr uint32_t kShift = SignBits(kContent) + 3;
  uint8_t* const signs = map + (w.n + 7) / 8;
  for (size_t i = part.begin + threadIdx.x; i < part.end; i += kThreads) {
    const uint32_t byte = w.words[i] >> kShift;
    if (i == 0 || w.words[i - 1] >> kShift != byte) {
      uint32_t bits = 0;
      for (size_t j = i; j < count && w.words[j] >> kShift == byte; ++j) {
        bits |= 1u << (w.words[j] >> SignBits(kContent) & 7u);
      }
      map[byte] = static_cast<uint8_t>(bits);
    }
    if (kContent == SparseContent::kSigns && i % 8 == 0) {
      uint32_t bits = 0;
      for (size_t j = i; j < count && j < i + 8; ++j) {
        bits |= (w.words[j] & 1u) << (j - i);
      }
      signs[i / 8] = static_cast<uint8_t>(bits);
    }
  }
}

template <SparseContent kContent, class Source>
__global__ void WriteListKernel(const __grid_constant__ Source source) {
  __shared__ Word warp_sums[kWarps];
  source.SampleBehind();
  const Listing& l = source.Get();
  const Words& w = l.words;
  const Share share = PartShare(source, w.n);
  if (share.is_none()) return;
  Word total = 0;
  const Word before = PartsBefore(l.parts, share, warp_sums, &total);
  const size_t count = *w.count;
  const IndexListSize list =
      SmallestList(count + EscapesOf(total, Format::kGaps8),
                   count + EscapesOf(total, Format::kGaps16),
                   BitmapBytes(kContent, w.n, count));
  if (share.thread() == 0) {
    auto* const header = reinterpret_cast<uint32_t*>(l.payload);
    header[0] = static_cast<uint32_t>(list.format);  // little-endian
    header[1] = static_cast<uint32_t>(count);
    if (kContent == SparseContent::kSigns) {
      header[2] = __float_as_uint(l.threshold);
    }
    *l.payload_bytes = ListAt(kContent, count) + list.num_bytes;
  }
  const Part part = PartOf(count, share);
  uint8_t* const out = l.payload + ListAt(kContent, count);
  const uint32_t escapes = EscapesOf(before, list.format);
  const uint32_t own = EscapesOf(l.parts[share.block], list.format);
  if (list.format == Format::kGaps8) {
    WriteGaps<kContent>(w.words, part, escapes, own, out, warp_sums);
  } else if (list.format == Format::kGaps16) {
    WriteGaps<kContent>(w.words, part, escapes, own,
                        reinterpret_cast<uint16_t*>(out), warp_sums);
  } else {
    WriteBits<kContent>(w, part, count, out);
  }
}

template <SparseContent kContent, class Source>
void WriteList(const Source& source, unsigned grid, Stream stream) {
  CountGapsKernel<kContent, Source>
      <<<grid, kThreads, 0, StreamOf(stream)>>>(source);
  WriteListKernel<kContent, Source>
      <<<grid, kThreads, 0, StreamOf(stream)>>>(source);
}

template <SparseContent kContent, bool kAdd>
void ReadList(const Reading& reading, Stream stream) {
  const unsigned grid = NumParts(reading.num_bytes);
  const OneAnswer source = {reading};
  CountCodesKernel<kContent, OneAnswer>
      <<<grid, kThreads, 0, StreamOf(stream)>>>(source);
  ReadListKernel<kContent, kAdd, OneAnswer>
      <<<grid, kThreads, 0, StreamOf(stream)>>>(source);
}

template <SparseContent kContent>
void ReadMany(const DecodeBatch& batch, Stream stream) {
  if (batch.num_tiles == 0) return;
  const EachAnswer source = {batch};
  CountCodesKernel<kContent, EachAnswer>
      <<<batch.num_tiles, kThreads, 0, StreamOf(stream)>>>(source);
  ReadListKernel<kContent, false, EachAnswer>
      <<<batch.num_tiles, kThreads, 0, StreamOf(stream)>>>(source);
}

void Write(SparseContent content, const uint32_t* words,
           const uint64_t* num_words, size_t n, float threshold,
           uint8_t* payload, uint64_t* payload_bytes, void* scratch,
           Stream stream) {
  auto* const write = content == SparseContent::kSigns
                          ? WriteList<SparseContent::kSigns, One<Listing>>
                          : WriteList<SparseContent::kValues, One<Listing>>;
  write({{{words, reinterpret_cast<const Word*>(num_words), n},
          threshold,
          payload,
          reinterpret_cast<Word*>(payload_bytes),
          static_cast<Word*>(scratch)}},
        NumParts(n / 8), stream);
}

// Arrays of a batch.
struct SignsSpan {
  static __device__ Listing Of(const EncodeSpan& span) {
    const ThresholdScratch s(Global(span.scratch), span.num_elems);
    return {{s.survivors, reinterpret_cast<Word*>(s.count), span.num_elems},
            span.threshold,
            Global(span.codes),
            reinterpret_cast<Word*>(&Global(span.result)->encoded_bytes),
            reinterpret_cast<Word*>(s.parts)};
  }
};
struct ValuesSpan {
  static __device__ Listing Of(const EncodeSpan& span) {
    const TopKScratch s(Global(span.scratch), span.num_elems);
    return {{s.kept, reinterpret_cast<Word*>(s.num_kept), span.num_elems},
            0,
            Global(span.codes),
            reinterpret_cast<Word*>(&Global(span.result)->encoded_bytes),
            reinterpret_cast<Word*>(s.work)};
  }
};

template <bool kAdd>
void Read(SparseContent content, const uint8_t* payload, size_t num_bytes,
          size_t n, float* out, void* scratch, Stream stream) {
  if (!kAdd) cudaMemsetAsync(out, 0, 4 * n, StreamOf(stream));
  auto* const read = content == SparseContent::kSigns
                         ? ReadList<SparseContent::kSigns, kAdd>
                         : ReadList<SparseContent::kValues, kAdd>;
  const DecodeOut floats = {reinterpret_cast<uint8_t*>(out),
                            GradFormat::kFloat32};
  read({payload, num_bytes, n, floats, 1, static_cast<Word*>(scratch)}, stream);
}

}  // namespace

void WriteSignsMany(const EncodeBatch& batch, Stream stream) {
  WriteList<SparseContent::kSigns>(Each<SignsSpan>{batch}, batch.num_tiles,
                                   stream);
}
void WriteValuesMany(const EncodeBatch& batch, Stream stream) {
  WriteList<SparseContent::kValues>(Each<ValuesSpan>{batch}, batch.num_tiles,
                                    stream);
}

void SignListDecodeMany(const DecodeBatch& batch, Stream stream) {
  ReadMany<SparseContent::kSigns>(batch, stream);
}
void ValueListDecodeMany(const DecodeBatch& batch, Stream stream) {
  ReadMany<SparseContent::kValues>(batch, stream);
}

SparseListKernels SparseList() { return {Write, Read<false>, Read<true>}; }

}  // namespace telegrad::kernels::cuda
