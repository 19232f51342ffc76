#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "base/socket.h"
#include "kvstore/job/flight/flight_log.h"

namespace telegrad {

// While it lives, SIGUSR2 has `log` written; before and behind that the signal
// is ignored where IgnoreFlightSignal was called. One at a time.
class WriteBySignal {
 public:
  explicit WriteBySignal(std::shared_ptr<FlightLog> log);
  ~WriteBySignal();

 private:
  void Run();

  const std::shared_ptr<FlightLog> log_;
  WakeEvent asked_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

void IgnoreFlightSignal();

}  // namespace telegrad
