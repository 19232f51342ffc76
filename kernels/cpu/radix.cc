#include "kernels/radix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/targets.h"
#include "kernels/reference.h"
#include "kernels/value.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/radix.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/digits-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void FillRadix(KernelTable&) {}

#else

// Counts what is not finite in v, [5][kLanes] of a block whose columns begin
// at element `first`, and takes a gradient of 0 instead.
HWY_NOINLINE void ReplaceNonFinite(const float* residual, size_t first,
                                   float* v, EncodeStats* stats) {
  for (size_t i = 0; i < kRadixDigits * kLanes; ++i) {
    if (std::isfinite(v[i])) continue;
    const size_t at = i / kLanes * kRadixBlockBytes + i % kLanes;
    ++stats->num_nonfinite;
    if (first + at < stats->first_nonfinite) {
      stats->first_nonfinite = first + at;
    }
    v[i] = residual[at] + 0.0f;
  }
}

// Encodes kLanes columns of a block, into a byte each.
template <NonFinite kNonFinite>
HWY_INLINE void EncodeColumns(const float* grad, float* residual, VF t,
                              VF minus_t, size_t first, uint8_t* payload,
                              VU& num_nonzero, EncodeStats* stats) {
  const DF df;
  const DU du;
  VF v[kRadixDigits];
  for (size_t p = 0; p < kRadixDigits; ++p) {
    const size_t at = p * kRadixBlockBytes;
    v[p] = hn::Add(hn::LoadU(df, residual + at), hn::LoadU(df, grad + at));
  }
  if constexpr (kNonFinite == NonFinite::kZero) {
    static_assert(kRadixDigits == 5);
    const VF sum = hn::Add(hn::Add(v[0], v[1]), hn::Add(v[2], v[3]));
    if (HWY_UNLIKELY(!SumIsFinite(hn::Add(sum, v[4])))) {
      float lanes[kRadixDigits * kLanes];
      for (size_t p = 0; p < kRadixDigits; ++p) {
        hn::StoreU(v[p], df, lanes + p * kLanes);
      }
      ReplaceNonFinite(residual, first, lanes, stats);
      for (size_t p = 0; p < kRadixDigits; ++p) {
        v[p] = hn::LoadU(df, lanes + p * kLanes);
      }
    }
  }
  VU number = hn::Zero(du);
#pragma GCC unroll 5
  for (size_t i = 1; i <= kRadixDigits; ++i) {
    const size_t p = kRadixDigits - i;
    const auto positive = hn::Ge(v[p], t);
    const auto negative = hn::Le(v[p], minus_t);
    const VF sent =
        hn::IfThenElse(negative, minus_t, hn::IfThenElseZero(positive, t));
    hn::StoreU(hn::Sub(v[p], sent), df, residual + p * kRadixBlockBytes);
    number = AppendDigit(number, positive, negative);
    num_nonzero = hn::Add(
        num_nonzero,
        hn::IfThenElseZero(hn::RebindMask(du, hn::Or(positive, negative)),
                           hn::Set(du, 1)));
  }
  StoreBytes(number, payload);
}

// Encodes whole blocks; returns how many codes are not 0.
template <NonFinite kNonFinite>
uint64_t EncodeBlocks(const float* HWY_RESTRICT grad,
                      float* HWY_RESTRICT residual, size_t begin, size_t end,
                      float threshold, uint8_t* HWY_RESTRICT payload,
                      EncodeStats* stats) {
  const VF t = hn::Set(DF(), threshold);
  const VF minus_t = hn::Set(DF(), -threshold);
  VU num_nonzero = hn::Zero(DU());
  for (size_t i = begin; i < end; i += kRadixBlock) {
    uint8_t* bytes = payload + i / kRadixDigits;
    for (size_t j = 0; j < kRadixBlockBytes; j += kLanes) {
      if (j % kLineFloats == 0) {
        for (size_t p = 0; p < kRadixDigits; ++p) {
          PrefetchReadBlock(grad + i + j + p * kRadixBlockBytes);
          PrefetchWriteBlock(residual + i + j + p * kRadixBlockBytes);
        }
      }
      EncodeColumns<kNonFinite>(grad + i + j, residual + i + j, t, minus_t,
                                i + j, bytes + j, num_nonzero, stats);
    }
  }
  return hn::GetLane(hn::SumOfLanes(DU(), num_nonzero));
}

template <NonFinite kNonFinite>
void EncodeAll(const float* grad, float* residual, size_t n, float threshold,
               uint8_t* payload, EncodeStats* stats) {
  constexpr size_t kRun = kRadixBlock << 20;  // a lane's count has 32 bits
  const size_t whole = n - n % kRadixBlock;
  for (size_t i = 0; i < whole; i += kRun) {
    stats->num_nonzero +=
        EncodeBlocks<kNonFinite>(grad, residual, i, std::min(whole, i + kRun),
                                 threshold, payload, stats);
  }
  EncodeStats part;
  reference::Radix().encode(grad + whole, residual + whole, n - whole,
                            threshold, kNonFinite,
                            payload + whole / kRadixDigits, &part, Stream{});
  AddPart(part, whole, stats);
}

void RadixEncode(const float* grad, float* residual, size_t n, float threshold,
                 NonFinite nonfinite, uint8_t* payload, EncodeStats* stats,
                 Stream) {
  if (nonfinite == NonFinite::kZero) {
    EncodeAll<NonFinite::kZero>(grad, residual, n, threshold, payload, stats);
  } else {
    EncodeAll<NonFinite::kPropagate>(grad, residual, n, threshold, payload,
                                     stats);
  }
}

// Decodes the whole blocks. kFrames: how many there are, or 0 where that is
// not known here.
template <Put kPut, uint32_t kFrames>
void DecodeBlocks(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                  float threshold, float* out) {
  if constexpr (kFrames != 0) num_frames = kFrames;
  const VF t = hn::Set(DF(), threshold);
  const VI count = hn::Set(DI(), static_cast<int32_t>(num_frames));
  for (size_t i = 0; i + kRadixBlock <= n; i += kRadixBlock) {
    const size_t at = i / kRadixDigits;
    for (size_t j = 0; j < kRadixBlockBytes; j += kColumns) {
      V16 sums[kRadixDigits];
      SumColumns(frames, num_frames, at + j, sums);
      for (size_t p = 0; p < kRadixDigits; ++p) {
        float* to = out + i + p * kRadixBlockBytes + j;
        for (size_t line = 0; line < kColumns; line += kLineFloats) {
          PrefetchWriteBlock(to + line);
        }
        StoreValues<kPut>(sums[p], count, t, to);
      }
    }
  }
}

void RadixDecode(const uint8_t* payload, size_t n, float threshold, float* out,
                 Stream stream) {
  const size_t whole = n - n % kRadixBlock;
  DecodeBlocks<Put::kOver, 1>(&payload, 1, whole, threshold, out);
  reference::Radix().decode(payload + whole / kRadixDigits, n - whole,
                            threshold, out + whole, stream);
}

void RadixDecodeAdd(const uint8_t* payload, size_t n, float threshold,
                    float* sum, Stream stream) {
  const size_t whole = n - n % kRadixBlock;
  DecodeBlocks<Put::kAdd, 1>(&payload, 1, whole, threshold, sum);
  reference::Radix().decode_add(payload + whole / kRadixDigits, n - whole,
                                threshold, sum + whole, stream);
}

void RadixSumDecode(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                    float threshold, float* out, Stream) {
  const size_t whole = n - n % kRadixBlock;
  DecodeBlocks<Put::kOver, 0>(frames, num_frames, whole, threshold, out);
  uint16_t counts[kRadixBlock];
  CountDigits(frames, num_frames, whole, n - whole, counts);
  for (size_t i = whole; i < n; ++i) {
    const int32_t sum =
        int32_t{counts[i - whole]} - static_cast<int32_t>(num_frames);
    out[i] = static_cast<float>(sum) * threshold;
  }
}

// Packs one block of sums.
void PackBlock(const uint16_t* counts, const DigitGroup& group,
               uint8_t* words) {
  const DU du;
  const D16Half half;
  const VU radix = hn::Set(du, group.radix);
  VU numbers[kVectorsPerBlock];
  for (size_t v = 0; v < kVectorsPerBlock; ++v) {
    numbers[v] = hn::Zero(du);
    for (size_t i = group.digits; i-- > 0;) {
      const uint16_t* digits = counts + kNumbersPerBlock * i + v * kLanes;
      numbers[v] = hn::Add(hn::Mul(numbers[v], radix),
                           hn::PromoteTo(du, hn::LoadU(half, digits)));
    }
  }
  for (uint32_t p = 0; p < group.bits; ++p) {
    const VU bit = hn::Set(du, uint32_t{1} << p);
    uint32_t word = 0;
    for (size_t v = 0; v < kVectorsPerBlock; ++v) {
      uint8_t bits[8] = {};
      hn::StoreMaskBits(du, hn::TestBit(numbers[v], bit), bits);
      uint32_t part;
      std::memcpy(&part, bits, sizeof(part));
      word |= part << (v * kLanes);
    }
    std::memcpy(words + 4 * p, &word, sizeof(word));
  }
}

void RadixSumPack(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                  uint8_t* packed, Stream) {
  const DigitGroup group = DigitGroupFor(num_frames);
  const size_t block = SumBlock(group);
  // Whole blocks of codes and of sums.
  const size_t piece = kRadixBlock * group.digits;
  alignas(64) uint16_t counts[kRadixBlock * kMaxGroupDigits];
  for (size_t first = 0; first < n; first += piece) {
    const size_t count = std::min(piece, n - first);
    CountDigits(frames, num_frames, first, count, counts);
    const size_t padded = (count + block - 1) / block * block;
    std::fill(counts + count, counts + padded, uint16_t{0});
    for (size_t i = 0; i < padded; i += block) {
      PackBlock(counts + i, group, packed);
      packed += 4 * group.bits;
    }
  }
}

// number / radix: the products of even and of odd lanes have 64 bits.
HWY_INLINE VU Divide(VU number, VU reciprocal, int shift) {
  const hn::RepartitionToWide<DU> d64;
  const DU du;
  const auto even = hn::MulEven(number, reciprocal);
  const auto upper = hn::ShiftRight<32>(hn::BitCast(d64, number));
  const auto odd = hn::MulEven(hn::BitCast(du, upper), reciprocal);
  return hn::BitCast(du,
                     hn::Or(hn::ShiftRightSame(even, shift),
                            hn::ShiftLeft<32>(hn::ShiftRightSame(odd, shift))));
}

// Decodes one block of sums.
HWY_INLINE void DecodeSumBlock(const uint8_t* words, const DigitGroup& group,
                               uint32_t num_frames, float threshold,
                               float* out) {
  const DF df;
  const DI di;
  const DU du;
  const VU one = hn::Set(du, 1);
  VU numbers[kVectorsPerBlock];
  for (VU& number : numbers) number = hn::Zero(du);
  for (uint32_t p = group.bits; p-- > 0;) {
    uint32_t word;
    std::memcpy(&word, words + 4 * p, sizeof(word));
    for (size_t v = 0; v < kVectorsPerBlock; ++v) {
      const VU element =
          hn::Shl(one, hn::Iota(du, static_cast<uint32_t>(v * kLanes)));
      const auto is_set = hn::TestBit(hn::Set(du, word), element);
      numbers[v] = hn::Add(hn::Add(numbers[v], numbers[v]),
                           hn::IfThenElseZero(is_set, one));
    }
  }
  const VU radix = hn::Set(du, group.radix);
  const VU reciprocal = hn::Set(du, group.reciprocal);
  const VI count = hn::Set(di, static_cast<int32_t>(num_frames));
  const VF t = hn::Set(df, threshold);
  for (size_t i = 0; i < group.digits; ++i) {
    float* to = out + kNumbersPerBlock * i;
    PrefetchWrite<4 * kNumbersPerBlock>(to);
    for (size_t v = 0; v < kVectorsPerBlock; ++v) {
      const VU rest =
          Divide(numbers[v], reciprocal, static_cast<int>(group.shift));
      const VU digit = hn::Sub(numbers[v], hn::Mul(rest, radix));
      const VI sum = hn::Sub(hn::BitCast(di, digit), count);
      hn::StoreU(hn::Mul(hn::ConvertTo(df, sum), t), df, to + v * kLanes);
      numbers[v] = rest;
    }
  }
}

void RadixPackedSumDecode(const uint8_t* packed, uint32_t num_frames, size_t n,
                          float threshold, float* out, Stream) {
  const DigitGroup group = DigitGroupFor(num_frames);
  const size_t block = SumBlock(group);
  const size_t whole = n - n % block;
  for (size_t i = 0; i < whole; i += block) {
    DecodeSumBlock(packed, group, num_frames, threshold, out + i);
    packed += 4 * group.bits;
  }
  if (whole == n) return;
  float last[kNumbersPerBlock * kMaxGroupDigits];
  DecodeSumBlock(packed, group, num_frames, threshold, last);
  std::copy_n(last, n - whole, out + whole);
}

// Adds kLanes columns of sums to the residual and encodes them again.
HWY_INLINE void ReencodeColumns(const uint16_t* counts, VI num_frames,
                                int shift, VI quantum, int32_t* residual,
                                uint8_t* payload) {
  const DI di;
  const VI one = hn::Set(di, 1);
  VU number = hn::Zero(DU());
#pragma GCC unroll 5
  for (size_t i = 1; i <= kRadixDigits; ++i) {
    const size_t p = kRadixDigits - i;
    const size_t at = p * kRadixBlockBytes;
    const VI sum = hn::Sub(hn::PromoteTo(di, hn::LoadU(D16Half(), counts + at)),
                           num_frames);
    const VI v =
        hn::Add(hn::LoadU(di, residual + at), hn::ShiftLeftSame(sum, shift));
    const auto positive = hn::Gt(v, hn::Sub(quantum, one));
    const auto negative = hn::Lt(v, hn::Sub(one, quantum));
    VI rest = hn::Sub(v, hn::IfThenElseZero(positive, quantum));
    rest = hn::Add(rest, hn::IfThenElseZero(negative, quantum));
    hn::StoreU(rest, di, residual + at);
    number = AppendDigit(number, positive, negative);
  }
  StoreBytes(number, payload);
}

void RadixReencode(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                   int32_t* residual, uint32_t shift, int32_t quantum,
                   uint8_t* payload, Stream stream) {
  const VI count = hn::Set(DI(), static_cast<int32_t>(num_frames));
  const VI q = hn::Set(DI(), quantum);
  alignas(64) uint16_t counts[kRadixBlock];
  const size_t whole = n - n % kRadixBlock;
  for (size_t i = 0; i < whole; i += kRadixBlock) {
    for (size_t line = 0; line < kRadixBlock; line += kLineFloats) {
      PrefetchWriteBlock(residual + i + line);
    }
    CountDigits(frames, num_frames, i, kRadixBlock, counts);
    for (size_t j = 0; j < kRadixBlockBytes; j += kLanes) {
      ReencodeColumns(counts + j, count, static_cast<int>(shift), q,
                      residual + i + j, payload + i / kRadixDigits + j);
    }
  }
  if (whole == n) return;
  std::vector<const uint8_t*> last(frames, frames + num_frames);
  for (const uint8_t*& frame : last) frame += whole / kRadixDigits;
  reference::Radix().reencode(last.data(), num_frames, n - whole,
                              residual + whole, shift, quantum,
                              payload + whole / kRadixDigits, stream);
}

void FillRadix(KernelTable& table) {
  table.radix.encode = RadixEncode;
  table.radix.decode = RadixDecode;
  table.radix.decode_add = RadixDecodeAdd;
  table.radix.sum_pack = RadixSumPack;
  table.radix.packed_sum_decode = RadixPackedSumDecode;
  table.radix.sum_decode = RadixSumDecode;
  table.radix.reencode = RadixReencode;
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace telegrad::kernels::cpu {

HWY_EXPORT(FillRadix);

void FillRadix(int64_t target, KernelTable& table) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  HWY_DISPATCH_TABLE(FillRadix)[chosen.GetIndex()](table);
}

}  // namespace telegrad::kernels::cpu
#endif  // HWY_ONCE
