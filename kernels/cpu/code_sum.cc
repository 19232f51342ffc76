#include "kernels/code_sum.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/targets.h"
#include "kernels/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/code_sum.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/planes-inl.h"
#include "kernels/cpu/put-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "kernels/cpu/two_bit_codes-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void FillCodeSum(KernelTable&) {}

#else

// What becomes of kLanes decoded values.
template <Put kPut>
struct Output {
  HWY_INLINE void Prefetch(size_t i, size_t ahead) const {
    PrefetchPut<kPut, 4 * kSumsPerGroup>(out + i, ahead);
  }
  HWY_INLINE void Take(VF value, size_t i) const {
    PutLanes<kPut>(value, out + i);
  }
  float* out;
};

// Decodes `n` sums; writes up to a multiple of kLanes.
template <uint32_t kBits, class Sink>
void DecodeSums(const uint8_t* packed, uint32_t bits, uint32_t num_frames,
                size_t n, float threshold, const Sink& to) {
  const DF df;
  const Sink sink = to;  // what stores cannot change
  const VF t = hn::Set(df, threshold);
  const size_t ahead = PrefetchBytes();
  const SumsOf<kBits> sums(bits, num_frames);
  GroupSums group;
  for (size_t i = 0; i < n; i += kSumsPerGroup) {
    sink.Prefetch(i, ahead);
    PrefetchRead<kLineBytes>(sums.WordsOf(packed, i), ahead);
    sums.Unpack(packed, i, group);
    const size_t m = std::min(n - i, kSumsPerGroup);
    for (size_t j = 0; j < m; j += kLanes) {
      sink.Take(hn::Mul(hn::ConvertTo(df, LanesOf(group, j)), t), i + j);
    }
  }
}

template <class Sink>
using DecodeSumsFn = decltype(DecodeSums<0, Sink>);

// The usual numbers of workers have their loop over planes unrolled.
template <class Sink>
HWY_INLINE DecodeSumsFn<Sink>* ChooseDecodeSums(uint32_t bits) {
  switch (bits) {
    case 2:
      return DecodeSums<2, Sink>;
    case 3:
      return DecodeSums<3, Sink>;
    case 4:
      return DecodeSums<4, Sink>;
    case 5:
      return DecodeSums<5, Sink>;
    default:
      return DecodeSums<0, Sink>;
  }
}

void TwoBitSumPack(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                   uint8_t* packed, Stream) {
  const uint32_t bits = SumBits(num_frames);
  SumChunkFn* const sum_chunk = ChooseSumChunk(bits);
  const size_t whole = n - n % kChunk;
  const size_t chunk_bytes = 4 * bits * kChunkGroups;
  const size_t ahead = PrefetchBytes();
  uint8_t* to = packed;
  for (size_t i = 0; i < whole; i += kChunk, to += chunk_bytes) {
    // Sums are stored in words of 4 bytes, which would fill the store buffer
    // while a line is fetched.
    for (size_t b = 0; b < chunk_bytes; b += kLineBytes) {
      PrefetchForWrite(to + ahead + b);
    }
    sum_chunk(frames, num_frames, i / 4, kChunk, bits, to);
  }
  if (whole == n) return;
  alignas(64) uint8_t words[kMaxChunkBytes];
  sum_chunk(frames, num_frames, whole / 4, n - whole, bits, words);
  ClearPastEnd(n - whole, bits, words);
  std::memcpy(packed + 4 * bits * (whole / kSumsPerGroup), words,
              PackedSumBytes(n - whole, num_frames));
}

template <Put kPut>
void DecodePacked(const uint8_t* packed, uint32_t num_frames, size_t n,
                  float threshold, float* out) {
  const uint32_t bits = SumBits(num_frames);
  auto* const decode = ChooseDecodeSums<Output<kPut>>(bits);
  const size_t whole = n - n % kSumsPerGroup;
  decode(packed, bits, num_frames, whole, threshold, {out});
  EndPut<kPut>();
  if (whole == n) return;
  alignas(64) float last[kSumsPerGroup];
  ChooseDecodeSums<Output<Put::kOver>>(bits)(
      packed + 4 * bits * (whole / kSumsPerGroup), bits, num_frames, n - whole,
      threshold, {last});
  std::memcpy(out + whole, last, (n - whole) * sizeof(float));
}

void PackedSumDecode(const uint8_t* packed, uint32_t num_frames, size_t n,
                     float threshold, float* out, Stream) {
  (Streams(out, n)
       ? DecodePacked<Put::kStream>
       : DecodePacked<Put::kOver>)(packed, num_frames, n, threshold, out);
}

template <Put kPut>
void SumDecode(const uint8_t* const* frames, uint32_t num_frames, size_t n,
               float threshold, float* out) {
  const uint32_t bits = SumBits(num_frames);
  SumChunkFn* const sum_chunk = ChooseSumChunk(bits);
  auto* const decode = ChooseDecodeSums<Output<kPut>>(bits);
  alignas(64) uint8_t words[kMaxChunkBytes];
  const size_t whole = n - n % kChunk;
  for (size_t i = 0; i < whole; i += kChunk) {
    sum_chunk(frames, num_frames, i / 4, kChunk, bits, words);
    decode(words, bits, num_frames, kChunk, threshold, {out + i});
  }
  EndPut<kPut>();
  if (whole == n) return;
  alignas(64) float last[kChunk];
  sum_chunk(frames, num_frames, whole / 4, n - whole, bits, words);
  ChooseDecodeSums<Output<Put::kOver>>(bits)(words, bits, num_frames, n - whole,
                                             threshold, {last});
  std::memcpy(out + whole, last, (n - whole) * sizeof(float));
}

void TwoBitSumDecode(const uint8_t* const* frames, uint32_t num_frames,
                     size_t n, float threshold, float* out, Stream) {
  (Streams(out, n)
       ? SumDecode<Put::kStream>
       : SumDecode<Put::kOver>)(frames, num_frames, n, threshold, out);
}

struct Reencoder {
  uint32_t bits;
  int shift;
  uint32_t num_frames;
  VI quantum;
  CodeLanes code;
};

// Adds kLanes sums to the residual and takes off what is sent.
HWY_INLINE Signs ReencodeLanes(const Reencoder& to, VI sum, int32_t* residual) {
  const DI di;
  const DU du;
  const VI v =
      hn::Add(hn::LoadU(di, residual), hn::ShiftLeftSame(sum, to.shift));
  const VI one = hn::Set(di, 1);
  const auto positive = hn::Gt(v, hn::Sub(to.quantum, one));
  const auto negative = hn::Lt(v, hn::Sub(one, to.quantum));
  VI rest = hn::Sub(v, hn::IfThenElseZero(positive, to.quantum));
  rest = hn::Add(rest, hn::IfThenElseZero(negative, to.quantum));
  hn::StoreU(rest, di, residual);
  return {hn::RebindMask(du, positive), hn::RebindMask(du, negative)};
}

// Writes residuals and codes up to a multiple of kCodeBlock.
template <uint32_t kBits>
void ReencodeChunk(const Reencoder& parameters, const uint8_t* words, size_t n,
                   int32_t* residual, uint8_t* codes) {
  const Reencoder to = parameters;  // what stores to `codes` cannot change
  const size_t ahead = PrefetchBytes();
  const SumsOf<kBits> sums(to.bits, to.num_frames);
  std::array<GroupSums, kChunkGroups> groups;
  const size_t end = (n + kCodeBlock - 1) / kCodeBlock * kCodeBlock;
  for (size_t i = 0; i < end; i += kSumsPerGroup) {
    sums.Unpack(words, i, groups[i / kSumsPerGroup]);
  }
  for (size_t i = 0; i < end; i += kCodeBlock) {
    PrefetchWrite<4 * kCodeBlock>(residual + i, ahead);
    const auto signs = [&](size_t p) HWY_ATTR {
      const size_t at = i + p * kLanes;
      const VI sum = LanesOf(groups[at / kSumsPerGroup], at % kSumsPerGroup);
      return ReencodeLanes(to, sum, residual + at);
    };
    StoreCodes(DU(), CodesOf(to.code, signs), codes + i / 4);
  }
}

using ReencodeChunkFn = decltype(ReencodeChunk<0>);

HWY_INLINE ReencodeChunkFn* ChooseReencodeChunk(uint32_t bits) {
  switch (bits) {
    case 2:
      return ReencodeChunk<2>;
    case 3:
      return ReencodeChunk<3>;
    case 4:
      return ReencodeChunk<4>;
    case 5:
      return ReencodeChunk<5>;
    default:
      return ReencodeChunk<0>;
  }
}

void TwoBitReencode(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                    int32_t* residual, uint32_t shift, int32_t quantum,
                    uint8_t* codes, Stream) {
  const Reencoder to = {.bits = SumBits(num_frames),
                        .shift = static_cast<int>(shift),
                        .num_frames = num_frames,
                        .quantum = hn::Set(DI(), quantum),
                        .code = MakeCodeLanes()};
  SumChunkFn* const sum_chunk = ChooseSumChunk(to.bits);
  ReencodeChunkFn* const reencode = ChooseReencodeChunk(to.bits);
  alignas(64) uint8_t words[kMaxChunkBytes];
  const size_t whole = n - n % kChunk;
  for (size_t i = 0; i < whole; i += kChunk) {
    sum_chunk(frames, num_frames, i / 4, kChunk, to.bits, words);
    reencode(to, words, kChunk, residual + i, codes + i / 4);
  }
  if (whole == n) return;
  // Past the end codes and residuals are 0, and so stay 0.
  alignas(64) int32_t last[kChunk] = {};
  alignas(64) uint8_t last_codes[kChunk / 4];
  std::memcpy(last, residual + whole, (n - whole) * sizeof(int32_t));
  sum_chunk(frames, num_frames, whole / 4, n - whole, to.bits, words);
  reencode(to, words, n - whole, last, last_codes);
  std::memcpy(residual + whole, last, (n - whole) * sizeof(int32_t));
  std::memcpy(codes + whole / 4, last_codes, TwoBitBytes(n - whole));
}

void FillCodeSum(KernelTable& table) {
  table.two_bit_sum_pack = TwoBitSumPack;
  table.packed_sum_decode = PackedSumDecode;
  table.two_bit_reencode = TwoBitReencode;
  table.two_bit_sum_decode = TwoBitSumDecode;
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace telegrad::kernels::cpu {

HWY_EXPORT(FillCodeSum);

void FillCodeSum(int64_t target, KernelTable& table) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  HWY_DISPATCH_TABLE(FillCodeSum)[chosen.GetIndex()](table);
}

}  // namespace telegrad::kernels::cpu
#endif  // HWY_ONCE
