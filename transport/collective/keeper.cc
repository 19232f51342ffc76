#include "transport/collective/keeper.h"

#include "base/clock.h"

namespace telegrad::collective {
namespace {

// Of one wait; each is for a change that is told of.
constexpr Duration kNap = std::chrono::seconds(1);

}  // namespace

Keeper::Keeper(TransportContext& context)
    : context_(context), thread_([this] { Run(); }) {}

Keeper::~Keeper() {
  SetState(State::kEnding);
  thread_.join();
}

void Keeper::Yield() { SetState(State::kYielding); }

void Keeper::Keep() { SetState(State::kKeeping); }

// Returns when the thread does as it is told.
void Keeper::SetState(State state) {
  MutexLock lock(&mutex_);
  state_ = state;
  changed_.NotifyAll();
  if (state == State::kKeeping) return;
  if (is_driving_) context_.Wake();
  while (is_driving_) changed_.WaitUntil(&mutex_, Clock::now() + kNap);
}

void Keeper::Run() {
  MutexLock lock(&mutex_);
  while (state_ != State::kEnding) {
    if (state_ == State::kYielding) {
      changed_.WaitUntil(&mutex_, Clock::now() + kNap);
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
