#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kvstore/timeline.h"
#include "trainer/report/results.h"

namespace telegrad {

// What the files of a run's traces begin with; empty where there are none.
std::string TracePrefix(const std::string& folder, const std::string& setting,
                        uint64_t seed);

// Notes the steps of a run that are noted (kvstore/timeline.h). One thread.
class StepTimeline {
 public:
  static constexpr size_t kMostTensors = 24;  // rows of Summary()

  explicit StepTimeline(Timeline& timeline) : timeline_(timeline) {}

  // When the tensors are known: a worker's last steps are in BASE.last until
  // the run has ended well.
  void KeepLast(const std::string& base, int rank,
                const std::vector<TensorSpec>& tensors);
  void BeforeStep();
  // After the last step, when all its tensors have come; Summary() and Write()
  // follow.
  void Finish();
  // What ends now, of tensor `key` or of none.
  void Note(const char* what, TimePoint begin, Key key = Timeline::kNoKey) {
    NoteSpan(&timeline_, key, Timeline::kWhole, what, begin);
  }

  // The step in the middle, from its begin to the next one's: of what has no
  // tensor ("step"), and of the largest tensors. Of too short a run nothing.
  std::vector<StageSpan> Summary(const std::vector<TensorSpec>& tensors) const;
  // All of it as a Chrome trace of process `rank`, in BASE.json.
  absl::Status Write(const std::string& base, int rank,
                     const std::vector<TensorSpec>& tensors) const;

 private:
  Timeline& timeline_;
  int64_t num_steps_ = 0;
  // When the noted steps and the next one began.
  std::vector<TimePoint> starts_;
  std::vector<Timeline::Span> spans_;
  uint64_t num_left_out_ = 0;
};

}  // namespace telegrad
