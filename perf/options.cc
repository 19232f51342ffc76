#include "perf/options.h"

#include <cstdlib>

#include "kvstore/tuning/calibration_cache.h"
#include "perf/network/commands.h"

namespace telegrad::perf {

void AddSpeedFlags(CLI::App& app, SpeedOptions& options) {
  app.add_option("--elements", options.elements,
                 "float32 elements per array; 32Mi is far beyond any cache")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(size_t{1024}, size_t{1} << 34))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "numbers of threads: 1,2")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--repeats", options.repeats,
                 "rounds; the median of each loop counts")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--density", options.densities,
                 "shares of codes that are not 0, for codecs with a threshold")
      ->delimiter(',')
      ->check(CLI::Range(1e-4, 0.9))
      ->capture_default_str();
  app.add_option("--filter", options.filter,
                 "only what has this text in its name");
  app.add_flag("--json", options.json, "one JSON object per line");
}

std::string CacheFolder() {
  return CalibrationFolder(std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"));
}

absl::StatusOr<std::optional<Placement>> PlacementOfLauncher() {
  return DetectPlacement([](const char* name) { return std::getenv(name); });
}

}  // namespace telegrad::perf
