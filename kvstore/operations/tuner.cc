#include "kvstore/operations/tuner.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace telegrad::operations {
namespace {

// Beside what was set, which is number 0 of each.
constexpr std::array<int64_t, 7> kFusionMib = {1, 2, 4, 8, 16, 32, 128};
constexpr std::array<int64_t, 6> kCycleUs = {100, 500, 1000, 2500, 5000, 10000};
constexpr int kStride = static_cast<int>(kCycleUs.size()) + 1;
static_assert((kFusionMib.size() + 1) * kStride <= Tuner::kMaxChoices);

// A sample that no tensor's steps end.
constexpr Duration kLongestSample = std::chrono::seconds(5);

std::string RateText(double bytes_per_s) {
  return absl::StrCat(std::round(bytes_per_s / 1e5) / 10, " MB/s");
}

}  // namespace

Tuner::Tuner(const Setting& first, const TuningOptions& options)
    : first_(first),
      options_(options),
      log_("cycle_time_ms,tensor_fusion_threshold,score\n") {
  for (int i = static_cast<int>(kFusionMib.size()); i > 0; --i) {
    untried_.push_back(i * kStride);
  }
}

Setting Tuner::SettingOf(const Setting& first, int choice) {
  Setting setting = first;
  const auto fusion = static_cast<size_t>(choice / kStride);
  const auto cycle = static_cast<size_t>(choice % kStride);
  if (fusion > 0) {
    setting.fusion_bytes = kFusionMib[std::min(fusion, kFusionMib.size()) - 1]
                           << 20;
  }
  if (cycle > 0) {
    setting.cycle = std::chrono::microseconds(kCycleUs[cycle - 1]);
  }
  return setting;
}

uint64_t Tuner::FlagsOf(int choice) {
  return static_cast<uint64_t>(choice + 1) << 1;
}

std::optional<int> Tuner::ToldBy(uint64_t first_word) {
  const int told = static_cast<int>(first_word >> 1 & 0x7f);
  return told == 0 ? std::nullopt : std::optional<int>(told - 1);
}

void Tuner::Count(absl::string_view name, size_t bytes) {
  if (is_done_) return;
  if (name_.empty()) name_ = std::string(name);
  if (name == name_) ++steps_;
  bytes_ += bytes;
}

bool Tuner::Begin(TimePoint now) {
  begin_ = now;
  steps_ = 0;
  bytes_ = 0;
  name_.clear();
  return false;
}

bool Tuner::Advance(TimePoint now) {
  if (is_done_) return false;
  if (begin_ == TimePoint()) return Begin(now);
  const bool is_over = steps_ >= options_.steps_per_sample ||
                       (bytes_ > 0 && now - begin_ >= kLongestSample);
  if (!is_over) return false;
  const double seconds = std::max(ToSeconds(now - begin_), 1e-9);
  const double rate = static_cast<double>(bytes_) / seconds;
  Begin(now);
  if (num_warmup_ < options_.warmup_samples) {
    ++num_warmup_;
    return false;
  }
  rates_.push_back(rate);
  if (rates_.size() < kSamples) return false;
  const int before = choice_;
  Next();
  return choice_ != before;
}

void Tuner::Next() {
  std::sort(rates_.begin(), rates_.end());
  const double rate = rates_[rates_.size() / 2];
  rates_.clear();
  const Setting tried = SettingOf(first_, choice_);
  absl::StrAppend(&log_, ToSeconds(tried.cycle) * 1e3, ",", tried.fusion_bytes,
                  ",", rate, "\n");
  if (first_rate_ == 0) first_rate_ = rate;
  if (rate > best_rate_) {
    best_rate_ = rate;
    best_ = choice_;
  }
  if (untried_.empty() && !is_along_cycle_) {
    is_along_cycle_ = true;
    for (int i = kStride - 1; i > 0; --i) untried_.push_back(best_ + i);
  }
  if (!untried_.empty()) {
    choice_ = untried_.back();
    untried_.pop_back();
    return;
  }
  choice_ = best_;
  is_done_ = true;
  const Setting taken = SettingOf(first_, best_);
  LogInfo("autotune: fusion_bytes ", taken.fusion_bytes, ", cycle ",
          ToSeconds(taken.cycle) * 1e3, " ms: ", RateText(best_rate_),
          "; with ", first_.fusion_bytes, " and ",
          ToSeconds(first_.cycle) * 1e3, " ms ", RateText(first_rate_));
}

}  // namespace telegrad::operations
