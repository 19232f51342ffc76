#include "kernels/prefetch.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <optional>

#include "base/bytes.h"
#include "base/clock.h"
#include "hwy/cache_control.h"

namespace telegrad::kernels {
namespace {

constexpr size_t kElements = size_t{128} << 10;  // 1 MiB in two arrays
constexpr size_t kLine = 64;
constexpr int kRounds = 7;
// Unless another is clearly faster, the first; none at all, the last, only if
// it is clearly faster than all: other kernels need it more than this one.
constexpr std::array<size_t, 5> kDistances = {1024, 512, 2048, 4096, 0};
constexpr double kClearly = 0.95;
constexpr size_t kMostBytes = 65536;

constexpr size_t kStreamingElements = size_t{512} << 10;
constexpr size_t kStreamingBytes = size_t{1} << 20;
constexpr size_t kNever = std::numeric_limits<size_t>::max();
// Lines that are written through the caches leave them later, at a price that
// a short measurement does not see.
constexpr double kAsFast = 1.1;

void Flush(const Buffer& buffer) {
  for (size_t at = 0; at < buffer.size(); at += kLine) {
    hwy::FlushCacheline(buffer.data() + at);
  }
}

// The number that a variable of the environment has, if it is one of those.
std::optional<size_t> FromEnvironment(const char* name, size_t most) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  char* end = nullptr;
  const unsigned long long bytes = std::strtoull(text, &end, 10);
  if (end == text || *end != '\0' || bytes > most) return std::nullopt;
  return static_cast<size_t>(bytes);
}

}  // namespace

void ChoosePrefetchBytes(TwoBitEncodeFn* encode) {
  if (const auto given = FromEnvironment("TELEGRAD_PREFETCH", kMostBytes)) {
    return SetPrefetchBytes(*given);
  }
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
  const auto none = seconds.end() - 1;
  auto best = std::min_element(seconds.begin(), none);
  if (*best >= kClearly * seconds.front()) best = seconds.begin();
  if (*none < kClearly * *best) best = none;
  SetPrefetchBytes(kDistances[static_cast<size_t>(best - seconds.begin())]);
}

void ChooseStreamingBytes(TwoBitDecodeFn* decode) {
  if (const auto given = FromEnvironment("TELEGRAD_STREAMING", kNever)) {
    return SetStreamingBytes(*given);
  }
  const Buffer codes(TwoBitBytes(kStreamingElements));
  const Buffer out(4 * kStreamingElements);
  double cached = 1e9;
  double streamed = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    for (const size_t bytes : {kNever, size_t{0}}) {
      Flush(out);
      SetStreamingBytes(bytes);
      const TimePoint start = Clock::now();
      decode(codes.as<uint8_t>(), kStreamingElements, 1.0f, out.as<float>(),
             Stream{});
      double& least = bytes == 0 ? streamed : cached;
      least = std::min(least, SecondsSince(start));
    }
  }
  SetStreamingBytes(streamed <= kAsFast * cached ? kStreamingBytes : kNever);
}

}  // namespace telegrad::kernels
