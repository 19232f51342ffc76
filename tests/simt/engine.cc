#include "tests/simt/engine.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "tests/simt/observe.h"
#include "tests/simt/simt.h"

namespace telegrad::simt {

Engine& Engine::Get() {
  static auto* const engine = new Engine;  // outlives static objects' memory
  return *engine;
}

Engine::Engine() {
  const char* const seed = std::getenv("TELEGRAD_SIMT_SEED");
  SetOrder(seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10));
}

void Engine::SetOrder(uint64_t seed) {
  const Lock lock(mutex_);
  seed_ = seed;
  state_ = seed * 0x9E3779B97F4A7C15u + 1;
}

// SplitMix64.
uint64_t Engine::Random(uint64_t below) {
  uint64_t x = state_ += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return (x ^ x >> 31) % below;
}

StreamState* Engine::MakeStream(int device) {
  const Lock lock(mutex_);
  streams_.push_back(std::make_unique<StreamState>(device));
  return streams_.back().get();
}

void Engine::Hold(StreamState* stream, bool is_held) {
  const Lock lock(mutex_);
  stream->is_busy = is_held;
  while (!is_held && !stream->work.empty() && !IsBlocked(*stream) &&
         !stream->work.front().is_host_call) {
    stream->work.front().run();
    stream->work.pop_front();
  }
  changed_.notify_all();
}

void Engine::HoldKernels(bool are_held) {
  const Lock lock(mutex_);
  holds_kernels_ = are_held;
  changed_.notify_all();
}

void Engine::RunAll() {
  Lock lock(mutex_);
  while (RunOne(lock)) {
  }
}

void Engine::EndStream(StreamState* stream) {
  Finish(stream);
  const Lock lock(mutex_);
  const auto is_it = [stream](const auto& each) {
    return each.get() == stream;
  };
  streams_.erase(std::find_if(streams_.begin(), streams_.end(), is_it));
}

StreamState* Engine::DefaultStream(int device) {
  const Lock lock(mutex_);
  while (default_streams_.size() <= static_cast<size_t>(device)) {
    const int next = static_cast<int>(default_streams_.size());
    streams_.push_back(std::make_unique<StreamState>(next));
    default_streams_.push_back(streams_.back().get());
  }
  return default_streams_[static_cast<size_t>(device)];
}

void Engine::Push(StreamState* stream, Work work, Lock& lock) {
  stream->work.push_back(std::move(work));
  changed_.notify_all();
  if (seed_ == 0 && !stream->is_busy) {
    RunUntil(lock, [&] { return stream->work.empty() && !stream->is_busy; });
    return;
  }
  // Every third seed is as late as can be; others get on now and then.
  if (seed_ % 3 == 0 || Random(4) != 0) return;
  for (uint64_t i = Random(4); i > 0; --i) RunOne(lock);
}

void Engine::Queue(StreamState* stream, std::function<void()> run,
                   bool is_kernel) {
  Lock lock(mutex_);
  Push(stream, {std::move(run), false, nullptr, 0, is_kernel}, lock);
}

// A host that waits to be called asks for nothing that would run the work.
void Engine::QueueHostCall(StreamState* stream, std::function<void()> run) {
  Lock lock(mutex_);
  if (!has_thread_) std::thread([this] { RunForHostCalls(); }).detach();
  has_thread_ = true;
  Push(stream, {std::move(run), true}, lock);
}

void Engine::Record(StreamState* stream,
                    const std::shared_ptr<EventState>& event) {
  Lock lock(mutex_);
  const uint64_t record = ++event->last;
  event->pending.insert(record);
  Push(stream, {[event, record] {
         event->pending.erase(record);
         event->passed = std::chrono::steady_clock::now();
       }},
       lock);
}

void Engine::WaitFor(StreamState* stream,
                     const std::shared_ptr<EventState>& event) {
  Lock lock(mutex_);
  Push(stream, {[] {}, false, event, event->last}, lock);
}

bool Engine::IsBlocked(const StreamState& stream) const {
  const Work& next = stream.work.front();
  if (next.is_kernel && holds_kernels_) return true;
  return next.after != nullptr && next.after->pending.count(next.record) != 0;
}

bool Engine::RunOne(Lock& lock) {
  std::vector<StreamState*> ready;
  for (const auto& stream : streams_) {
    if (stream->is_busy || stream->work.empty() || IsBlocked(*stream)) continue;
    ready.push_back(stream.get());
  }
  if (ready.empty()) return false;
  StreamState* const stream = ready[Random(ready.size())];
  const Work work = std::move(stream->work.front());
  stream->work.pop_front();
  if (work.is_host_call) {
    // Without the lock: others may call the runtime under a lock that the call
    // takes.
    stream->is_busy = true;
    lock.unlock();
    work.run();
    lock.lock();
    stream->is_busy = false;
  } else {
    work.run();
  }
  changed_.notify_all();
  return true;
}

void Engine::RunUntil(Lock& lock, const std::function<bool()>& is_over) {
  while (!is_over()) {
    if (RunOne(lock)) continue;
    const bool is_busy =
        holds_kernels_ ||
        std::any_of(streams_.begin(), streams_.end(), [](const auto& stream) {
          const auto* const after =
              stream->work.empty() ? nullptr : stream->work.front().after.get();
          return stream->is_busy || (after != nullptr && after->is_promised);
        });
    if (!is_busy) Fail("a stream waits for an event that nothing will pass");
    changed_.wait(lock);
  }
}

void Engine::Pass(EventState& event) {
  const Lock lock(mutex_);
  event.pending.clear();
  changed_.notify_all();
}

bool Engine::RunSome(Lock& lock, const std::function<bool()>& is_over) {
  for (uint64_t i = 1 + Random(3); i > 0 && !is_over(); --i) RunOne(lock);
  return is_over();
}

bool Engine::Poll(EventState& event) {
  Lock lock(mutex_);
  return RunSome(lock, [&] { return event.pending.count(event.last) == 0; });
}

bool Engine::Poll(const StreamState* stream) {
  Lock lock(mutex_);
  return RunSome(lock,
                 [&] { return stream->work.empty() && !stream->is_busy; });
}

void Engine::Finish(const StreamState* stream) {
  Lock lock(mutex_);
  RunUntil(lock, [&] { return stream->work.empty() && !stream->is_busy; });
}

void Engine::Finish(const EventState& event) {
  Lock lock(mutex_);
  RunUntil(lock, [&] { return event.pending.count(event.last) == 0; });
}

void Engine::FinishDevice(int device) {
  Lock lock(mutex_);
  RunUntil(lock, [&] {
    return std::all_of(streams_.begin(), streams_.end(),
                       [device](const auto& stream) {
                         return stream->device != device ||
                                (stream->work.empty() && !stream->is_busy);
                       });
  });
}

bool Engine::HasHostCalls() const {
  for (const auto& stream : streams_) {
    for (const Work& work : stream->work) {
      if (work.is_host_call) return true;
    }
  }
  return false;
}

void Engine::RunForHostCalls() {
  Lock lock(mutex_);
  for (;;) {
    if (!HasHostCalls() || !RunOne(lock)) changed_.wait(lock);
  }
}

void Hold(cudaStream_t stream, bool is_held) {
  Engine::Get().Hold(stream, is_held);
}

void HoldKernels(bool are_held) { Engine::Get().HoldKernels(are_held); }

void RunAll() { Engine::Get().RunAll(); }

void SetOrder(uint64_t seed) { Engine::Get().SetOrder(seed); }

}  // namespace telegrad::simt
