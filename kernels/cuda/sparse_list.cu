#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/parts.cuh"
#include "kernels/cuda/sparse_list_read.cuh"
#include "kernels/sparse_list.h"

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

// What lies between word i and the one before.
template <SparseContent kContent>
__device__ inline uint32_t GapAt(const uint32_t* words, size_t i) {
  const uint32_t index = words[i] >> SignBits(kContent);
  return i == 0 ? index : index - (words[i - 1] >> SignBits(kContent)) - 1;
}

template <SparseContent kContent>
__global__ void CountGapsKernel(Words w, uint8_t* payload, Word* parts) {
  __shared__ Word warp_sums[kWarps];
  constexpr uint32_t kLimit8 = GapLimit(Format::kGaps8, kContent);
  constexpr uint32_t kLimit16 = GapLimit(Format::kGaps16, kContent);
  const size_t count = *w.count;
  const Part part = PartOf(count);
  Word escapes = 0;
  for (size_t i = part.begin + threadIdx.x; i < part.end; i += kThreads) {
    const uint32_t gap = GapAt<kContent>(w.words, i);
    escapes += PackEscapes(gap / kLimit8, gap / kLimit16);
  }
  Word total = 0;
  CountsBefore(escapes, warp_sums, &total);
  if (threadIdx.x == 0) parts[blockIdx.x] = total;
  // Gaps may be larger than a bitmap only then.
  if (count + w.n / kLimit8 < BitmapBytes(kContent, w.n, count)) return;
  auto* const map =
      reinterpret_cast<uint32_t*>(payload + ListAt(kContent, count));
  const size_t map_bytes = (w.n + 7) / 8;
  const size_t thread = GlobalThread();
  for (size_t i = thread; i < map_bytes / 4; i += NumThreads()) map[i] = 0;
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

template <SparseContent kContent>
__global__ void WriteListKernel(Words w, float threshold, uint8_t* payload,
                                Word* payload_bytes, const Word* parts) {
  __shared__ Word warp_sums[kWarps];
  Word total = 0;
  const Word before = PartsBefore(parts, warp_sums, &total);
  const size_t count = *w.count;
  const IndexListSize list =
      SmallestList(count + EscapesOf(total, Format::kGaps8),
                   count + EscapesOf(total, Format::kGaps16),
                   BitmapBytes(kContent, w.n, count));
  if (GlobalThread() == 0) {
    auto* const header = reinterpret_cast<uint32_t*>(payload);
    header[0] = static_cast<uint32_t>(list.format);  // little-endian
    header[1] = static_cast<uint32_t>(count);
    if (kContent == SparseContent::kSigns) {
      header[2] = __float_as_uint(threshold);
    }
    *payload_bytes = ListAt(kContent, count) + list.num_bytes;
  }
  const Part part = PartOf(count);
  uint8_t* const out = payload + ListAt(kContent, count);
  const uint32_t escapes = EscapesOf(before, list.format);
  const uint32_t own = EscapesOf(parts[blockIdx.x], list.format);
  if (list.format == Format::kGaps8) {
    WriteGaps<kContent>(w.words, part, escapes, own, out, warp_sums);
  } else if (list.format == Format::kGaps16) {
    WriteGaps<kContent>(w.words, part, escapes, own,
                        reinterpret_cast<uint16_t*>(out), warp_sums);
  } else {
    WriteBits<kContent>(w, part, count, out);
  }
}

template <SparseContent kContent>
void WriteList(const Words& words, float threshold, uint8_t* payload,
               Word* payload_bytes, Word* parts, cudaStream_t stream) {
  // Of one word in eight elements or more, each part takes several steps.
  const unsigned grid = NumParts(words.n / 8);
  CountGapsKernel<kContent>
      <<<grid, kThreads, 0, stream>>>(words, payload, parts);
  WriteListKernel<kContent><<<grid, kThreads, 0, stream>>>(
      words, threshold, payload, payload_bytes, parts);
}

template <SparseContent kContent, bool kAdd>
void ReadList(const Reading& reading, Word* parts, cudaStream_t stream) {
  const unsigned grid = NumParts(reading.num_bytes);
  CountCodesKernel<kContent><<<grid, kThreads, 0, stream>>>(reading, parts);
  ReadListKernel<kContent, kAdd><<<grid, kThreads, 0, stream>>>(reading, parts);
}

void Write(SparseContent content, const uint32_t* words,
           const uint64_t* num_words, size_t n, float threshold,
           uint8_t* payload, uint64_t* payload_bytes, void* scratch,
           Stream stream) {
  auto* const write = content == SparseContent::kSigns
                          ? WriteList<SparseContent::kSigns>
                          : WriteList<SparseContent::kValues>;
  write({words, reinterpret_cast<const Word*>(num_words), n}, threshold,
        payload, reinterpret_cast<Word*>(payload_bytes),
        static_cast<Word*>(scratch), StreamOf(stream));
}

template <bool kAdd>
void Read(SparseContent content, const uint8_t* payload, size_t num_bytes,
          size_t n, float* out, void* scratch, Stream stream) {
  if (!kAdd) cudaMemsetAsync(out, 0, 4 * n, StreamOf(stream));
  auto* const read = content == SparseContent::kSigns
                         ? ReadList<SparseContent::kSigns, kAdd>
                         : ReadList<SparseContent::kValues, kAdd>;
  read({payload, num_bytes, n, out}, static_cast<Word*>(scratch),
       StreamOf(stream));
}

}  // namespace

SparseListKernels SparseList() { return {Write, Read<false>, Read<true>}; }

}  // namespace telegrad::kernels::cuda
