#include "kvstore/program/write_by_signal.h"

#include <poll.h>
#include <signal.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/start_thread.h"

namespace telegrad {
namespace {

std::atomic<WakeEvent*> handler_event{nullptr};

void OnFlightSignal(int) {
  const int error = errno;
  if (WakeEvent* const event = handler_event) event->Notify();
  errno = error;
}

void HandleFlightSignal(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR2, &action, nullptr);
}

}  // namespace

void IgnoreFlightSignal() { HandleFlightSignal(SIG_IGN); }

WriteBySignal::WriteBySignal(std::shared_ptr<FlightLog> log)
    : log_(std::move(log)) {
  if (log_ == nullptr || !asked_.is_open()) return;
  thread_ = StartThread([this] { Run(); });
  handler_event = &asked_;
  HandleFlightSignal(OnFlightSignal);
}

WriteBySignal::~WriteBySignal() {
  if (!thread_.joinable()) return;
  IgnoreFlightSignal();
  handler_event = nullptr;
  is_over_ = true;
  asked_.Notify();
  thread_.join();
}

void WriteBySignal::Run() {
  while (!is_over_) {
    pollfd polled = {.fd = asked_.fd(), .events = POLLIN, .revents = 0};
    if (poll(&polled, 1, 1000) <= 0) continue;
    asked_.Clear();
    if (is_over_) return;
    if (log_->folder().empty()) {
      LogWarning("SIGUSR2: no --flight-recorder says where to write");
      continue;
    }
    const auto written = log_->Write(log_->folder());
    if (!written.ok()) {
      LogWarning("SIGUSR2: ", written.status().message());
    } else {
      LogInfo("SIGUSR2: flight record: ", absl::StrJoin(*written, " "));
    }
  }
}

}  // namespace telegrad
