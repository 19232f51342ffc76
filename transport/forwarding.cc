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

bool ForwardingContext::Pass(EndpointId to, ConstBytes header,
                             ConstBytes payload, const SendDone& done) {
  const absl::Status sent = inner_->Send(to, header, payload, done);
  if (!sent.ok()) Defer(done, absl::UnavailableError(sent.message()));
  return sent.ok();
}

void ForwardingContext::Defer(SendDone done, const absl::Status& status) {
  due_.push_back({std::move(done), status});
}

bool ForwardingContext::CallDue() {
  const bool has_any = !due_.empty();
  while (!due_.empty()) {
    const Due due = std::move(due_.front());
    due_.pop_front();
    if (due.done) due.done(due.status);
  }
  return has_any;
}

}  // namespace telegrad
