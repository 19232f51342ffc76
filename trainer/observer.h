#pragma once

#include <string>

#include "trainer/progress.h"
#include "trainer/results.h"

namespace telegrad {

// Hears how a run goes, on worker 0. One thread.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void OnProgress(const Progress::State& state) = 0;
  virtual void OnLine(const std::string& text) = 0;
  virtual void OnSummary(const RunSummary& summary) = 0;  // once, at the end
};

}  // namespace telegrad
