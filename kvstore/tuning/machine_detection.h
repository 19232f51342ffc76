#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "kvstore/job/path/data_path.h"

namespace telegrad {

// Whether `bind_address` is loopback: no card of this machine is of use.
bool IsOneHost(const std::string& bind_address);

// Looks at this machine while the process does something else.
class MachineDetection {
 public:
  // Starts. A row of the GID table on the interface that has `bind_address` is
  // preferred.
  explicit MachineDetection(const std::string& bind_address);
  // With `look` in place of the real one, in another thread, and `patience`.
  using Look = std::function<absl::StatusOr<Machine>()>;
  MachineDetection(Look look, Duration patience);
  // Waits for the end as Get does. If a driver still does not answer, the
  // process will end without destroying statics, which its library uses.
  ~MachineDetection();
  MachineDetection(const MachineDetection&) = delete;
  MachineDetection& operator=(const MachineDetection&) = delete;

  // What was found. A driver that does not answer within seconds is an error
  // inside, like all others.
  const MachineReport& Get();

 private:
  struct State;

  bool AwaitEnd();

  std::shared_ptr<State> state_;  // shared with the thread, which may hang
  MachineReport late_ = {};
  Duration patience_;
  std::thread thread_;
};

}  // namespace telegrad
