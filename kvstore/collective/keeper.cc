#include "kvstore/collective/keeper.h"

#include "base/clock.h"
#include "base/start_thread.h"

namespace telegrad::collective {
namespace {

// How long the owner is away before it is missed; well below what a peer waits
// before it sends again.
constexpr Duration kLook = std::chrono::milliseconds(5);
// How long one wait is; each is for a change that is told of.
constexpr Duration kNap = std::chrono::seconds(1);

}  // namespace

Keeper::Keeper(TransportContext& context)
    : context_(context), thread_(StartThread([this] { Run(); })) {}

Keeper::~Keeper() {
  Stop(State::kEnding, /*drives=*/false);
  thread_.join();
}

void Keeper::Yield(bool drives) { Stop(State::kYielding, drives); }

void Keeper::Keep() {
  MutexLock lock(&mutex_);
  state_ = State::kKeeping;
}

// Returns when the thread is off the context.
void Keeper::Stop(State state, bool drives) {
  MutexLock lock(&mutex_);
  state_ = state;
  if (drives) ++num_turns_;
  if (state == State::kEnding) changed_.NotifyAll();
  if (is_driving_) context_.Wake();
  while (is_driving_) changed_.WaitUntil(&mutex_, Clock::now() + kNap);
}

void Keeper::Run() {
  MutexLock lock(&mutex_);
  uint64_t seen = num_turns_;
  while (state_ != State::kEnding) {
    if (state_ == State::kYielding || num_turns_ != seen) {
      seen = num_turns_;
      changed_.WaitUntil(&mutex_, Clock::now() + kLook);
      continue;
    }
    is_driving_ = true;
    mutex_.Unlock();
    context_.Progress(Clock::now() + kNap);
    mutex_.Lock();
    is_driving_ = false;
    changed_.NotifyAll();
  }
}

}  // namespace telegrad::collective
