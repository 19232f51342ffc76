#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/clock.h"

namespace telegrad::operations {

struct Setting {
  int64_t fusion_bytes = 0;
  Duration cycle = {};
};

// A search gives each setting kSamples samples.
struct TuningOptions {
  bool is_on = false;         // rank 0's decides
  std::string log = {};       // a file of rank 0, as CSV; "": none
  int warmup_samples = 3;     // come first, do not count
  int steps_per_sample = 10;  // times that one tensor comes
};

// Looks for the setting with the most bytes a second, as rank 0 sees it: first
// along fusion_bytes, then along the cycle, from a short list each, beginning
// with what was set. In order of use: Count what was reduced, then Advance. One
// thread.
class Tuner {
 public:
  Tuner(const Setting& first, const TuningOptions& options);

  // What is tried now, or taken at last: a number for SettingOf.
  int choice() const { return choice_; }
  // On any rank; `first` is its own. The nearest where `choice` is none.
  static Setting SettingOf(const Setting& first, int choice);
  static constexpr int kMaxChoices = 64;
  // How a choice goes to all: bits 1 to 7 of a notice's first word.
  static uint64_t FlagsOf(int choice);
  static std::optional<int> ToldBy(uint64_t first_word);

  bool is_done() const { return is_done_; }
  void Count(absl::string_view name, size_t bytes);
  // Whether another choice is to be told to all.
  bool Advance(TimePoint now);
  // What was measured so far, as CSV.
  const std::string& log() const { return log_; }

  static constexpr int kSamples = 3;

 private:
  // Begins a sample; false, as Advance gives then.
  bool Begin(TimePoint now);
  void Next();

  const Setting first_;
  const TuningOptions options_;
  std::vector<int> untried_;  // the next one last
  bool is_along_cycle_ = false;
  int choice_ = 0, best_ = 0;
  double best_rate_ = 0, first_rate_ = 0;
  bool is_done_ = false;
  std::string log_;
  // The sample that goes on:
  std::string name_;  // its steps are counted
  int steps_ = 0;
  size_t bytes_ = 0;
  TimePoint begin_;
  int num_warmup_ = 0;
  std::vector<double> rates_;  // samples of `choice_`
};

}  // namespace telegrad::operations
