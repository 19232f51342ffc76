#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "base/socket.h"
#include "kvstore/job/control/cancellation.h"
#include "kvstore/job/control/fatal_event.h"
#include "transport/node.h"

namespace telegrad {

class Scheduler;
using FatalListener = std::function<void(const FatalEvent&)>;

// Tells `tell`, else writes the fatal line to standard error, and ends the
// process with the event's code; 128 + n where signal n came before. The first
// caller does it; others never return.
[[noreturn]] void ExitFatally(FatalEvent event,
                              const FatalListener& tell = nullptr);

// Ends the process with a status, after a moment: when the job fails, on_fatal
// knows better what happened and comes first. Where the job's scheduler is in
// this process it tells the others before.
[[noreturn]] void ExitWithStatus(const absl::Status& status, NodeId self,
                                 const FatalListener& tell = nullptr,
                                 Scheduler* scheduler = nullptr);

// While it lives, SIGTERM, SIGINT and SIGHUP tell the others of the job that it
// is cancelled and end this process fatally. One at a time.
class EndBySignal {
 public:
  // `self`: of the fatal line.
  EndBySignal(std::string self, std::shared_ptr<Cancellation> cancellation);
  ~EndBySignal();

 private:
  void Run();

  const std::string self_;
  const std::shared_ptr<Cancellation> cancellation_;
  UniqueFd signals_;
  UniqueFd writing_;
  WakeEvent stop_;
  std::thread thread_;
};

}  // namespace telegrad
