#include "perf/network/measurement.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/cpu_time.h"
#include "base/status_macros.h"
#include "perf/network/launch.h"

namespace telegrad::perf {
namespace {

constexpr int kMinIterations = 5;
constexpr int kMaxIterations = 20000;
constexpr size_t kFixed = 3;  // numbers before the times

std::string Pack(const Series& series) {
  std::vector<double> numbers = {series.cpu_s,
                                 static_cast<double>(series.payload_bytes),
                                 static_cast<double>(series.header_bytes)};
  numbers.insert(numbers.end(), series.us.begin(), series.us.end());
  std::string text(numbers.size() * sizeof(double), '\0');
  std::memcpy(text.data(), numbers.data(), text.size());
  return text;
}

absl::StatusOr<std::vector<double>> Unpack(const std::string& text) {
  std::vector<double> numbers(text.size() / sizeof(double));
  if (numbers.size() < kFixed || text.size() % sizeof(double) != 0) {
    return absl::DataLossError("a rank's times are malformed");
  }
  std::memcpy(numbers.data(), text.data(), text.size());
  return numbers;
}

// The percentile of sorted values; nearest rank.
double Percentile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<size_t>(
      std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

// CPU seconds of this rank so far: of its thread or its process.
double CpuSeconds(const NetworkOptions& options) {
  return AreThreads(options) ? ThreadCpuSeconds() : ProcessCpuSeconds();
}

// The number on which all ranks agree: --iterations, or what rank 0 thinks
// takes --seconds.
absl::StatusOr<int> AgreeOnIterations(const NetworkOptions& options,
                                      const Rank& rank,
                                      double us_per_iteration) {
  const double wanted = options.seconds * 1e6 / std::max(us_per_iteration, 0.1);
  int mine = options.iterations;
  if (mine == 0) {
    mine = static_cast<int>(
        std::clamp<double>(wanted, kMinIterations, kMaxIterations));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   rank.gather(absl::StrCat(mine)));
  int agreed = 0;
  if (!absl::SimpleAtoi(all[0], &agreed) || agreed < 1 ||
      agreed > kMaxIterations) {
    return absl::DataLossError(
        absl::StrCat("rank 0 wants \"", all[0], "\" iterations"));
  }
  return agreed;
}

}  // namespace

absl::StatusOr<Result> Combine(const Rank& rank, const Series& mine) {
  ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                   rank.gather(Pack(mine)));
  Result result;
  std::vector<double> slowest;
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(const std::vector<double> numbers, Unpack(text));
    result.cpu_s += numbers[0];
    result.payload_bytes += numbers[1];
    result.header_bytes += numbers[2];
    slowest.resize(std::max(slowest.size(), numbers.size() - kFixed), 0);
    for (size_t i = kFixed; i < numbers.size(); ++i) {
      slowest[i - kFixed] = std::max(slowest[i - kFixed], numbers[i]);
    }
  }
  if (slowest.empty()) return absl::InternalError("no iteration was timed");
  result.times_us = slowest;
  std::sort(slowest.begin(), slowest.end());
  const auto iterations = static_cast<double>(slowest.size());
  result.iterations = static_cast<int>(slowest.size());
  result.p50_us = Percentile(slowest, 0.5);
  result.p99_us = Percentile(slowest, 0.99);
  result.min_us = slowest.front();
  result.max_us = slowest.back();
  result.cpu_s /= iterations;
  result.payload_bytes /= iterations * static_cast<double>(texts.size());
  result.header_bytes /= iterations * static_cast<double>(texts.size());
  return result;
}

absl::StatusOr<Series> RunIterations(const NetworkOptions& options,
                                     const Rank& rank,
                                     const Iteration& iteration) {
  double warmup_us = 0;
  for (int i = 0; i < options.warmup; ++i) {
    // An iteration's own time is without its barrier, and may be of a part.
    const TimePoint start = Clock::now();
    RETURN_IF_ERROR(iteration().status());
    const double us =
        std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    warmup_us = i == 0 ? us : std::min(warmup_us, us);  // the first is cold
  }
  ASSIGN_OR_RETURN(const int iterations,
                   AgreeOnIterations(options, rank, warmup_us));
  Series series;
  series.us.reserve(static_cast<size_t>(iterations));
  const double cpu_before = CpuSeconds(options);
  for (int i = 0; i < iterations; ++i) {
    ASSIGN_OR_RETURN(const double us, iteration());
    series.us.push_back(us);
  }
  series.cpu_s = CpuSeconds(options) - cpu_before;
  return series;
}

}  // namespace telegrad::perf
