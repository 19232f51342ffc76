#include "perf/ceilings.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "perf/ceilings.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::perf {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
constexpr size_t kBlock = 64;  // elements
constexpr size_t kLine = 16;   // elements

enum class Store { kCached, kNonTemporal };

// What a turn of kBlock elements reads of s and writes of d, in floats.
constexpr size_t SourceOf(Traffic traffic) {
  if (traffic == Traffic::kWrite || traffic == Traffic::kUpdate) return 0;
  return traffic == Traffic::kWiden ? kBlock / 2 : kBlock;
}
constexpr size_t DestinationOf(Traffic traffic) {
  return traffic == Traffic::kNarrow ? kBlock / 2 : kBlock;
}

template <Traffic kTraffic, Store kStore>
void Prefetch(const float* s, const float* d) {
  for (size_t j = 0; j < SourceOf(kTraffic); j += kLine) {
    __builtin_prefetch(s + j, 0);
  }
  constexpr bool kReads =
      kTraffic == Traffic::kUpdate || kTraffic == Traffic::kAdd;
  for (size_t j = 0; j < DestinationOf(kTraffic); j += kLine) {
    if constexpr (kStore == Store::kCached) {
      kernels::PrefetchForWrite(d + j);
    } else if constexpr (kReads) {
      __builtin_prefetch(d + j, 0);
    }
  }
}

// What is written at d + j.
template <Traffic kTraffic>
hn::Vec<DF> ValueAt(const float* s, const float* d, size_t j) {
  const DF df;
  const auto one = hn::Set(df, 1.0f);
  switch (kTraffic) {
    case Traffic::kCopy:
      return hn::Load(df, s + j);
    case Traffic::kWiden:
      return hn::Load(df, s + j / (2 * hn::Lanes(df)) * hn::Lanes(df));
    case Traffic::kNarrow:
      return hn::Or(hn::Load(df, s + 2 * j),
                    hn::Load(df, s + 2 * j + hn::Lanes(df)));
    case Traffic::kUpdate:
      return hn::Add(hn::Load(df, d + j), one);
    case Traffic::kAdd:
      return hn::Add(hn::Load(df, d + j), hn::Load(df, s + j));
    default:
      return one;
  }
}

// kAhead in bytes; 0: no prefetch.
template <Traffic kTraffic, size_t kAhead, Store kStore>
void Move(const float* HWY_RESTRICT s, float* HWY_RESTRICT d, size_t n) {
  const DF df;
  for (size_t i = 0; i + kBlock <= n; i += kBlock) {
    if constexpr (kAhead != 0) {
      Prefetch<kTraffic, kStore>(s + kAhead / 4, d + kAhead / 4);
    }
    for (size_t j = 0; j < DestinationOf(kTraffic); j += hn::Lanes(df)) {
      const auto value = ValueAt<kTraffic>(s, d, j);
      if constexpr (kStore == Store::kCached) {
        hn::Store(value, df, d + j);
      } else {
        hn::Stream(value, df, d + j);
      }
    }
    s += SourceOf(kTraffic);
    d += DestinationOf(kTraffic);
  }
  if constexpr (kStore == Store::kNonTemporal) hwy::FlushStream();
}

template <size_t kAhead>
void Read(const float* s, float* d, size_t n) {
  const DF df;
  auto even = hn::Zero(df);
  auto odd = hn::Zero(df);
  for (size_t i = 0; i + kBlock <= n; i += kBlock) {
    if constexpr (kAhead != 0) {
      for (size_t j = i + kAhead / 4; j < i + kBlock + kAhead / 4; j += kLine) {
        __builtin_prefetch(s + j, 0);
      }
    }
    for (size_t j = i; j < i + kBlock; j += 2 * hn::Lanes(df)) {
      even = hn::Or(even, hn::Load(df, s + j));
      odd = hn::Or(odd, hn::Load(df, s + j + hn::Lanes(df)));
    }
  }
  hn::Store(hn::Or(even, odd), df, d);  // so that the loads are needed
}

template <Traffic kTraffic>
std::vector<CeilingVariant> Writers() {
  std::vector<CeilingVariant> writers = {
      {"plain", Move<kTraffic, 0, Store::kCached>},
      {"prefetch 512", Move<kTraffic, 512, Store::kCached>},
      {"prefetch 1024", Move<kTraffic, 1024, Store::kCached>},
      {"prefetch 2048", Move<kTraffic, 2048, Store::kCached>},
      {"prefetch 4096", Move<kTraffic, 4096, Store::kCached>},
      {"non-temporal", Move<kTraffic, 0, Store::kNonTemporal>}};
  if (kTraffic == Traffic::kWrite) return writers;  // there is nothing to read
  writers.push_back({"non-temporal prefetch 1024",
                     Move<kTraffic, 1024, Store::kNonTemporal>});
  writers.push_back({"non-temporal prefetch 4096",
                     Move<kTraffic, 4096, Store::kNonTemporal>});
  return writers;
}

std::vector<CeilingVariant> Variants(Traffic traffic) {
  switch (traffic) {
    case Traffic::kRead:
      return {{"plain", Read<0>},
              {"prefetch 512", Read<512>},
              {"prefetch 1024", Read<1024>},
              {"prefetch 2048", Read<2048>},
              {"prefetch 4096", Read<4096>}};
    case Traffic::kWrite:
      return Writers<Traffic::kWrite>();
    case Traffic::kCopy:
      return Writers<Traffic::kCopy>();
    case Traffic::kWiden:
      return Writers<Traffic::kWiden>();
    case Traffic::kNarrow:
      return Writers<Traffic::kNarrow>();
    case Traffic::kUpdate:
      return Writers<Traffic::kUpdate>();
    case Traffic::kAdd:
      return Writers<Traffic::kAdd>();
    case Traffic::kNone:
      break;
  }
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::perf
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace telegrad::perf {
namespace {

HWY_EXPORT(Variants);

std::vector<CeilingVariant> AllVariants(Traffic traffic) {
  std::vector<CeilingVariant> all = HWY_DYNAMIC_DISPATCH(Variants)(traffic);
  if (traffic == Traffic::kCopy) {
    all.push_back({"libc", [](const float* s, float* d, size_t n) {
                     std::memcpy(d, s, 4 * n);
                   }});
  }
  if (traffic == Traffic::kWrite) {
    all.push_back({"libc", [](const float*, float* d, size_t n) {
                     std::memset(d, 1, 4 * n);
                   }});
  }
  return all;
}

}  // namespace

const char* TrafficName(Traffic traffic) {
  static constexpr const char* kNames[] = {"",      "read",   "write",  "copy",
                                           "widen", "narrow", "update", "add"};
  return kNames[static_cast<size_t>(traffic)];
}

double TrafficBytesPerElement(Traffic traffic) {
  static constexpr double kBytes[] = {0, 4, 4, 8, 6, 6, 8, 12};
  return kBytes[static_cast<size_t>(traffic)];
}

const std::vector<CeilingVariant>& CeilingVariants(Traffic traffic) {
  static const std::vector<CeilingVariant> variants[] = {
      AllVariants(Traffic::kNone),   AllVariants(Traffic::kRead),
      AllVariants(Traffic::kWrite),  AllVariants(Traffic::kCopy),
      AllVariants(Traffic::kWiden),  AllVariants(Traffic::kNarrow),
      AllVariants(Traffic::kUpdate), AllVariants(Traffic::kAdd)};
  return variants[static_cast<size_t>(traffic)];
}

}  // namespace telegrad::perf
#endif  // HWY_ONCE
