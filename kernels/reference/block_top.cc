#include <cstring>

#include "kernels/block_top_runs.h"
#include "kernels/reference.h"

namespace telegrad::kernels::reference {
namespace {

template <size_t kLanes>
double SumOfTopLanes(std::array<double, kLanes>& lanes) {
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

// The sum of term(j) over the elements j that are sent.
template <typename Term>
double SumOfTop(size_t n, size_t keep, Term term) {
  std::array<double, kTopPartLanes> blocks{};
  for (size_t b = 0; b < NumTopBlocks(n); ++b) {
    const size_t size = std::min(kTopBlock, n - b * kTopBlock);
    const size_t k = TopOfBlock(size, keep);
    std::array<double, kTopLanes> lanes{};
    for (size_t j = 0; j < k; ++j) lanes[j % kTopLanes] += term(b * keep + j);
    blocks[b % kTopPartLanes] += SumOfTopLanes(lanes);
  }
  return SumOfTopLanes(blocks);
}

// Appends strings of 12 and of 2 bits; the bytes are 0 before.
void PutTopPlace(uint32_t place, size_t i, uint8_t* places) {
  uint8_t* const at = places + i / 2 * 3 + i % 2;
  const uint32_t bits = place << (i % 2 == 0 ? 0 : 4);
  at[0] = static_cast<uint8_t>(at[0] | (bits & 0xFF));
  at[1] = static_cast<uint8_t>(at[1] | bits >> 8);
}
void PutTopCode(uint32_t code, size_t i, uint8_t* codes) {
  codes[i / 4] = static_cast<uint8_t>(codes[i / 4] | code << (2 * (i % 4)));
}

// Writes codes; returns levels.
std::array<float, kTopBins> PutTopCodes(const float* values, size_t n,
                                        size_t keep, uint8_t* codes) {
  const size_t num_top = NumTop(n, keep);
  const double sum = SumOfTop(
      n, keep, [values](size_t j) { return static_cast<double>(values[j]); });
  const double squares = SumOfTop(n, keep, [values](size_t j) {
    return static_cast<double>(values[j]) * static_cast<double>(values[j]);
  });
  const TopBounds bounds = TopBoundsOf(sum, squares, num_top);
  std::array<uint64_t, kTopBins> counts{};
  for (size_t j = 0; j < num_top; ++j) {
    const uint32_t code = TopCodeOf(values[j], bounds);
    ++counts[code];
    PutTopCode(code, j, codes);
  }
  std::array<float, kTopBins> levels{};
  for (uint32_t bin = 0; bin < kTopBins; ++bin) {
    const double in_bin = SumOfTop(n, keep, [=](size_t j) {
      return TopCodeAt(codes, j) == bin ? static_cast<double>(values[j]) : 0.0;
    });
    levels[bin] = TopLevelOf(in_bin, counts[bin]);
  }
  return levels;
}

void TopEncode(const float* grad, float* residual, size_t n, TopRule rule,
               NonFinite nonfinite, uint8_t* payload, EncodeStats* stats,
               void* scratch, Stream) {
  const TopScratch chosen(scratch, n, rule.keep);
  for (size_t from = 0; from < n; from += kTopBlock) {
    const size_t size = std::min(kTopBlock, n - from);
    for (size_t i = from; i < from + size; ++i) {
      residual[i] =
          Value(rule.decay * residual[i], grad[i], i, nonfinite, stats);
    }
    const size_t at = from / kTopBlock * rule.keep;
    ChooseTop(residual + from, size, TopOfBlock(size, rule.keep),
              chosen.places + at, chosen.values + at);
  }
  SendTop(chosen, n, rule.keep, residual, payload, stats);
}

template <bool kAdd>
void TopDecode(const uint8_t* payload, size_t n, size_t keep, float* out,
               Stream) {
  std::array<float, kTopBins> levels;
  std::memcpy(levels.data(), payload, sizeof(levels));
  const uint8_t* const places = payload + kTopPlacesAt;
  const uint8_t* const codes = payload + TopCodesAt(NumTop(n, keep));
  size_t j = 0;
  for (size_t from = 0; from < n; from += kTopBlock) {
    const size_t size = std::min(kTopBlock, n - from);
    float* const block = out + from;
    if (!kAdd) std::fill_n(block, size, 0.0f);
    for (const size_t end = j + TopOfBlock(size, keep); j < end; ++j) {
      const uint32_t place = TopPlaceAt(places, j);
      if (place >= size) continue;
      const float level = levels[TopCodeAt(codes, j)];
      block[place] = kAdd ? block[place] + level : level;
    }
  }
}

}  // namespace

void ChooseTop(const float* v, size_t size, size_t k, uint16_t* places,
               float* values) {
  ForEachTop(
      size, k, [v](size_t i) { return TopKey(v[i], static_cast<uint32_t>(i)); },
      [&places, &values, v](size_t i) {
        *places++ = static_cast<uint16_t>(i);
        *values++ = std::isfinite(v[i]) ? v[i] : 0.0f;
      });
}

void SendTop(const TopScratch& chosen, size_t n, size_t keep, float* residual,
             uint8_t* payload, EncodeStats* stats) {
  const size_t num_top = NumTop(n, keep);
  std::memset(payload, 0, TopPayloadBytes(num_top));
  uint8_t* const codes = payload + TopCodesAt(num_top);
  const std::array<float, kTopBins> levels =
      PutTopCodes(chosen.values, n, keep, codes);
  std::memcpy(payload, levels.data(), sizeof(levels));
  for (size_t j = 0; j < num_top; ++j) {
    const float level = levels[TopCodeAt(codes, j)];
    residual[j / keep * kTopBlock + chosen.places[j]] -= level;
    stats->num_nonzero += level != 0 ? 1 : 0;
    PutTopPlace(chosen.places[j], j, payload + kTopPlacesAt);
  }
}

BlockTopKernels BlockTop() {
  return {TopEncode, TopDecode<false>, TopDecode<true>};
}

}  // namespace telegrad::kernels::reference
