#include "trainer/fatal_exit.h"

#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "base/clock.h"

namespace telegrad {

void ExitFatally(const FatalEvent& event, ReportPipe* report) {
  static std::atomic<bool> is_ending{false};
  if (is_ending.exchange(true)) {
    for (;;) pause();  // the first caller is ending the process
  }
  const std::string line = FatalLine(event) + "\n";
  if (report != nullptr) report->SendFatal(event);
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, line.data(), line.size());
  _exit(static_cast<int>(event.code));
}

std::function<void(const FatalEvent&)> FatalExit(ReportPipe* report) {
  return [report](const FatalEvent& event) { ExitFatally(event, report); };
}

void ExitWithStatus(const absl::Status& status, NodeId self,
                    ReportPipe* report) {
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  FatalEvent event{.code = ExitCodeOf(status)};
  event.self = ToString(self);
  event.message = std::string(status.message());
  ExitFatally(event, report);
}

}  // namespace telegrad
