#pragma once

#include <memory>

#include "kvstore/job_plan.h"

namespace telegrad {

// Looks at this machine while the process does something else.
class MachineDetection {
 public:
  MachineDetection();  // starts
  // Waits for the end as Get does.
  ~MachineDetection();
  MachineDetection(const MachineDetection&) = delete;
  MachineDetection& operator=(const MachineDetection&) = delete;

  // What was found. A driver that does not answer within seconds is an error
  // inside, like all others.
  const MachineReport& Get();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may hang
  MachineReport late_ = {};
};

}  // namespace telegrad
