#include <algorithm>

#include "transport/ucx/ucx_context.h"

// Working off events: poll, then sleep.
namespace telegrad::ucx {
namespace {

constexpr unsigned kPollsPerNetPoll = 16;
// Where all endpoints have shared memory: their connections bring the end of
// the agreement on that, and their own.
constexpr unsigned kPollsPerRareNetPoll = 256;
constexpr unsigned kPollsPerLook = 8;  // at the clock

}  // namespace

bool UcxContext::has_events() const {
  return !arrived_.empty() || !received_.empty() || !sent_.empty() ||
         !closing_.empty() || !retired_.empty() || !requests_.is_empty() ||
         !failures_.is_empty();
}

// What has arrived is heard before the end of its endpoint.
bool UcxContext::HandleEvents() {
  if (!has_events()) return false;
  num_events_ = 0;
  AcceptRequested();
  HandleArrived();
  HandleReceived();
  HandleSent();
  HandleFailures();
  if (!closing_.empty()) AdvanceClosing();
  if (!retired_.empty()) AdvanceRetired();
  return num_events_ > 0;
}

// Asking TCP costs a system call, which shared memory does not wait for.
unsigned UcxContext::Poll(bool is_complete) {
  unsigned num_events = 0;
  for (const Lane* lane : lanes_) num_events += lane->Poll();
  if (!is_complete && !lanes_.empty() && polls_to_net_ > 0) {
    --polls_to_net_;
    return num_events;
  }
  polls_to_net_ = lanes_.size() < endpoints_.size() ? kPollsPerNetPoll
                                                    : kPollsPerRareNetPoll;
  return num_events + ucp_worker_progress(worker_.handle);
}

bool UcxContext::Progress(TimePoint deadline) {
  Poll(/*is_complete=*/false);
  if (HandleEvents()) return true;  // without a look at the clock
  TimePoint now = Clock::now();
  TimePoint poll_until = now + options_.poll;
  idle_polls_.Restart();
  while (true) {
    const unsigned progressed = Poll(/*is_complete=*/now >= deadline);
    if (HandleEvents()) return true;
    if (poller_.TakeWake()) return false;
    if (now >= deadline) return false;
    const bool is_cheap = !lanes_.empty();
    const bool has_yielded = progressed == 0 && idle_polls_.Count(is_cheap);
    // Beside polls of memory the clock is dear.
    if (is_cheap && progressed == 0 && !has_yielded &&
        ++num_polls_ % kPollsPerLook != 0) {
      continue;
    }
    now = Clock::now();
    if (progressed > 0) {
      poll_until = now + options_.poll;
    } else if (now >= poll_until) {
      Sleep(std::min(deadline, NextTimer()));
      now = Clock::now();
    }
  }
}

void UcxContext::Sleep(TimePoint until) {
  // UCS_ERR_BUSY: there is something to do. Any other error is one that
  // progress reports; never block on a worker that is not armed.
  if (ucp_worker_arm(worker_.handle) != UCS_OK) {
    ucp_worker_progress(worker_.handle);
    return;
  }
  for (const Lane* lane : lanes_) {
    if (ucp_worker_arm(lane->worker()) != UCS_OK) return;
  }
  // Whatever woke us may be the connection's: the next poll asks it, too.
  if (poller_.Sleep(until)) polls_to_net_ = 0;
}

}  // namespace telegrad::ucx
