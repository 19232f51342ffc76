#include "trainer/machine_detection.h"

#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/socket.h"
#include "base/status_macros.h"
#include "topology/detect.h"
#include "topology/import.h"
#include "topology/options.h"

namespace telegrad {
namespace {

constexpr int kPatienceSeconds = 10;

absl::StatusOr<Machine> Detect(const SysRoot& root) {
  ASSIGN_OR_RETURN(const TopologyOptions options,
                   TopologyOptionsFromEnvironment());
  if (!options.topo_file.empty()) {
    return MachineFromFile(options.topo_file, options);
  }
  return DetectMachine(root, options);
}

}  // namespace

struct MachineDetection::State {
  Mutex mutex;
  CondVar changed;
  bool is_done ABSL_GUARDED_BY(mutex) = false;
  MachineReport report = {};  // const once done
};

MachineDetection::MachineDetection() : state_(std::make_shared<State>()) {
  late_.host = OwnHostName();
  late_.machine = absl::DeadlineExceededError(absl::StrCat(
      "looking at it took more than ", kPatienceSeconds, " seconds"));
  std::thread([state = state_, host = late_.host] {
    const SysRoot root = SysRoot::Live();
    MachineReport report{
        .host = host,
        .boot_id = root.Read("/proc/sys/kernel/random/boot_id").text,
        .machine = Detect(root)};
    absl::StripAsciiWhitespace(&report.boot_id);
    MutexLock lock(&state->mutex);
    state->report = std::move(report);
    state->is_done = true;
    state->changed.NotifyAll();
  }).detach();
}

MachineDetection::~MachineDetection() { Get(); }

const MachineReport& MachineDetection::Get() {
  const TimePoint deadline =
      Clock::now() + std::chrono::seconds(kPatienceSeconds);
  MutexLock lock(&state_->mutex);
  while (!state_->is_done) {
    if (Clock::now() >= deadline) return late_;
    state_->changed.WaitUntil(&state_->mutex, deadline);
  }
  return state_->report;
}

}  // namespace telegrad
