#include "trainer/auto_run.h"

#include "base/status_macros.h"
#include "trainer/run_cache.h"

namespace telegrad {
absl::Status AutoRun::Start(RunContext& context, const Calibration& known) {
  if (!context.setting.is_auto) return absl::OkStatus();
  context_ = &context;
  cache_.emplace(CacheOptionsOf(context));
  CompressionConfig compression = context.setting.compression;
  compression.packing = context.packing;
  auto_ = std::make_unique<AutoCompression>(
      context.store, AutoOptions{.compression = compression,
                                 .cores = context.options.threads,
                                 .chunk_elems = context.options.chunk_elems,
                                 .cache = &*cache_,
                                 .known = known});
  ASSIGN_OR_RETURN(const std::vector<std::string> lines, auto_->Start());
  Say(cache_->TakeNotes());
  Say(lines);
  return absl::OkStatus();
}

absl::Status AutoRun::AfterStep(const StepTimes& times) {
  if (auto_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> lines,
                   auto_->AfterStep(times));
  Say(lines);
  return absl::OkStatus();
}

std::optional<AutoMeasurement> AutoRun::TakeMeasurement() {
  return auto_ == nullptr ? std::nullopt : auto_->TakeMeasurement();
}

void AutoRun::Say(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    context_->observer.OnLine(line);
    context_->decisions.push_back(line);
  }
}

}  // namespace telegrad
