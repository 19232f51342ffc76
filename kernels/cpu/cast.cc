#include "kernels/cast.h"

#include "kernels/cpu/targets.h"
#include "kernels/reference.h"
#include "kernels/value.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cast.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/half-inl.h"
#include "kernels/cpu/put-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void FillCast(KernelTable&) {}

#else

constexpr size_t kCastBlock = 4 * kLanes;
using D8 = hn::Repartition<uint8_t, DU16>;

struct Fp16 : OfFp16 {
  static CastFormatKernels Reference() { return reference::Cast().fp16; }
};
struct Bf16 : OfBf16 {
  static CastFormatKernels Reference() { return reference::Cast().bf16; }
};

// Encodes elements [from, to) by the definition.
template <typename Format>
HWY_NOINLINE void EncodeSlowly(const float* grad, float* residual, size_t from,
                               size_t to, NonFinite nonfinite, uint8_t* codes,
                               EncodeStats* stats) {
  EncodeStats part;
  Format::Reference().encode(
      grad + from, residual == nullptr ? nullptr : residual + from, to - from,
      nonfinite, codes + 2 * from, &part, Stream{});
  AddPart(part, from, stats);
}

template <bool kHasResidual>
HWY_INLINE VF ValueAt(const float* grad, const float* residual, size_t i) {
  const DF df;
  const VF g = hn::LoadU(df, grad + i);
  if constexpr (!kHasResidual) return g;
  return hn::Add(hn::LoadU(df, residual + i), g);
}

// Stores the codes of two vectors, finite elements from i on, and what they
// leave; returns how many codes are not 0, times two.
template <typename Format, bool kHasResidual, Put kPut>
HWY_INLINE size_t EncodePair(VF v0, VF v1, size_t i, float* residual,
                             uint8_t* codes) {
  const DF df;
  const DU16Pair d16;
  const hn::Repartition<uint8_t, DF> d8;
  VF sent0 = v0;
  VF sent1 = v1;
  const VU16Pair code = Format::NarrowPair(sent0, sent1);
  if constexpr (kHasResidual) {
    hn::StoreU(hn::Sub(v0, sent0), df, residual + i);
    hn::StoreU(hn::Sub(v1, sent1), df, residual + i + kLanes);
  }
  PutCodes<kPut>(d8, hn::BitCast(d8, code), codes + 2 * i);
  // Bytes are cheaper to count than pairs of them.
  const auto is_nonzero =
      hn::VecFromMask(d16, hn::Ne(hn::Add(code, code), hn::Zero(d16)));
  return hn::CountTrue(d8, hn::MaskFromVec(hn::BitCast(d8, is_nonzero)));
}

template <typename Format, bool kHasResidual, Put kPut>
void EncodeAll(const float* HWY_RESTRICT grad, float* HWY_RESTRICT residual,
               size_t n, NonFinite nonfinite, uint8_t* HWY_RESTRICT codes,
               EncodeStats* stats) {
  const size_t ahead = PrefetchBytes();
  uint64_t twice_nonzero = 0;
  size_t i = 0;
  for (; i + kCastBlock <= n; i += kCastBlock) {
    PrefetchRead<4 * kCastBlock>(grad + i, ahead);
    if constexpr (kHasResidual)
      PrefetchWrite<4 * kCastBlock>(residual + i, ahead);
    PrefetchPut<kPut, 2 * kCastBlock>(codes + 2 * i, ahead);
    VF v[4];
    for (size_t k = 0; k < 4; ++k) {
      v[k] = ValueAt<kHasResidual>(grad, residual, i + k * kLanes);
    }
    if (HWY_UNLIKELY(!SumIsFinite(v[0], v[1], v[2], v[3]))) {
      EncodeSlowly<Format>(grad, residual, i, i + kCastBlock, nonfinite, codes,
                           stats);
      continue;
    }
    for (size_t k = 0; k < 4; k += 2) {
      twice_nonzero += EncodePair<Format, kHasResidual, kPut>(
          v[k], v[k + 1], i + k * kLanes, residual, codes);
    }
  }
  EndPut<kPut>();
  stats->num_nonzero += twice_nonzero / 2;
  if (i < n) {
    EncodeSlowly<Format>(grad, residual, i, n, nonfinite, codes, stats);
  }
}

template <typename Format>
void Encode(const float* grad, float* residual, size_t n, NonFinite nonfinite,
            uint8_t* codes, EncodeStats* stats, Stream) {
  const bool streams = StreamsBytes(codes, 2 * n);
  const auto encode = residual != nullptr
                          ? (streams ? EncodeAll<Format, true, Put::kStream>
                                     : EncodeAll<Format, true, Put::kOver>)
                          : (streams ? EncodeAll<Format, false, Put::kStream>
                                     : EncodeAll<Format, false, Put::kOver>);
  encode(grad, residual, n, nonfinite, codes, stats);
}

// Returns how many elements are done: all but a tail.
template <typename Format, Put kPut>
size_t DecodeBlocks(const uint8_t* HWY_RESTRICT codes, size_t n,
                    float* HWY_RESTRICT out) {
  const size_t ahead = PrefetchBytes();
  size_t i = 0;
  for (; i + kCastBlock <= n; i += kCastBlock) {
    PrefetchRead<2 * kCastBlock>(codes + 2 * i, ahead);
    PrefetchPut<kPut, 4 * kCastBlock>(out + i, ahead);
    for (size_t j = i; j < i + kCastBlock; j += kLanes) {
      const auto narrow = hn::BitCast(DU16(), hn::LoadU(D8(), codes + 2 * j));
      PutLanes<kPut>(Format::Widen(narrow), out + j);
    }
  }
  EndPut<kPut>();
  return i;
}

template <typename Format>
void Decode(const uint8_t* codes, size_t n, float* out, Stream stream) {
  auto* const decode = Streams(out, n) ? DecodeBlocks<Format, Put::kStream>
                                       : DecodeBlocks<Format, Put::kOver>;
  const size_t i = decode(codes, n, out);
  Format::Reference().decode(codes + 2 * i, n - i, out + i, stream);
}

template <typename Format>
void DecodeAdd(const uint8_t* codes, size_t n, float* sum, Stream stream) {
  const size_t i = DecodeBlocks<Format, Put::kAdd>(codes, n, sum);
  Format::Reference().decode_add(codes + 2 * i, n - i, sum + i, stream);
}

template <typename Format>
CastFormatKernels Kernels() {
  return {Encode<Format>, Decode<Format>, DecodeAdd<Format>};
}

void FillCast(KernelTable& table) {
  table.cast = {Kernels<Fp16>(), Kernels<Bf16>()};
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace telegrad::kernels::cpu {

HWY_EXPORT(FillCast);

void FillCast(int64_t target, KernelTable& table) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  HWY_DISPATCH_TABLE(FillCast)[chosen.GetIndex()](table);
}

}  // namespace telegrad::kernels::cpu
#endif  // HWY_ONCE
