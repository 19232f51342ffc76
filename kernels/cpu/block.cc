#include "kernels/block.h"

#include <cstring>
#include <type_traits>

#include "kernels/block_runs.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/block.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/block_codes-inl.h"
#include "kernels/cpu/block_decode-inl.h"
#include "kernels/cpu/block_scale-inl.h"
#include "kernels/cpu/place_apart-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void FillBlock(KernelTable&) {}

#else

size_t EndOf(size_t from, size_t n, size_t block) {
  return n - from < block ? n : from + block;
}

struct ScaleVectors {
  VF scale, inverse, low, high;
};
template <bool kOdd>
HWY_INLINE ScaleVectors VectorsOf(const BlockScale& scale, uint32_t levels) {
  const DF df;
  const float most = static_cast<float>(levels);
  return {hn::Set(df, scale.scale), hn::Set(df, scale.inverse),
          hn::Set(df, -most), hn::Set(df, kOdd ? most - 1.0f : most)};
}

// Added to a value of magnitude below 2^22 it rounds the value to the nearest
// integer, ties to even, and the sum's bits are its own plus that integer: its
// own end in a byte of 0.
constexpr float kRounding = 0x1.8p23f;

// Leaves in r what the code of g + r does not say; its bits' lowest byte is the
// code.
template <bool kOdd>
HWY_INLINE VU Quantize(const float* g, float* r, const ScaleVectors& s) {
  const DF df;
  const VF rounding = hn::Set(df, kRounding);
  const VF v = hn::Add(hn::LoadU(df, r), hn::LoadU(df, g));
  VF scaled = hn::Mul(v, s.inverse);
  if constexpr (kOdd) scaled = hn::Sub(scaled, hn::Set(df, 0.5f));
  const VF clamped = hn::Min(hn::Max(scaled, s.low), s.high);
  const VF sum = hn::Add(clamped, rounding);
  VF rounded = hn::Sub(sum, rounding);
  if constexpr (kOdd) {
    rounded = hn::Add(hn::Add(rounded, rounded), hn::Set(df, 1.0f));
  }
  hn::StoreU(hn::Sub(v, hn::Mul(rounded, s.scale)), df, r);
  return hn::BitCast(DU(), sum);
}

// Puts the codes of 64 finite elements. Returns how many are not 0; odd: all.
template <uint32_t kBits, bool kOdd, Put kPut>
HWY_INLINE size_t QuantizeGroup(const float* g, float* r, const ScaleVectors& s,
                                uint8_t* to) {
  const DB d8;
  size_t num_zero = 0;
  for (size_t j = 0; j < kGroup; j += 4 * kLanes) {
    const VU a = Quantize<kOdd>(g + j, r + j, s);
    const VU b = Quantize<kOdd>(g + j + kLanes, r + j + kLanes, s);
    const VU c = Quantize<kOdd>(g + j + 2 * kLanes, r + j + 2 * kLanes, s);
    const VU d = Quantize<kOdd>(g + j + 3 * kLanes, r + j + 3 * kLanes, s);
    const auto codes = LowestBytes(a, b, c, d);
    PutPacked<kBits, kPut>(codes, to + j / 8 * kBits);
    if constexpr (!kOdd) {
      num_zero += hn::CountTrue(d8, hn::Eq(codes, hn::Zero(d8)));
    }
  }
  return kGroup - num_zero;
}

// While a block is quantized, the maximum (odd: the squares) of the next one is
// found: memory then has as much to do at any time.
template <uint32_t kBits, bool kOdd, Put kPut>
void QuantizeBlocks(const float* HWY_RESTRICT grad,
                    float* HWY_RESTRICT residual, size_t n,
                    const BlockFormat& format, NonFinite nonfinite,
                    uint8_t* HWY_RESTRICT payload, EncodeStats* stats) {
  using Measure = std::conditional_t<kOdd, Squares, Maximum<true>>;
  uint8_t* codes = payload + ScaleBytes(n, format);
  const size_t ahead = PrefetchBytes();
  auto measured =
      Measure().Finish(grad, residual, 0, EndOf(0, n, format.block), ahead);
  for (size_t from = 0; from < n; from += format.block) {
    const size_t to = EndOf(from, n, format.block);
    const size_t whole = (to - from) / kGroup * kGroup;
    const bool is_finite = measured < Measure::kMost;
    BlockScale scale;
    if (!is_finite) {
      scale =
          reference::ScaleOfRun(grad, residual, from, to, format, nonfinite);
    } else if constexpr (kOdd) {
      scale = OddScaleOf(measured, to - from, format);
    } else {
      scale = ScaleOf(FloatOf(measured), kMostMaximum, format);
    }
    reference::PutBlockScale(scale.scale, from / format.block, format, payload);
    const ScaleVectors vectors = VectorsOf<kOdd>(scale, format.levels);
    Measure next_measure;
    size_t next = to;  // what it has not taken
    size_t num_nonzero = 0;
    size_t i = from;
    for (; is_finite && i + kGroup <= to; i += kGroup) {
      if (next + kGroup <= n) {
        PrefetchWrite<kGroupBytes>(residual + next, ahead);
        next_measure.Take(grad + next, residual + next, ahead);
        next += kGroup;
      }
      const size_t j = from + PlaceApart<kGroup>(i - from, whole);
      PrefetchPut<kPut, kGroup / 8 * kBits>(codes + j / 8 * kBits, ahead);
      num_nonzero += QuantizeGroup<kBits, kOdd, kPut>(
          grad + j, residual + j, vectors, codes + j / 8 * kBits);
    }
    stats->num_nonzero += kOdd && scale.scale == 0 ? 0 : num_nonzero;
    if (i < to) {
      reference::QuantizeRun(grad, residual, i, to, scale, format.levels, kBits,
                             kOdd, nonfinite, codes, stats);
    }
    measured = next_measure.Finish(grad, residual, next,
                                   EndOf(to, n, format.block), ahead);
  }
  EndPut<kPut>();
}

template <uint32_t kBits, Put kPut>
void SharedGroups(const float* HWY_RESTRICT grad, float* HWY_RESTRICT residual,
                  size_t n, const BlockScale& scale, NonFinite nonfinite,
                  uint8_t* HWY_RESTRICT codes, EncodeStats* stats) {
  constexpr bool kOdd = IsOdd(kBits);
  const uint32_t levels = SharedLevels(kBits);
  const ScaleVectors vectors = VectorsOf<kOdd>(scale, levels);
  const size_t ahead = PrefetchBytes();
  size_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    PrefetchWrite<kGroupBytes>(residual + i, ahead);
    PrefetchPut<kPut, kGroup / 8 * kBits>(codes + i / 8 * kBits, ahead);
    Maximum<true> maximum;
    maximum.Take(grad + i, residual + i, ahead);
    if (HWY_UNLIKELY(!maximum.IsFinite())) {
      reference::QuantizeRun(grad, residual, i, i + kGroup, scale, levels,
                             kBits, kOdd, nonfinite, codes, stats);
      continue;
    }
    stats->num_nonzero += QuantizeGroup<kBits, kOdd, kPut>(
        grad + i, residual + i, vectors, codes + i / 8 * kBits);
  }
  EndPut<kPut>();
  reference::QuantizeRun(grad, residual, i, n, scale, levels, kBits, kOdd,
                         nonfinite, codes, stats);
}

// Codes of kLanes finite elements.
template <bool kNatural>
HWY_INLINE VI DitherLanes(const float* g, const ScaleVectors& s, VI levels,
                          VU draw) {
  const DF df;
  const DI di;
  const VF grad = hn::LoadU(df, g);
  // `high` is the block's maximum here.
  const VF y = hn::Mul(hn::Min(hn::Abs(grad), s.high), s.inverse);
  const VF uniform =
      hn::Mul(hn::ConvertTo(df, hn::BitCast(di, hn::ShiftRight<8>(draw))),
              hn::Set(df, 0x1p-24f));
  VI code;
  if constexpr (kNatural) {
    const VI one = hn::Set(di, 1);
    const VI bits = hn::BitCast(di, y);
    const auto is_up = hn::Lt(hn::BitCast(di, hn::ShiftRight<9>(draw)),
                              hn::And(bits, hn::Set(di, 0x7FFFFF)));
    const VI large =
        hn::Add(hn::Sub(hn::ShiftRight<23>(bits), hn::Set(di, 126)),
                hn::IfThenElseZero(is_up, one));
    const VI small =
        hn::IfThenElseZero(hn::RebindMask(di, hn::Lt(uniform, y)), one);
    const auto is_small = hn::RebindMask(di, hn::Lt(y, hn::Set(df, 1.0f)));
    code = hn::IfThenElse(is_small, small, large);
  } else {
    code = hn::ConvertTo(di, hn::Add(y, uniform));
  }
  const VI sign = hn::ShiftRight<31>(hn::BitCast(di, grad));
  return hn::Sub(hn::Xor(hn::Min(code, levels), sign), sign);
}

// 64 finite elements, g[0] being a multiple of 64 of the chunk, `first` their
// first counter.
template <bool kNatural>
HWY_INLINE void DitherGroup(const float* g, const ScaleVectors& s, VI levels,
                            const DrawKeys& keys, uint64_t first,
                            int8_t* group) {
  for (size_t lane = 0; lane < kDrawLanes; lane += kLanes) {
    const DrawVectors words = DrawLanes(keys, first + lane);
    const float* at = g + lane;
    int8_t* to = group + lane;
    StoreAsBytes(DitherLanes<kNatural>(at, s, levels, words.word0), to);
    StoreAsBytes(DitherLanes<kNatural>(at + 16, s, levels, words.word1),
                 to + 16);
    StoreAsBytes(DitherLanes<kNatural>(at + 32, s, levels, words.word2),
                 to + 32);
    StoreAsBytes(DitherLanes<kNatural>(at + 48, s, levels, words.word3),
                 to + 48);
  }
}

template <uint32_t kBits, bool kNatural>
void DitherBlocks(const float* HWY_RESTRICT grad, size_t n,
                  const BlockFormat& format, float limit, const DrawKey& draw,
                  NonFinite nonfinite, uint8_t* HWY_RESTRICT payload,
                  EncodeStats* stats) {
  uint8_t* codes = payload + ScaleBytes(n, format);
  const VI levels = hn::Set(DI(), static_cast<int32_t>(format.levels));
  const DrawKeys keys = KeysOf(draw);
  const size_t ahead = PrefetchBytes();
  alignas(64) int8_t group[kGroup];
  for (size_t from = 0; from < n; from += format.block) {
    const size_t to = EndOf(from, n, format.block);
    const uint32_t bits =
        Maximum<false>().Finish(grad, nullptr, from, to, ahead);
    const bool is_finite = bits < kInfinityBits;
    const float maximum =
        is_finite ? FloatOf(bits)
                  : reference::MaxOfRun(grad, nullptr, from, to, nonfinite);
    const BlockScale scale = ScaleOf(maximum, limit, format);
    std::memcpy(payload + from / format.block * 4, &scale.scale, 4);
    const DF df;
    const ScaleVectors vectors = {hn::Set(df, scale.scale),
                                  hn::Set(df, scale.inverse), hn::Zero(df),
                                  hn::Set(df, scale.maximum)};
    size_t i = from;
    for (; is_finite && i + kGroup <= to; i += kGroup) {
      PrefetchRead<kGroupBytes>(grad + i, ahead);
      DitherGroup<kNatural>(grad + i, vectors, levels, keys,
                            uint64_t{i} / kDrawGroup * kDrawLanes, group);
      stats->num_nonzero += NumNonzero(group);
      PackGroup<kBits>(group, codes + i / 8 * kBits);
    }
    reference::DitherRun(grad, i, to, scale, format, draw, nonfinite, codes,
                         stats);
  }
}

void BlockQuantize(const float* grad, float* residual, size_t n,
                   BlockFormat format, NonFinite nonfinite, uint8_t* payload,
                   EncodeStats* stats, Stream) {
  const bool streams =
      StreamsBytes(payload + ScaleBytes(n, format), CodeBytes(n, format.bits));
  const auto encode =
      format.odd ? (format.bits == 2 ? QuantizeBlocks<2, true, Put::kOver>
                                     : QuantizeBlocks<3, true, Put::kOver>)
      : format.bits == 2 ? QuantizeBlocks<2, false, Put::kOver>
      : format.bits == 4 ? (streams ? QuantizeBlocks<4, false, Put::kStream>
                                    : QuantizeBlocks<4, false, Put::kOver>)
                         : (streams ? QuantizeBlocks<8, false, Put::kStream>
                                    : QuantizeBlocks<8, false, Put::kOver>);
  encode(grad, residual, n, format, nonfinite, payload, stats);
}

void SharedQuantize(const float* grad, float* residual, size_t n, uint32_t bits,
                    float quantum, NonFinite nonfinite, uint8_t* codes,
                    EncodeStats* stats, Stream) {
  const bool streams = StreamsBytes(codes, CodeBytes(n, bits));
  const auto encode = bits == 2   ? SharedGroups<2, Put::kOver>
                      : bits == 3 ? SharedGroups<3, Put::kOver>
                      : bits == 4 ? (streams ? SharedGroups<4, Put::kStream>
                                             : SharedGroups<4, Put::kOver>)
                                  : (streams ? SharedGroups<8, Put::kStream>
                                             : SharedGroups<8, Put::kOver>);
  encode(grad, residual, n, SharedScaleOf(quantum, bits), nonfinite, codes,
         stats);
}

template <bool kNatural>
void DitherAs(const float* grad, size_t n, const BlockFormat& format,
              float limit, const DrawKey& draw, NonFinite nonfinite,
              uint8_t* payload, EncodeStats* stats) {
  const auto encode = format.bits == 8   ? DitherBlocks<8, kNatural>
                      : format.bits == 4 ? DitherBlocks<4, kNatural>
                                         : DitherBlocks<2, kNatural>;
  encode(grad, n, format, limit, draw, nonfinite, payload, stats);
}

void Dither(const float* grad, size_t n, BlockFormat format, DitherLimit limit,
            DrawKey draw, NonFinite nonfinite, uint8_t* payload,
            EncodeStats* stats, Stream) {
  const auto encode = format.natural ? DitherAs<true> : DitherAs<false>;
  encode(grad, n, format, LimitOf(limit), draw, nonfinite, payload, stats);
}

void FillBlock(KernelTable& table) {
  table.block.quantize = BlockQuantize;
  table.block.shared_quantize = SharedQuantize;
  table.block.dither = Dither;
  FillBlockDecode(table);
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace telegrad::kernels::cpu {

HWY_EXPORT(FillBlock);

void FillBlock(int64_t target, KernelTable& table) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  HWY_DISPATCH_TABLE(FillBlock)[chosen.GetIndex()](table);
}

}  // namespace telegrad::kernels::cpu
#endif  // HWY_ONCE
