#pragma once

#include <string>

#include "trainer/report/progress.h"
#include "trainer/report/results.h"

namespace telegrad {

// Hears how a run goes, on worker 0. One thread.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void OnProgress(const Progress::State& state) = 0;
  // What only --verbose shows: how the run was planned and measured.
  virtual void OnLine(const std::string& text) = 0;
  // What everybody should see.
  virtual void OnNotice(const std::string& text) { OnLine(text); }
  virtual void OnSummary(const RunSummary& summary) = 0;  // once, at the end
};

}  // namespace telegrad
