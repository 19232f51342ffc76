#include "kvstore/tuning/machine_detection.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/network_device.h"
#include "base/socket.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "topology/detect.h"
#include "topology/import.h"
#include "topology/options.h"

namespace telegrad {
namespace {

constexpr Duration kPatience = std::chrono::seconds(10);

absl::StatusOr<Machine> Detect(const SysRoot& root,
                               const std::string& interface) {
  ASSIGN_OR_RETURN(TopologyOptions options, TopologyOptionsFromEnvironment());
  options.wanted_interface = interface;
  if (!options.topo_file.empty()) {
    return MachineFromFile(options.topo_file, options);
  }
  return DetectMachine(root, options);
}

// Empty for loopback and for an address that no interface has.
std::string InterfaceOf(const std::string& bind_address) {
  if (IsOneHost(bind_address)) return "";
  return DeviceOfAddress(bind_address).value_or("");
}

}  // namespace

bool IsOneHost(const std::string& bind_address) {
  const absl::StatusOr<SocketAddress> address = ParseIp(bind_address, 0);
  return address.ok() && IsLoopback(*address);
}

struct MachineDetection::State {
  Mutex mutex;
  CondVar changed;
  bool is_done ABSL_GUARDED_BY(mutex) = false;
  MachineReport report = {};  // const once done
};

MachineDetection::MachineDetection(const std::string& bind_address)
    : MachineDetection(
          [interface = InterfaceOf(bind_address)] {
            return Detect(SysRoot::Live(), interface);
          },
          kPatience) {}

MachineDetection::MachineDetection(Look look, Duration patience)
    : state_(std::make_shared<State>()), patience_(patience) {
  late_.host = OwnHostName();
  late_.machine = absl::DeadlineExceededError(absl::StrCat(
      "looking at it took more than ",
      std::chrono::duration_cast<std::chrono::seconds>(patience).count(),
      " seconds"));
  thread_ =
      StartThread([state = state_, host = late_.host, look = std::move(look)] {
        MachineReport report{
            .host = host, .boot_id = OwnBootId(), .machine = look()};
        MutexLock lock(&state->mutex);
        state->report = std::move(report);
        state->is_done = true;
        state->changed.NotifyAll();
      });
}

MachineDetection::~MachineDetection() {
  if (AwaitEnd()) {
    thread_.join();
    return;
  }
  thread_.detach();
  // This runs before all else that runs at exit, since it comes last.
  on_exit(
      [](int code, void*) {
        std::cout.flush();
        std::fflush(nullptr);
        _exit(code);
      },
      nullptr);
}

bool MachineDetection::AwaitEnd() {
  const TimePoint deadline = Clock::now() + patience_;
  MutexLock lock(&state_->mutex);
  while (!state_->is_done) {
    if (Clock::now() >= deadline) return false;
    state_->changed.WaitUntil(&state_->mutex, deadline);
  }
  return true;
}

const MachineReport& MachineDetection::Get() {
  return AwaitEnd() ? state_->report : late_;
}

}  // namespace telegrad
