// Per-target include guard, as Highway wants it.
#if defined(TELEGRAD_KERNELS_CPU_BLOCK_DECODE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TELEGRAD_KERNELS_CPU_BLOCK_DECODE_INL_H_
#undef TELEGRAD_KERNELS_CPU_BLOCK_DECODE_INL_H_
#else
#define TELEGRAD_KERNELS_CPU_BLOCK_DECODE_INL_H_
#endif

#include <cstring>

#include "kernels/block_runs.h"
#include "kernels/cpu/block_codes-inl.h"
#include "kernels/cpu/put-inl.h"
#include "kernels/dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// What codes say in scales, as reference::TimesTwo.
class TimesTwo {
 public:
  HWY_INLINE explicit TimesTwo(uint32_t odd)
      : mask_(hn::Set(DI(), odd == 0 ? 0 : -1)),
        odd_(hn::Set(DI(), static_cast<int32_t>(odd))) {}
  HWY_INLINE VI operator()(VI code) const {
    return hn::Add(hn::Add(code, hn::And(code, mask_)), odd_);
  }

 private:
  VI mask_;
  VI odd_;
};

HWY_INLINE VF LinearLanes(VI code, VF scale) {
  return hn::Mul(hn::ConvertTo(DF(), code), scale);
}

HWY_INLINE VF NaturalLanes(VI code, VF scale) {
  const DF df;
  const DI di;
  const VI magnitude = hn::Abs(code);
  const VI exponent = hn::Min(hn::Sub(magnitude, hn::Set(di, 1)),
                              hn::Set(di, kMaxNaturalLevels));
  const VF power =
      hn::BitCast(df, hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(di, 127))));
  const VI sign = hn::And(code, hn::Set(di, INT32_MIN));
  const VI value = hn::Xor(hn::BitCast(di, hn::Mul(scale, power)), sign);
  return hn::BitCast(
      df, hn::IfThenElseZero(hn::Gt(magnitude, hn::Zero(di)), value));
}

// Elements [from, to), from a multiple of 64.
template <uint32_t kBits, bool kNatural, Put kPut>
HWY_INLINE void DecodeRun(const uint8_t* HWY_RESTRICT codes, size_t from,
                          size_t to, uint32_t odd, float factor,
                          float* HWY_RESTRICT out) {
  const size_t ahead = PrefetchBytes();
  const TimesTwo times_two(odd);
  const VF scale = hn::Set(DF(), factor);
  alignas(64) int8_t group[kGroup];
  size_t i = from;
  for (; i + kGroup <= to; i += kGroup) {
    PrefetchPut<kPut, 4 * kGroup>(out + i, ahead);
    UnpackGroup<kBits>(codes + i / 8 * kBits, group);
    for (size_t j = 0; j < kGroup; j += kLanes) {
      const VI code = LoadFromBytes(group + j);
      PutLanes<kPut>(kNatural ? NaturalLanes(code, scale)
                              : LinearLanes(times_two(code), scale),
                     out + i + j);
    }
  }
  reference::DecodeRun(codes, i, to, kBits, odd, factor, kNatural,
                       kPut == Put::kAdd, out);
}

template <uint32_t kBits, bool kNatural, Put kPut>
void DecodeBlocks(const uint8_t* payload, size_t n, const BlockFormat& format,
                  float* out) {
  const uint8_t* codes = payload + ScaleBytes(n, format);
  for (size_t from = 0; from < n; from += format.block) {
    const size_t to = n - from < format.block ? n : from + format.block;
    DecodeRun<kBits, kNatural, kPut>(
        codes, from, to, format.odd,
        reference::BlockScaleAt(payload, from / format.block, format), out);
  }
}

template <bool kNatural, Put kPut>
void DecodeAs(const uint8_t* payload, size_t n, const BlockFormat& format,
              float* out) {
  const auto decode = format.bits == 8   ? DecodeBlocks<8, kNatural, kPut>
                      : format.bits == 4 ? DecodeBlocks<4, kNatural, kPut>
                      : format.bits == 3 ? DecodeBlocks<3, false, kPut>
                                         : DecodeBlocks<2, kNatural, kPut>;
  decode(payload, n, format, out);
}

template <Put kPut>
void DecodeAs(const uint8_t* payload, size_t n, const BlockFormat& format,
              float* out) {
  (format.natural ? DecodeAs<true, kPut> : DecodeAs<false, kPut>)(payload, n,
                                                                  format, out);
  EndPut<kPut>();
}

void BlockDecode(const uint8_t* payload, size_t n, BlockFormat format,
                 float* out, Stream) {
  (Streams(out, n) ? DecodeAs<Put::kStream>
                   : DecodeAs<Put::kOver>)(payload, n, format, out);
}

void BlockDecodeAdd(const uint8_t* payload, size_t n, BlockFormat format,
                    float* sum, Stream) {
  DecodeAs<Put::kAdd>(payload, n, format, sum);
}

// Sums, of 16 or 32 bits.
template <typename T, Put kPut>
void DecodeWide(const uint8_t* HWY_RESTRICT codes, size_t n, uint32_t odd,
                float quantum, float* HWY_RESTRICT out) {
  const size_t ahead = PrefetchBytes();
  const TimesTwo times_two(odd);
  const hn::Rebind<T, DF> d;
  const VF scale = hn::Set(DF(), quantum);
  alignas(64) T values[kLanes];
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    PrefetchPut<kPut, 4 * kLanes>(out + i, ahead);
    std::memcpy(values, codes + sizeof(T) * i, sizeof(values));
    VI code;
    if constexpr (sizeof(T) == 4) {
      code = hn::Load(d, values);
    } else {
      code = hn::PromoteTo(DI(), hn::Load(d, values));
    }
    PutLanes<kPut>(LinearLanes(times_two(code), scale), out + i);
  }
  reference::DecodeRun(codes, i, n, 8 * sizeof(T), odd, quantum, false,
                       kPut == Put::kAdd, out);
}

template <Put kPut>
void DecodeShared(const uint8_t* codes, size_t n, uint32_t bits, uint32_t odd,
                  float quantum, float* out) {
  if (bits == 32) return DecodeWide<int32_t, kPut>(codes, n, odd, quantum, out);
  if (bits == 16) return DecodeWide<int16_t, kPut>(codes, n, odd, quantum, out);
  const auto decode = bits == 8   ? DecodeRun<8, false, kPut>
                      : bits == 7 ? DecodeRun<7, false, kPut>
                      : bits == 6 ? DecodeRun<6, false, kPut>
                      : bits == 5 ? DecodeRun<5, false, kPut>
                      : bits == 4 ? DecodeRun<4, false, kPut>
                      : bits == 3 ? DecodeRun<3, false, kPut>
                                  : DecodeRun<2, false, kPut>;
  decode(codes, 0, n, odd, quantum, out);
}

void SharedDecode(const uint8_t* codes, size_t n, uint32_t bits, uint32_t odd,
                  float quantum, float* out, Stream) {
  if (!Streams(out, n)) {
    return DecodeShared<Put::kOver>(codes, n, bits, odd, quantum, out);
  }
  DecodeShared<Put::kStream>(codes, n, bits, odd, quantum, out);
  EndPut<Put::kStream>();
}

void SharedDecodeAdd(const uint8_t* codes, size_t n, uint32_t bits,
                     uint32_t odd, float quantum, float* sum, Stream) {
  DecodeShared<Put::kAdd>(codes, n, bits, odd, quantum, sum);
}

// The sums of elements [i, i + 64).
template <uint32_t kBits>
HWY_INLINE void SumGroup(const uint8_t* const* frames, uint32_t num_frames,
                         size_t i, int32_t* sums) {
  alignas(64) int8_t group[kGroup];
  std::memset(sums, 0, kGroup * sizeof(*sums));
  for (uint32_t f = 0; f < num_frames; ++f) {
    PrefetchRead<kGroup / 8 * kBits>(frames[f] + i / 8 * kBits);
    UnpackGroup<kBits>(frames[f] + i / 8 * kBits, group);
    for (size_t j = 0; j < kGroup; j += kLanes) {
      hn::Store(hn::Add(hn::Load(DI(), sums + j), LoadFromBytes(group + j)),
                DI(), sums + j);
    }
  }
}

// 64 sums that fit, as T.
template <typename T>
HWY_INLINE void StoreSums(const int32_t* sums, uint8_t* to) {
  const hn::Rebind<T, DI> d;
  alignas(64) T values[kGroup];
  for (size_t j = 0; j < kGroup; j += kLanes) {
    hn::StoreU(hn::DemoteTo(d, hn::Load(DI(), sums + j)), d, values + j);
  }
  std::memcpy(to, values, sizeof(values));
}

template <uint32_t kBits>
void SumAs(const uint8_t* const* frames, uint32_t num_frames, size_t n,
           uint32_t sum_bits, uint8_t* out) {
  alignas(64) int32_t sums[kGroup];
  const auto pack = sum_bits == 2   ? PackGroup<2>
                    : sum_bits == 3 ? PackGroup<3>
                    : sum_bits == 4 ? PackGroup<4>
                    : sum_bits == 5 ? PackGroup<5>
                    : sum_bits == 6 ? PackGroup<6>
                                    : PackGroup<7>;
  size_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    SumGroup<kBits>(frames, num_frames, i, sums);
    if (sum_bits < 8) {
      alignas(64) int8_t group[kGroup];
      StoreSums<int8_t>(sums, reinterpret_cast<uint8_t*>(group));
      pack(group, out + i / 8 * sum_bits);
    } else if (sum_bits == 8) {
      StoreSums<int8_t>(sums, out + i);
    } else if (sum_bits == 16) {
      StoreSums<int16_t>(sums, out + 2 * i);
    } else {
      std::memcpy(out + 4 * i, sums, sizeof(sums));
    }
  }
  reference::SumRun(frames, num_frames, i, n, kBits, sum_bits, out);
}

template <uint32_t kBits>
void SumDecodeAs(const uint8_t* const* frames, uint32_t num_frames, size_t n,
                 float quantum, float* out) {
  const size_t ahead = PrefetchBytes();
  const VF scale = hn::Set(DF(), quantum);
  const TimesTwo times_two(IsOdd(kBits) ? num_frames : 0);
  alignas(64) int32_t sums[kGroup];
  size_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    PrefetchWrite<4 * kGroup>(out + i, ahead);
    SumGroup<kBits>(frames, num_frames, i, sums);
    for (size_t j = 0; j < kGroup; j += kLanes) {
      PutLanes<Put::kOver>(
          LinearLanes(times_two(hn::Load(DI(), sums + j)), scale), out + i + j);
    }
  }
  reference::SumDecodeRun(frames, num_frames, i, n, kBits, quantum, out);
}

void SumCodes(const uint8_t* const* frames, uint32_t num_frames, size_t n,
              uint32_t bits, uint32_t sum_bits, uint8_t* sum, Stream) {
  (bits == 8   ? SumAs<8>
   : bits == 4 ? SumAs<4>
   : bits == 3 ? SumAs<3>
               : SumAs<2>)(frames, num_frames, n, sum_bits, sum);
}

void SharedSumDecode(const uint8_t* const* frames, uint32_t num_frames,
                     size_t n, uint32_t bits, float quantum, float* out,
                     Stream) {
  (bits == 8   ? SumDecodeAs<8>
   : bits == 4 ? SumDecodeAs<4>
   : bits == 3 ? SumDecodeAs<3>
               : SumDecodeAs<2>)(frames, num_frames, n, quantum, out);
}

inline void FillBlockDecode(KernelTable& table) {
  table.block.decode = BlockDecode;
  table.block.decode_add = BlockDecodeAdd;
  table.block.shared_decode = SharedDecode;
  table.block.shared_decode_add = SharedDecodeAdd;
  table.block.sum_codes = SumCodes;
  table.block.shared_sum_decode = SharedSumDecode;
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
