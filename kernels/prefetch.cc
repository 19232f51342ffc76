#include "kernels/prefetch.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/bytes.h"
#include "base/clock.h"
#include "hwy/cache_control.h"

namespace telegrad::kernels {
namespace {

constexpr size_t kElements = size_t{128} << 10;  // 1 MiB in two arrays
constexpr size_t kLine = 64;
constexpr int kRounds = 7;
constexpr std::array<size_t, 4> kDistances = {1024, 0, 512, 2048};
constexpr double kClearly = 0.95;
constexpr size_t kMostBytes = 65536;

void Flush(const Buffer& buffer) {
  for (size_t at = 0; at < buffer.size(); at += kLine) {
    hwy::FlushCacheline(buffer.data() + at);
  }
}

// Whether the environment has a distance; it is then in force.
bool TakeFromEnvironment() {
  const char* text = std::getenv("TELEGRAD_PREFETCH");
  if (text == nullptr) return false;
  char* end = nullptr;
  const unsigned long long bytes = std::strtoull(text, &end, 10);
  if (end == text || *end != '\0' || bytes > kMostBytes) return false;
  SetPrefetchBytes(static_cast<size_t>(bytes));
  return true;
}

}  // namespace

void ChoosePrefetchBytes(TwoBitEncodeFn* encode) {
  if (TakeFromEnvironment()) return;
  const Buffer grad(4 * kElements);
  const Buffer residual(4 * kElements);
  const Buffer codes(TwoBitBytes(kElements));
  // Least times: what else the machine does only adds.
  std::array<double, kDistances.size()> seconds;
  seconds.fill(1e9);
  for (int round = 0; round < kRounds; ++round) {
    for (size_t d = 0; d < kDistances.size(); ++d) {
      Flush(grad);
      Flush(residual);
      SetPrefetchBytes(kDistances[d]);
      EncodeStats stats;
      const TimePoint start = Clock::now();
      encode(grad.as<float>(), residual.as<float>(), kElements, 1.0f,
             NonFinite::kZero, codes.as<uint8_t>(), &stats, Stream{});
      seconds[d] = std::min(seconds[d], SecondsSince(start));
    }
  }
  const auto best = std::min_element(seconds.begin(), seconds.end());
  const bool is_clear = *best < kClearly * seconds[0];
  SetPrefetchBytes(
      kDistances[is_clear ? static_cast<size_t>(best - seconds.begin()) : 0]);
}

}  // namespace telegrad::kernels
