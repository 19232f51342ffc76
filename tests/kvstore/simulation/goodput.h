#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/kvstore/simulation/run_apart.h"

// What kills cost a job of many workers: docs/control_plane.md#goodput.
namespace telegrad::testing {

// Seconds are virtual. What is not the protocol's has its time from here.
struct GoodputPlan {
  int workers = 64;
  int servers = 2;
  double minutes = 60;      // of steps that count, if there were no kills
  double every_s = 300;     // between two kills
  double step_s = 1;        // a step's own work
  int64_t save_every = 20;  // steps between two checkpoints
  double save_s = 0.1;      // how long one holds up the step
  double load_s = 0.49;     // until a process that lives goes on from it
  double start_s = 0.45;    // until a new process begins to join
  bool is_silent = false;   // machines lose their power: nothing is closed
  uint64_t seed = 1;
};

struct Goodput {
  Report report;
  int64_t steps = 0;        // that count
  int64_t again = 0;        // that were done once more
  double seconds = 0;       // from the first one to the last one
  double quiet_step_s = 0;  // of a step where nobody is killed, saving included
  double share = 0;  // steps that count, of those of as long without kills
};

Goodput MeasureGoodput(const GoodputPlan& plan);

// "--goodput", then flags such as "--workers=64": prints a line of JSON. The
// exit code.
int RunGoodput(const std::vector<std::string>& flags);

}  // namespace telegrad::testing
