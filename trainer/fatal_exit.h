#pragma once

#include <functional>

#include "absl/status/status.h"
#include "trainer/report_pipe.h"
#include "transport/bootstrap.h"

namespace telegrad {

// How a member process ends early: one JSON line on stderr, then _exit with the
// event's code. The first call ends the process; nothing is joined, foreign
// threads may hang.
// A launcher at the other end of `report` hears of it, too.
[[noreturn]] void ExitFatally(const FatalEvent& event,
                              ReportPipe* report = nullptr);

// For DistOptions::on_fatal.
std::function<void(const FatalEvent&)> FatalExit(ReportPipe* report = nullptr);

// An error that this process found. When other members were told of it, their
// verdict, which ends this process by FatalExit, is waited for shortly.
[[noreturn]] void ExitWithStatus(const absl::Status& status, NodeId self,
                                 ReportPipe* report = nullptr);

}  // namespace telegrad
