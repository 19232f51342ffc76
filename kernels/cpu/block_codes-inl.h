// Per-target include guard, as Highway wants it.
#if defined(TELEGRAD_KERNELS_CPU_BLOCK_CODES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TELEGRAD_KERNELS_CPU_BLOCK_CODES_INL_H_
#undef TELEGRAD_KERNELS_CPU_BLOCK_CODES_INL_H_
#else
#define TELEGRAD_KERNELS_CPU_BLOCK_CODES_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/block.h"
#include "kernels/cpu/put-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// 64 codes as bytes on the stack, between floats and packed codes.
constexpr size_t kGroup = 64;
static_assert(kGroup == kBlockMultiple && kGroup == kDrawGroup, "one group");

using DB = hn::Repartition<int8_t, DI>;
using DQ = hn::Rebind<int8_t, DI>;
constexpr size_t kBytesInVector = hn::MaxLanes(DB());

// Lowest bytes of all lanes of a, then of b, c and d.
HWY_INLINE hn::Vec<DB> LowestBytes(VU a, VU b, VU c, VU d) {
  const DU du;
  const DB d8;
  const auto lanes =
      hn::BitCast(d8, BytesOf(a, hn::ShiftLeft<8>(b), hn::ShiftLeft<16>(c),
                              hn::ShiftLeft<24>(d)));
  alignas(16) static constexpr int8_t kTransposed[16] = {
      0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  const auto words = hn::BitCast(
      du, hn::TableLookupBytes(lanes, hn::LoadDup128(d8, kTransposed)));
  alignas(64) static constexpr std::array<uint32_t, kLanes> kBlocks = [] {
    std::array<uint32_t, kLanes> from{};
    for (uint32_t i = 0; i < kLanes; ++i) {
      from[i] = i % (kLanes / 4) * 4 + i / (kLanes / 4);
    }
    return from;
  }();
  return hn::BitCast(
      d8, hn::TableLookupLanes(words, hn::SetTableIndices(du, kBlocks.data())));
}

HWY_INLINE void StoreAsBytes(VI codes, int8_t* to) {
  hn::StoreU(hn::DemoteTo(DQ(), codes), DQ(), to);
}
HWY_INLINE VI LoadFromBytes(const int8_t* from) {
  return hn::PromoteTo(DI(), hn::LoadU(DQ(), from));
}

HWY_INLINE size_t NumNonzero(const int8_t* group) {
  const DB db;
  size_t num_zero = 0;
  for (size_t j = 0; j < kGroup; j += kBytesInVector) {
    num_zero +=
        hn::CountTrue(db, hn::Eq(hn::LoadU(db, group + j), hn::Zero(db)));
  }
  return kGroup - num_zero;
}

// The lowest kBits bits of every 2 * kStep bits.
template <uint32_t kBits, uint32_t kStep>
constexpr uint64_t kFields = [] {
  uint64_t fields = 0;
  for (uint32_t at = 0; at < 64; at += 2 * kStep) {
    fields |= ((uint64_t{1} << kBits) - 1) << at;
  }
  return fields;
}();

// Pairs of fields of kBits bits, kStep bits apart, come together; and back.
template <uint32_t kBits, uint32_t kStep, class D>
HWY_INLINE hn::Vec<D> Joined(D d, hn::Vec<D> fields) {
  constexpr uint64_t kLow = kFields<kBits, kStep>;
  return hn::Or(hn::And(fields, hn::Set(d, kLow)),
                hn::And(hn::ShiftRight<kStep - kBits>(fields),
                        hn::Set(d, kLow << kBits)));
}
template <uint32_t kBits, uint32_t kStep, class D>
HWY_INLINE hn::Vec<D> Apart(D d, hn::Vec<D> fields) {
  constexpr uint64_t kLow = kFields<kBits, kStep>;
  return hn::Or(
      hn::And(fields, hn::Set(d, kLow)),
      hn::And(hn::ShiftLeft<kStep - kBits>(fields), hn::Set(d, kLow << kStep)));
}

// Bytes of two words of 64 bits, kBits of each, together.
template <uint32_t kBits>
constexpr std::array<uint8_t, 16> kPairs = [] {
  std::array<uint8_t, 16> from{};
  for (uint8_t j = 0; j < 2 * kBits; ++j) {
    from[j] = static_cast<uint8_t>(j / kBits * 8 + j % kBits);
  }
  return from;
}();
// For each 16 codes of a group: where its bytes are in the last
// 16 bytes that begin no later than they, or 0x80 for none.
template <uint32_t kBits>
constexpr std::array<uint8_t, kGroup> kApart = [] {
  std::array<uint8_t, kGroup> from{};
  for (uint32_t j = 0; j < kGroup; ++j) {
    const uint32_t at = j / 16 * 2 * kBits;
    const uint32_t least = std::min(at, 8 * kBits - 16);
    from[j] = static_cast<uint8_t>(
        j % 8 < kBits ? at - least + j % 16 / 8 * kBits + j % 8 : 0x80);
  }
  return from;
}();

// Puts a vector's codes, a byte each, as kBits each.
template <uint32_t kBits, Put kPut>
HWY_INLINE void PutPacked(hn::Vec<DB> codes, uint8_t* to) {
  if constexpr (kBits == 8) {
    const hn::RebindToUnsigned<DB> d8;
    PutCodes<kPut>(d8, hn::BitCast(d8, codes), to);
  } else if constexpr (kBits == 4) {
    const hn::Repartition<uint16_t, DB> d16;
    const hn::RebindToSigned<decltype(d16)> di16;
    const hn::Rebind<uint8_t, decltype(d16)> d8;
    const auto pair = hn::BitCast(d16, codes);
    const auto packed =
        hn::Or(hn::And(pair, hn::Set(d16, 0x000F)),
               hn::And(hn::ShiftRight<4>(pair), hn::Set(d16, 0x00F0)));
    PutCodes<kPut>(d8, hn::DemoteTo(d8, hn::BitCast(di16, packed)), to);
  } else if constexpr (kBits != 2) {
    const hn::Repartition<uint64_t, DB> d64;
    auto fields = Joined<kBits, 8>(d64, hn::BitCast(d64, codes));
    fields = Joined<2 * kBits, 16>(d64, fields);
    fields = Joined<4 * kBits, 32>(d64, fields);
    // Each sixteen codes lie in 2 * kBits bytes that follow one another.
    const hn::RebindToUnsigned<DB> d8;
    alignas(64) std::array<uint8_t, kBytesInVector> bytes;
    hn::Store(hn::TableLookupBytes(hn::BitCast(d8, fields),
                                   hn::LoadDup128(d8, kPairs<kBits>.data())),
              d8, bytes.data());
    for (size_t j = 0; j < kBytesInVector; j += 16) {
      std::memcpy(to + j / 8 * kBits, bytes.data() + j, 2 * kBits);
    }
  } else {
    const hn::Rebind<uint8_t, DU> d8;
    const DU du;
    const VU four = hn::And(hn::BitCast(du, codes), hn::Set(du, 0x03030303));
    const VU packed = hn::And(
        hn::Or(hn::Or(four, hn::ShiftRight<6>(four)),
               hn::Or(hn::ShiftRight<12>(four), hn::ShiftRight<18>(four))),
        hn::Set(du, 0xFF));
    PutCodes<kPut>(d8, hn::DemoteTo(d8, hn::BitCast(DI(), packed)), to);
  }
}

template <uint32_t kBits>
HWY_INLINE void PackGroup(const int8_t* group, uint8_t* codes) {
  for (size_t j = 0; j < kGroup; j += kBytesInVector) {
    PutPacked<kBits, Put::kOver>(hn::Load(DB(), group + j),
                                 codes + j / 8 * kBits);
  }
}

// Sign-extends the low kBits of every byte.
template <uint32_t kBits, class D, class V>
HWY_INLINE void StoreExtended(D d, V bytes, int8_t* to) {
  const hn::Repartition<int8_t, D> db;
  const auto sign = hn::Set(db, static_cast<int8_t>(1 << (kBits - 1)));
  const auto signed_bytes =
      hn::Sub(hn::Xor(hn::BitCast(db, bytes), sign), sign);
  hn::StoreU(hn::BitCast(d, signed_bytes), d,
             reinterpret_cast<hn::TFromD<D>*>(to));
}

template <uint32_t kBits>
HWY_INLINE void UnpackGroup(const uint8_t* codes, int8_t* group) {
  if constexpr (kBits == 8) {
    std::memcpy(group, codes, kGroup);
  } else if constexpr (kBits == 4) {
    const hn::CappedTag<uint16_t, kGroup / 2> d16;
    const hn::Rebind<uint8_t, decltype(d16)> d8;
    constexpr size_t kN = hn::MaxLanes(decltype(d16)());
    for (size_t j = 0; j < kGroup / 2; j += kN) {
      const auto byte = hn::PromoteTo(d16, hn::LoadU(d8, codes + j));
      const auto pair =
          hn::And(hn::Or(byte, hn::ShiftLeft<4>(byte)), hn::Set(d16, 0x0F0F));
      StoreExtended<4>(d16, pair, group + 2 * j);
    }
  } else if constexpr (kBits != 2) {
    const hn::FixedTag<uint8_t, 16> d8;
    const hn::Repartition<uint64_t, decltype(d8)> d64;
    for (size_t j = 0; j < kGroup; j += 16) {
      // Its bytes are among 16 that lie within the group.
      const size_t at = j / 8 * kBits;
      const size_t from = std::min<size_t>(at, 8 * kBits - 16);
      const auto bytes = hn::TableLookupBytesOr0(
          hn::LoadU(d8, codes + from),
          hn::LoadU(d8, kApart<kBits>.data() + 16 * (j / 16)));
      auto fields = Apart<4 * kBits, 32>(d64, hn::BitCast(d64, bytes));
      fields = Apart<2 * kBits, 16>(d64, fields);
      fields = Apart<kBits, 8>(d64, fields);
      StoreExtended<kBits>(d64, fields, group + j);
    }
  } else {
    const hn::Rebind<uint8_t, DU> d8;
    const DU du;
    for (size_t j = 0; j < kGroup / 4; j += kLanes) {
      const VU byte = hn::PromoteTo(du, hn::LoadU(d8, codes + j));
      const VU four = hn::And(
          hn::Or(hn::Or(byte, hn::ShiftLeft<6>(byte)),
                 hn::Or(hn::ShiftLeft<12>(byte), hn::ShiftLeft<18>(byte))),
          hn::Set(du, 0x03030303));
      StoreExtended<2>(du, four, group + 4 * j);
    }
  }
}

// The high and low halves of the products of all lanes with `factor`.
HWY_INLINE void MultiplyWide(VU a, VU factor, VU& high, VU& low) {
  const DU du;
  const VU even = hn::BitCast(du, hn::MulEven(a, factor));
  const VU odd = hn::BitCast(du, hn::MulEven(hn::Shuffle2301(a), factor));
  high = hn::OddEven(odd, hn::Shuffle2301(even));
  low = hn::OddEven(hn::Shuffle2301(odd), even);
}

// What is the same for all counters: the rounds' keys.
struct DrawKeys {
  HWY_INLINE DrawKeys() {}  // the compiler's is not one of the target
  VU key0[kPhiloxRounds];
  VU key1[kPhiloxRounds];
  VU step_low, step_high;
};
HWY_INLINE DrawKeys KeysOf(const DrawKey& draw) {
  const DU du;
  DrawKeys keys;
  uint32_t k0 = static_cast<uint32_t>(draw.key);
  uint32_t k1 = static_cast<uint32_t>(draw.key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    keys.key0[round] = hn::Set(du, k0);
    keys.key1[round] = hn::Set(du, k1);
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  keys.step_low = hn::Set(du, static_cast<uint32_t>(draw.step));
  keys.step_high = hn::Set(du, static_cast<uint32_t>(draw.step >> 32));
  return keys;
}

// PhiloxDraw of the counters `first` + lane.
struct DrawVectors {
  VU word0, word1, word2, word3;
};
HWY_INLINE DrawVectors DrawLanes(const DrawKeys& keys, uint64_t first) {
  const DU du;
  VU c0 = hn::Add(hn::Set(du, static_cast<uint32_t>(first)), hn::Iota(du, 0));
  VU c1 = hn::Set(du, static_cast<uint32_t>(first >> 32));
  VU c2 = keys.step_low;
  VU c3 = keys.step_high;
  const VU m0 = hn::Set(du, kPhiloxMultiplier0);
  const VU m1 = hn::Set(du, kPhiloxMultiplier1);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    VU high0, low0, high1, low1;
    MultiplyWide(c0, m0, high0, low0);
    MultiplyWide(c2, m1, high1, low1);
    c0 = hn::Xor(hn::Xor(high1, c1), keys.key0[round]);
    c1 = low1;
    c2 = hn::Xor(hn::Xor(high0, c3), keys.key1[round]);
    c3 = low0;
  }
  return {c0, c1, c2, c3};
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
