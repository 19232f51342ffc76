#include "kernels/two_bit.h"

#include <cstring>

#include "kernels/cpu/targets.h"
#include "kernels/reference.h"
#include "kernels/value.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/two_bit.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/half-inl.h"
#include "kernels/cpu/put-inl.h"
#include "kernels/cpu/two_bit_codes-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void FillTwoBit(KernelTable&) {}

#else

// Gradients, each with the definition of its encoder.
struct Float32Grad : OfFloat32 {
  static constexpr auto* kDefinition = reference::TwoBitEncode;
};
struct Fp16Grad : OfFp16 {
  static constexpr auto* kDefinition = reference::TwoBitEncodeFp16;
};
struct Bf16Grad : OfBf16 {
  static constexpr auto* kDefinition = reference::TwoBitEncodeBf16;
};

// Takes t off v where it reaches t or -t, and stores the rest.
HWY_INLINE Signs Quantize(VF v, VF t, VF minus_t, float* residual) {
  const DF df;
  const DU du;
  const auto positive = hn::Ge(v, t);
  const auto negative = hn::Le(v, minus_t);
  const VF sent =
      hn::IfThenElse(negative, minus_t, hn::IfThenElseZero(positive, t));
  hn::StoreU(hn::Sub(v, sent), df, residual);
  return {hn::RebindMask(du, positive), hn::RebindMask(du, negative)};
}

// Encodes elements [from, to) by the definition; `from` is at a word of codes.
template <class Grad>
HWY_NOINLINE void EncodeSlowly(const typename Grad::Element* grad,
                               float* residual, size_t from, size_t to,
                               float threshold, NonFinite nonfinite,
                               uint8_t* codes, EncodeStats* stats) {
  EncodeStats part;
  Grad::kDefinition(grad + from, residual + from, to - from, threshold,
                    nonfinite, codes + from / 4, &part, Stream{});
  AddPart(part, from, stats);
}

template <class Grad, NonFinite kNonFinite>
void EncodeAll(const typename Grad::Element* HWY_RESTRICT grad,
               float* HWY_RESTRICT residual, size_t n, float threshold,
               uint8_t* HWY_RESTRICT codes, EncodeStats* stats) {
  const DF df;
  const VF t = hn::Set(df, threshold);
  const VF minus_t = hn::Set(df, -threshold);
  const CodeLanes code = MakeCodeLanes();
  const size_t ahead = PrefetchBytes();
  uint64_t num_nonzero = 0;
  size_t i = 0;
  for (; i + kCodeBlock <= n; i += kCodeBlock) {
    const auto* g = grad + i;
    float* r = residual + i;
    PrefetchRead<sizeof(*g) * kCodeBlock>(g, ahead);
    PrefetchWrite<4 * kCodeBlock>(r, ahead);
    PrefetchWrite<kCodeBlock / 4>(codes + i / 4, ahead / 4);
    VF v[4];
    for (size_t p = 0; p < 4; ++p) {
      v[p] = hn::Add(hn::LoadU(df, r + p * kLanes), Grad::Load(g + p * kLanes));
    }
    if constexpr (kNonFinite == NonFinite::kZero) {
      if (HWY_UNLIKELY(!SumIsFinite(v[0], v[1], v[2], v[3]))) {
        EncodeSlowly<Grad>(grad, residual, i, i + kCodeBlock, threshold,
                           kNonFinite, codes, stats);
        continue;
      }
    }
    const auto signs = [&](size_t p) HWY_ATTR {
      return Quantize(v[p], t, minus_t, r + p * kLanes);
    };
    num_nonzero += StoreCodes(DU(), CodesOf(code, signs), codes + i / 4);
  }
  stats->num_nonzero += num_nonzero;
  if (i < n) {
    EncodeSlowly<Grad>(grad, residual, i, n, threshold, kNonFinite, codes,
                       stats);
  }
}

template <class Grad>
void Encode(const typename Grad::Element* grad, float* residual, size_t n,
            float threshold, NonFinite nonfinite, uint8_t* codes,
            EncodeStats* stats, Stream) {
  if (nonfinite == NonFinite::kZero) {
    EncodeAll<Grad, NonFinite::kZero>(grad, residual, n, threshold, codes,
                                      stats);
  } else {
    EncodeAll<Grad, NonFinite::kPropagate>(grad, residual, n, threshold, codes,
                                           stats);
  }
}

// Bits of element i of a word of codes; code 10 is the upper of the two.
alignas(64) constexpr uint32_t kCodeMask[kCodesPerWord] = {
    3u << 6,  3u << 4,  3u << 2,  3u,       3u << 14, 3u << 12,
    3u << 10, 3u << 8,  3u << 22, 3u << 20, 3u << 18, 3u << 16,
    3u << 30, 3u << 28, 3u << 26, 3u << 24};
alignas(64) constexpr uint32_t kNegativeMask[kCodesPerWord] = {
    2u << 6,  2u << 4,  2u << 2,  2u,       2u << 14, 2u << 12,
    2u << 10, 2u << 8,  2u << 22, 2u << 20, 2u << 18, 2u << 16,
    2u << 30, 2u << 28, 2u << 26, 2u << 24};

HWY_INLINE VU LoadWord(const uint8_t* codes) {
  uint32_t word;
  std::memcpy(&word, codes, sizeof(word));
  return hn::Set(DU(), word);
}

// Elements [i, i + kLanes) of those that a word holds.
HWY_INLINE VF ValuesAt(VU word, size_t i, VF t, VF minus_t) {
  const DF df;
  const DU du;
  const VU mask = hn::Load(du, kCodeMask + i);
  const VU code = hn::And(word, mask);
  const auto positive = hn::RebindMask(df, hn::Eq(code, mask));
  const auto negative =
      hn::RebindMask(df, hn::Eq(code, hn::Load(du, kNegativeMask + i)));
  return hn::IfThenElse(negative, minus_t, hn::IfThenElseZero(positive, t));
}

template <Put kPut>
HWY_INLINE void DecodeWord(const uint8_t* codes, VF t, VF minus_t, float* out) {
  const VU word = LoadWord(codes);
  for (size_t i = 0; i < kCodesPerWord; i += kLanes) {
    PutLanes<kPut>(ValuesAt(word, i, t, minus_t), out + i);
  }
}

// Returns how many elements are done: all but a tail.
template <Put kPut>
size_t DecodeBlocks(const uint8_t* HWY_RESTRICT codes, size_t n,
                    float threshold, float* HWY_RESTRICT out) {
  const VF t = hn::Set(DF(), threshold);
  const VF minus_t = hn::Set(DF(), -threshold);
  const size_t ahead = PrefetchBytes();
  size_t i = 0;
  for (; i + 4 * kCodesPerWord <= n; i += 4 * kCodesPerWord) {
    PrefetchPut<kPut, 4 * 4 * kCodesPerWord>(out + i, ahead);
    for (size_t j = i; j < i + 4 * kCodesPerWord; j += kCodesPerWord) {
      DecodeWord<kPut>(codes + j / 4, t, minus_t, out + j);
    }
  }
  EndPut<kPut>();
  return i;
}

void TwoBitDecode(const uint8_t* codes, size_t n, float threshold, float* out,
                  Stream stream) {
  auto* const decode =
      Streams(out, n) ? DecodeBlocks<Put::kStream> : DecodeBlocks<Put::kOver>;
  const size_t i = decode(codes, n, threshold, out);
  reference::TwoBitDecode(codes + i / 4, n - i, threshold, out + i, stream);
}

void TwoBitDecodeAdd(const uint8_t* codes, size_t n, float threshold,
                     float* sum, Stream stream) {
  const size_t i = DecodeBlocks<Put::kAdd>(codes, n, threshold, sum);
  reference::TwoBitDecodeAdd(codes + i / 4, n - i, threshold, sum + i, stream);
}

void FillTwoBit(KernelTable& table) {
  table.two_bit_encode = Encode<Float32Grad>;
  table.two_bit_encode_fp16 = Encode<Fp16Grad>;
  table.two_bit_encode_bf16 = Encode<Bf16Grad>;
  table.two_bit_decode = TwoBitDecode;
  table.two_bit_decode_add = TwoBitDecodeAdd;
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace telegrad::kernels::cpu {

HWY_EXPORT(FillTwoBit);

void FillTwoBit(int64_t target, KernelTable& table) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  HWY_DISPATCH_TABLE(FillTwoBit)[chosen.GetIndex()](table);
}

}  // namespace telegrad::kernels::cpu
#endif  // HWY_ONCE
