#pragma once

#include <functional>

#include "absl/status/status.h"
#include "transport/bootstrap.h"

namespace telegrad {

// How a member process ends early: one JSON line on stderr, then _exit with the
// event's code. The first call ends the process; nothing is joined, foreign
// threads may hang.
[[noreturn]] void ExitFatally(const FatalEvent& event);

// For DistOptions::on_fatal.
std::function<void(const FatalEvent&)> FatalExit();

// An error that this process found. When other members were told of it, their
// verdict, which ends this process by FatalExit, is waited for shortly.
[[noreturn]] void ExitWithStatus(const absl::Status& status, NodeId self);

}  // namespace telegrad
