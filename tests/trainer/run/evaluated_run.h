#pragma once

#include <cstdint>
#include <string>

#include "trainer/report/results.h"

namespace telegrad {

// Ten evaluations: accuracy rises by `rise` with each, in 2 seconds and `bytes`
// each.
inline RunSummary RunOf(const std::string& setting, double rise,
                        int64_t bytes) {
  RunSummary run;
  run.setting = setting;
  run.workers = 2;
  run.servers = 1;
  run.data = "digits";
  run.network = "lenet";
  run.steps = 100;
  run.seconds = 20;
  run.accuracy = 10 * rise;
  run.push_raw_bytes = run.pull_raw_bytes = 4'000'000;
  run.push_wire_bytes = run.pull_wire_bytes = 5 * bytes;
  for (int i = 1; i <= 10; ++i) {
    run.points.push_back({.step = 10 * i,
                          .seconds = 2.0 * i,
                          .train_loss = 1.0,
                          .train_accuracy = rise * i,
                          .test_loss = 1.0,
                          .test_accuracy = rise * i,
                          .wire_bytes = bytes * i});
  }
  return run;
}

}  // namespace telegrad
