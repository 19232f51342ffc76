#pragma once

#include <cstdint>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "transport/transport.h"

namespace telegrad::collective {

// Drives a transport, on a thread of its own, while its owner does not: for
// peers that need answers however long the owner is away. The handler hears
// from that thread then, never from both at a time. An owner that is soon back
// is not kept waiting: the thread looks every few milliseconds.
class Keeper {
 public:
  // The owner is away. `context` outlives it.
  explicit Keeper(TransportContext& context);
  // From the owner's thread.
  ~Keeper();

  // The owner is here: nobody else touches the context. One that does not drive
  // it, as who only reads figures, counts as away.
  void Yield(bool drives = true);
  // The owner goes away.
  void Keep();

 private:
  enum class State { kKeeping, kYielding, kEnding };

  void Stop(State state, bool drives);
  void Run();

  TransportContext& context_;
  Mutex mutex_;
  CondVar changed_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kKeeping;
  // Turns in which the owner drove.
  uint64_t num_turns_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_driving_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace telegrad::collective
