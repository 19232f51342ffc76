#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/socket.h"
#include "kvstore/job/control/frame_connection.h"
#include "kvstore/job/control/job.h"

namespace telegrad {

// Connects to the scheduler and shows who we are, again and again with growing
// pauses until it works, is refused, `is_stopping` (then Cancelled) or
// `deadline` passes (exit code 24). After `timing.unreached_word` it says once
// that it waits. JOIN may be sent on the result.
absl::StatusOr<FrameConnection> ConnectToScheduler(
    const JoinRequest& request, TimePoint deadline, WakeEvent& wake,
    const std::function<bool()>& is_stopping);

}  // namespace telegrad
