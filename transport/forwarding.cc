#include "transport/forwarding.h"

#include "base/status_macros.h"

namespace telegrad {

absl::Status ForwardingContext::MakeInner(const TransportFactory& make,
                                          const TransportOptions& options) {
  ASSIGN_OR_RETURN(inner_, make(options, this));
  return absl::OkStatus();
}

bool ForwardingContext::Progress(TimePoint deadline) {
  while (true) {
    TimePoint next = deadline;
    if (HandleEvents(&next)) return true;
    if (inner_->Progress(next)) return true;
    if (is_woken_.exchange(false) || Clock::now() >= deadline) return false;
  }
}

void ForwardingContext::Wake() {
  is_woken_ = true;
  inner_->Wake();
}

}  // namespace telegrad
