#include "kernels/sign.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "kernels/code_sum.h"
#include "kernels/cpu/targets.h"
#include "kernels/reference.h"
#include "kernels/value.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sign.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/place_apart-inl.h"
#include "kernels/cpu/sign_bits-inl.h"
#include "kernels/cpu/sign_blocks-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void FillSign(KernelTable&) {}

#else

// Makes elements [from, to) of the residual values by the definition.
HWY_NOINLINE void ValuesSlowly(const float* grad, float* residual, size_t from,
                               size_t to, NonFinite nonfinite,
                               EncodeStats* stats) {
  for (size_t i = from; i < to; ++i) {
    residual[i] = Value(residual[i], grad[i], i, nonfinite, stats);
  }
}

template <NonFinite kNonFinite>
HWY_INLINE FourVectors FiniteValues(const float* grad, float* residual,
                                    size_t i, EncodeStats* stats) {
  FourVectors v = SumOf(Load(residual + i), Load(grad + i));
  if constexpr (kNonFinite == NonFinite::kZero) {
    if (HWY_UNLIKELY(!SumIsFinite(v.at[0], v.at[1], v.at[2], v.at[3]))) {
      ValuesSlowly(grad, residual, i, i + kGroup, kNonFinite, stats);
      v = Load(residual + i);
    }
  }
  return v;
}

template <NonFinite kNonFinite>
void OneBitEncodeAs(const float* HWY_RESTRICT grad,
                    float* HWY_RESTRICT residual, size_t n, float threshold,
                    float magnitude, uint8_t* HWY_RESTRICT payload,
                    EncodeStats* stats, Stream stream) {
  const DF df;
  const VF limit = hn::Set(df, threshold);
  const VF plus = hn::Set(df, magnitude);
  const VF minus = hn::Set(df, -magnitude);
  const size_t end = n / kTurn * kTurn;
  const size_t ahead = PrefetchBytes();
  for (size_t i = 0; i < end; i += kGroup) {
    PrefetchRead<4 * kGroup>(grad + i, ahead);
    PrefetchWrite<4 * kGroup>(residual + i, ahead);
    PrefetchBits(payload + i / 8, ahead);
    const FourVectors v = FiniteValues<kNonFinite>(grad, residual, i, stats);
    GroupMasks is_above;
    for (size_t k = 0; k < 4; ++k) {
      is_above.at[k] = hn::Gt(v.at[k], limit);
      const VF sent = hn::IfThenElse(is_above.at[k], plus, minus);
      hn::StoreU(hn::Sub(v.at[k], sent), df, residual + i + k * kLanes);
    }
    StoreBits(is_above, payload + i / 8);
  }
  stats->num_nonzero += end;
  EncodeStats rest;
  reference::Sign().one_bit_encode(grad + end, residual + end, n - end,
                                   threshold, magnitude, kNonFinite,
                                   payload + end / 8, &rest, stream);
  AddPart(rest, end, stats);
}

void OneBitEncode(const float* grad, float* residual, size_t n, float threshold,
                  float magnitude, NonFinite nonfinite, uint8_t* payload,
                  EncodeStats* stats, Stream stream) {
  (nonfinite == NonFinite::kZero
       ? OneBitEncodeAs<NonFinite::kZero>
       : OneBitEncodeAs<NonFinite::kPropagate>)(grad, residual, n, threshold,
                                                magnitude, payload, stats,
                                                stream);
}

template <Put kPut>
void DecodeOneBit(const uint8_t* payload, size_t n, float* out, Stream stream) {
  float magnitude;
  std::memcpy(&magnitude, payload + SignBytes(n), sizeof(magnitude));
  const size_t i = DecodeTurns<kPut>(payload, n, magnitude, out);
  EndPut<kPut>();
  const SignKernels rest = reference::Sign();
  (kPut == Put::kAdd ? rest.one_bit_decode_add : rest.one_bit_decode)(
      payload + i / 8, n - i, out + i, stream);
}

void OneBitDecode(const uint8_t* payload, size_t n, float* out, Stream stream) {
  (Streams(out, n) ? DecodeOneBit<Put::kStream>
                   : DecodeOneBit<Put::kOver>)(payload, n, out, stream);
}

constexpr uint32_t kMostPlanes = SignCountPlanes(kMaxSumContributors);

// Adds `carry` to the counts of `num_planes` planes.
template <typename Word, typename And, typename Xor>
HWY_INLINE void AddBits(Word carry, uint32_t num_planes, Word* planes, And both,
                        Xor either) {
  for (uint32_t p = 0; p < num_planes; ++p) {
    const Word next = both(planes[p], carry);
    planes[p] = either(planes[p], carry);
    carry = next;
  }
}

void CountPack(const uint8_t* const* frames, uint32_t num_frames, size_t n,
               uint8_t* counts, Stream) {
  using D8 = hn::Repartition<uint8_t, DU>;
  using V8 = hn::Vec<D8>;
  const D8 d8;
  const size_t bytes = SignBytes(n);
  const uint32_t num_planes = SignCountPlanes(num_frames);
  size_t b = 0;
  for (; b + 4 * kLanes <= bytes; b += 4 * kLanes) {
    V8 planes[kMostPlanes];
    for (uint32_t p = 0; p < num_planes; ++p) planes[p] = hn::Zero(d8);
    for (uint32_t f = 0; f < num_frames; ++f) {
      AddBits(
          hn::LoadU(d8, frames[f] + b), SignCountPlanes(f + 1), planes,
          [](V8 x, V8 y) { return hn::And(x, y); },
          [](V8 x, V8 y) { return hn::Xor(x, y); });
    }
    for (uint32_t p = 0; p < num_planes; ++p) {
      hn::StoreU(planes[p], d8, counts + p * bytes + b);
    }
  }
  for (; b < bytes; ++b) {
    uint32_t planes[kMostPlanes] = {};
    for (uint32_t f = 0; f < num_frames; ++f) {
      AddBits(uint32_t{frames[f][b]}, num_planes, planes, std::bit_and<>(),
              std::bit_xor<>());
    }
    for (uint32_t p = 0; p < num_planes; ++p) {
      counts[p * bytes + b] = static_cast<uint8_t>(planes[p]);
    }
  }
}

// Decodes elements [i, i + m), m at most a word's.
HWY_INLINE void CountDecodeWord(const uint8_t* counts, uint32_t num_frames,
                                size_t bytes, float* out) {
  const DU du;
  const DI di;
  const uint32_t num_planes = SignCountPlanes(num_frames);
  const VI offset = hn::Set(di, static_cast<int32_t>(num_frames));
  for (size_t j = 0; j < kSignsPerWord; j += kLanes) {
    VU twice = hn::Zero(du);
    for (uint32_t p = 0; p < num_planes; ++p) {
      const auto bits = BitsFrom(LoadWord(counts + p * bytes), j);
      twice = hn::Or(twice,
                     hn::IfThenElseZero(bits, hn::Set(du, uint32_t{2} << p)));
    }
    const VI sum = hn::Sub(hn::BitCast(di, twice), offset);
    hn::StoreU(hn::ConvertTo(DF(), sum), DF(), out + j);
  }
}

void CountDecode(const uint8_t* HWY_RESTRICT counts, uint32_t num_frames,
                 size_t n, float* HWY_RESTRICT out, Stream) {
  const size_t bytes = SignBytes(n);
  const size_t ahead = PrefetchBytes();
  size_t i = 0;
  for (; i + kSignsPerWord <= n; i += kSignsPerWord) {
    PrefetchWrite<4 * kSignsPerWord>(out + i, ahead);
    CountDecodeWord(counts + i / 8, num_frames, bytes, out + i);
  }
  if (i == n) return;
  float last[kSignsPerWord];
  CountDecodeWord(counts + i / 8, num_frames, bytes, last);
  std::memcpy(out + i, last, (n - i) * sizeof(float));
}

// A block of m elements, whose values are made in `residual`. With kTake the
// signs of the `m` values of the block before are taken meanwhile: memory then
// has as much to do at any time.
struct SignBlock {
  const float* HWY_RESTRICT grad;
  float* residual;
  size_t m;
  const SignTaker& before;
  EncodeStats* stats;
};

// Returns the mean magnitude of the values that it makes.
template <NonFinite kNonFinite, bool kTake>
HWY_INLINE float MeanOfValues(const SignBlock& block) {
  const size_t m = block.m;
  alignas(64) float lanes[kSignLanes];
  if (m < kSignLanes) std::fill(lanes, lanes + kSignLanes, 0.0f);
  const size_t ahead = PrefetchBytes();
  size_t i = 0;
  for (; i + kGroup <= m; i += kGroup) {
    PrefetchRead<4 * kGroup>(block.grad + i, ahead);
    PrefetchWrite<4 * kGroup>(block.residual + i, ahead);
    const FourVectors v =
        FiniteValues<kNonFinite>(block.grad, block.residual, i, block.stats);
    float* const group = lanes + i % kSignLanes;
    FourVectors sum = MagnitudesOf(v);
    if (i >= kSignLanes) sum = SumOf(Load(group), sum);
    Store(sum, group);
    Store(v, block.residual + i);
    if constexpr (kTake) block.before.Take(PlaceApart<kGroup>(i, m), ahead);
  }
  if (i < m) {
    ValuesSlowly(block.grad, block.residual, i, m, kNonFinite, block.stats);
  }
  for (; i < m; ++i) lanes[i % kSignLanes] += std::fabs(block.residual[i]);
  return MeanOfLanes(lanes, m);
}

// Blocks are whole groups.
template <NonFinite kNonFinite>
void BlockEncodeAs(const float* grad, float* residual, size_t n, size_t block,
                   uint8_t* payload, EncodeStats* stats) {
  uint8_t* bits = payload + 4 * NumSignBlocks(n, block);
  SignTaker before(residual, 0.0f, bits);
  for (size_t from = 0; from < n; from += block) {
    const size_t m = std::min(block, n - from);
    EncodeStats part;
    const SignBlock values = {grad + from, residual + from, m, before, &part};
    float scale;
    if (from > 0 && m == block) {
      scale = MeanOfValues<kNonFinite, true>(values);
    } else {
      before.TakeAll(std::min(block, from));
      scale = MeanOfValues<kNonFinite, false>(values);
    }
    std::memcpy(payload + 4 * (from / block), &scale, sizeof(scale));
    before = SignTaker(residual + from, scale, bits + from / 8);
    if (from + m == n) before.TakeAll(m);
    if (scale != 0) part.num_nonzero = m;
    AddPart(part, from, stats);
  }
}

void BlockEncode(const float* grad, float* residual, size_t n, size_t block,
                 NonFinite nonfinite, uint8_t* payload, EncodeStats* stats,
                 Stream) {
  (nonfinite == NonFinite::kZero
       ? BlockEncodeAs<NonFinite::kZero>
       : BlockEncodeAs<NonFinite::kPropagate>)(grad, residual, n, block,
                                               payload, stats);
}

template <Put kPut>
void DecodeBlocks(const uint8_t* payload, size_t n, size_t block, float* out,
                  Stream) {
  const uint8_t* bits = payload + 4 * NumSignBlocks(n, block);
  for (size_t from = 0; from < n; from += block) {
    const size_t m = std::min(block, n - from);
    float scale;
    std::memcpy(&scale, payload + 4 * (from / block), sizeof(scale));
    const size_t done =
        DecodeTurns<kPut>(bits + from / 8, m, scale, out + from);
    for (size_t i = from + done; i < from + m; ++i) {
      const bool is_positive = (bits[i / 8] >> (7 - i % 8) & 1) != 0;
      const float value = is_positive ? scale : -scale;
      out[i] = kPut == Put::kAdd ? out[i] + value : value;
    }
  }
  EndPut<kPut>();
}

void BlockDecode(const uint8_t* payload, size_t n, size_t block, float* out,
                 Stream stream) {
  (Streams(out, n) ? DecodeBlocks<Put::kStream>
                   : DecodeBlocks<Put::kOver>)(payload, n, block, out, stream);
}

void FillSign(KernelTable& table) {
  SignKernels& sign = table.sign;
  sign.one_bit_encode = OneBitEncode;
  sign.one_bit_decode = OneBitDecode;
  sign.one_bit_decode_add = DecodeOneBit<Put::kAdd>;
  sign.count_pack = CountPack;
  sign.count_decode = CountDecode;
  sign.block_encode = BlockEncode;
  sign.block_decode = BlockDecode;
  sign.block_decode_add = DecodeBlocks<Put::kAdd>;
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace telegrad::kernels::cpu {

HWY_EXPORT(FillSign);

void FillSign(int64_t target, KernelTable& table) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  HWY_DISPATCH_TABLE(FillSign)[chosen.GetIndex()](table);
}

}  // namespace telegrad::kernels::cpu
#endif  // HWY_ONCE
