#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/output.h"

namespace telegrad {

// Shows how a run goes: on a terminal one line that is redrawn (a bar, epoch,
// batch, speed, accuracy, time left), elsewhere plain lines in MXNet's style:
//   Epoch[0] Batch [50] Speed: 1234.56 samples/sec accuracy=0.912345  1:02 left
//   Epoch[0] Validation-accuracy=0.981200
// Time left is that of all runs. One thread.
class Progress {
 public:
  struct State {
    int epoch = 0;
    int num_epochs = 0;
    int64_t batch = 0;        // within the epoch
    int64_t num_batches = 0;  // per epoch
    double samples_per_s = 0;
    double accuracy = 0;  // 0..1; < 0: not known yet
    // Before --disp-batches are done: for the bar, and a first sign of life.
    bool is_between = false;
    double evaluated = -1;  // share of the test set, while it is evaluated
  };
  // What of a command is shown.
  struct Part {
    std::string label;     // "2bit, seed 0", before each line or bar
    int number = 1;        // this is run 5 ...
    int count = 1;         // ... of 18
    int jobs = 1;          // at the same time
    double silence_s = 3;  // before a first line of what is between
  };
  virtual ~Progress() = default;
  virtual void Update(const State& state) = 0;
  // An extra line that stays (validation results, notes).
  virtual void Line(const std::string& text) = 0;
  // Ends the bar, if there is one.
  virtual void Finish() = 0;
};

// A bar only when `display` is a terminal and TERM is not dumb (`is_terminal`).
std::unique_ptr<Progress> MakeProgress(Output& display, bool is_terminal,
                                       const Progress::Part& part);

// Progress for programs, one JSON object per line:
//   {"event":"progress","run":"2bit","epoch":0,"epochs":2,"batch":50,...}
//   {"event":"message","run":"2bit","text":"..."}
// seconds_left is null before it is known.
std::unique_ptr<Progress> MakeJsonProgress(Output& display,
                                           const Progress::Part& part);

}  // namespace telegrad
