#include "trainer/run/step_timeline.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/atomic_file.h"
#include "kvstore/trace_ring.h"

namespace telegrad {
namespace {

// Whether each is among the largest.
std::vector<bool> Largest(const std::vector<TensorSpec>& tensors, size_t most) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](size_t i) { return tensors[i].num_elems; });
  std::vector<bool> is_large(tensors.size());
  for (size_t i = 0; i < std::min(most, order.size()); ++i) {
    is_large[order[i]] = true;
  }
  return is_large;
}

std::vector<std::string> NamesOf(const std::vector<TensorSpec>& tensors) {
  std::vector<std::string> names;
  for (const TensorSpec& tensor : tensors) names.push_back(tensor.name);
  return names;
}

}  // namespace

std::string TracePrefix(const std::string& folder, const std::string& setting,
                        uint64_t seed) {
  if (folder.empty()) return "";
  std::string name = absl::StrCat(setting, "-seed", seed);
  std::ranges::replace(name, '/', '_');
  return absl::StrCat(folder, "/", name);
}

void StepTimeline::KeepLast(const std::string& base, int rank,
                            const std::vector<TensorSpec>& tensors) {
  KeepLastIn(timeline_, base, rank, absl::StrCat("worker", rank),
             NamesOf(tensors));
}

void StepTimeline::BeforeStep() {
  const int64_t noted = num_steps_++ - kFirstNotedStep;
  if (noted < 0 || noted > kNumNotedSteps + 1) return;
  if (noted <= kNumNotedSteps) starts_.push_back(Clock::now());
  // Tensors of the last one are under way when the next one begins.
  timeline_.Switch(noted <= kNumNotedSteps);
}

void StepTimeline::Finish() {
  BeforeStep();
  timeline_.Switch(false);
  spans_ = timeline_.Take(&num_left_out_);
  if (starts_.size() <= kNumNotedSteps) return;
  std::erase_if(spans_, [&](const Timeline::Span& span) {
    return span.begin >= starts_.back();
  });
}

std::vector<StageSpan> StepTimeline::Summary(
    const std::vector<TensorSpec>& tensors) const {
  std::vector<StageSpan> stages;
  if (starts_.size() <= kNumNotedSteps) return stages;
  const TimePoint from = starts_[kNumNotedSteps / 2];
  const TimePoint to = starts_[kNumNotedSteps / 2 + 1];
  const std::vector<bool> is_large = Largest(tensors, kMostTensors);
  stages.push_back(
      {.row = "step", .what = "step", .end_s = ToSeconds(to - from)});
  for (const Timeline::Span& span : spans_) {
    const bool has_key = span.key < tensors.size();
    if (span.end <= from || span.begin >= to) continue;
    if (has_key && !is_large[span.key]) continue;
    stages.push_back({.row = has_key ? tensors[span.key].name : "step",
                      .what = span.what,
                      .begin_s = ToSeconds(std::max(span.begin, from) - from),
                      .end_s = ToSeconds(std::min(span.end, to) - from)});
  }
  return stages;
}

absl::Status StepTimeline::Write(const std::string& base, int rank,
                                 const std::vector<TensorSpec>& tensors) const {
  timeline_.ForgetLast();
  return WriteFileAtomically(
      base + ".json", ChromeTrace(spans_, rank, absl::StrCat("worker", rank),
                                  NamesOf(tensors), num_left_out_));
}

}  // namespace telegrad
