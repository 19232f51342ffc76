#include "transport/ofi/progress.h"

#include <sched.h>

#include <algorithm>

#include "transport/ofi/ofi_context.h"

// Working off events: poll, then sleep.
namespace telegrad::ofi {
namespace {

// Asking the sockets costs a system call.
constexpr unsigned kPollsPerSocketPoll = 16;
// Of the naps where libfabric has no file to wait for, or no room to send.
constexpr Duration kFirstNap = std::chrono::microseconds(20);
constexpr Duration kLongestNap = std::chrono::milliseconds(1);

}  // namespace

bool OfiContext::HandleEvents(bool is_complete) {
  num_events_ = num_moved_ = 0;
  HandleCompletions();
  if (is_complete || ++num_polls_ % kPollsPerSocketPoll == 0) PollSockets();
  if (!pumping_.empty()) PumpAll();
  CallDone();
  AdvanceClosing();
  return num_events_ > 0;
}

void OfiContext::PollSockets() {
  poller_.Poll([this](uint64_t key, uint32_t events) {
    if (key == kListenerKey) return Accept();
    if (key < kFirstEndpointKey) return;
    const auto id = static_cast<EndpointId>(key - kFirstEndpointKey);
    if (Endpoint* endpoint = endpoints_.Find(id))
      HandleSocket(*endpoint, events);
  });
}

bool OfiContext::Progress(TimePoint deadline) {
  TimePoint now = Clock::now();
  TimePoint poll_until = now + options_.poll;
  nap_ = kFirstNap;
  has_yielded_ = false;
  bool has_slept = false;
  idle_polls_.Restart();
  while (true) {
    if (HandleEvents(/*is_complete=*/has_slept || now >= deadline)) return true;
    if (poller_.TakeWake()) return false;
    if (now >= deadline) return false;
    now = Clock::now();
    if (num_moved_ > 0) {  // parts of messages
      poll_until = now + options_.poll;
      nap_ = kFirstNap;
      has_yielded_ = false;
    } else {
      idle_polls_.Count();
    }
    has_slept = now >= poll_until;
    if (has_slept) {
      Sleep(std::min(deadline, endpoints_.NextTimer()));
      now = Clock::now();
    }
  }
}

void OfiContext::Sleep(TimePoint until) {
  const bool has_file = fabric_->wait_fd() >= 0;
  const bool may_wait = has_file && fabric_->MayWait();
  if (has_file && !may_wait && !has_yielded_) {
    has_yielded_ = true;  // something has come, or libfabric only says so
    sched_yield();
    return;
  }
  if (!may_wait || is_stalled_ || !pumping_.empty()) {
    until = std::min(until, Clock::now() + nap_);
    nap_ = std::min(2 * nap_, kLongestNap);
  }
  poller_.Sleep(until);
}

}  // namespace telegrad::ofi
