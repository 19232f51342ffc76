#include "trainer/auto_run.h"

#include "base/status_macros.h"
#include "topology/system_root.h"

namespace telegrad {
namespace {

// Nothing is kept for a machine that is not known.
CalibrationCache::Options CacheFor(const RunContext& context) {
  const absl::StatusOr<Machine>& machine = context.detection.Get().machine;
  if (!machine.ok()) return {};
  return {.folder = context.options.cache_folder,
          .identity = CalibrationIdentity(*machine, CpuModel(SysRoot::Live()),
                                          TELEGRAD_VERSION),
          .recalibrate = context.options.recalibrate};
}

}  // namespace

absl::Status AutoRun::Start(RunContext& context) {
  if (!context.setting.is_auto) return absl::OkStatus();
  context_ = &context;
  cache_.emplace(CacheFor(context));
  auto_ = std::make_unique<AutoCompression>(
      context.store, AutoOptions{.compression = context.setting.compression,
                                 .cores = context.options.threads,
                                 .chunk_elems = context.options.chunk_elems,
                                 .cache = &*cache_});
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

void AutoRun::Say(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    context_->observer.OnLine(line);
    decisions_.push_back(line);
  }
}

}  // namespace telegrad
