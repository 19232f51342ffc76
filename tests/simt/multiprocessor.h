#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/simt/simt.h"

namespace telegrad::simt {

// Runs one block of threads at a time, each a fiber. One thread of the system
// at a time; not always the same one.
class Multiprocessor {
 public:
  Multiprocessor();
  Multiprocessor(const Multiprocessor&) = delete;
  Multiprocessor& operator=(const Multiprocessor&) = delete;
  ~Multiprocessor();

  // `order` chooses the threads' turns.
  void RunBlock(const Shape& shape, unsigned block, uint64_t order,
                const std::function<void()>& kernel);

  // For the running thread of the block; see simt.h.
  void SyncBlock();
  const uint64_t* GatherWarp(const char* operation, unsigned mask,
                             uint64_t value);
  void* SharedMemory(const void* place, size_t size);
  std::string WhereRunning() const;

 private:
  enum class State : uint8_t { kReady, kAtBarrier, kAtWarpOperation, kDone };
  struct Fiber {
    ucontext_t context;
    char* stack = nullptr;
    void* fake_stack = nullptr;  // AddressSanitizer's
    State state = State::kDone;
    unsigned operations = 0;  // of its warp that it took part in
  };
  // Values of two operations: a lane may be at the next while another has not
  // read those of the last.
  struct Warp {
    const char* operation = nullptr;  // null: no lane waits
    unsigned arrived = 0;
    uint64_t values[2][32];
  };
  struct SharedVariable {
    const void* place;
    std::unique_ptr<uint64_t[]> memory;
  };

  static void Enter(unsigned high, unsigned low);
  void MakeFiber(unsigned thread);
  // Whether a thread can go on: then it is the running one.
  bool TakeTurn();
  // From `from` to the running thread; returns when somebody comes back.
  void SwitchToRunning(ucontext_t* from, void** fake_stack);
  void Arrive(void* fake_stack);
  void Wait(State state);  // until it is this thread's turn again
  void Release(unsigned first, unsigned count);
  [[noreturn]] void FailStuck();

  size_t stack_bytes_ = 0;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<SharedVariable> shared_;
  size_t shared_bytes_ = 0;
  const std::function<void()>* kernel_ = nullptr;
  unsigned block_ = 0;
  unsigned num_threads_ = 0;
  unsigned num_at_barrier_ = 0;
  unsigned num_done_ = 0;
  unsigned running_ = 0;
  unsigned turn_ = 0;
  bool is_descending_ = false;
  // Where RunBlock was called.
  ucontext_t caller_ = {};
  bool comes_from_caller_ = false;
  const void* caller_stack_ = nullptr;
  size_t caller_stack_bytes_ = 0;
};

}  // namespace telegrad::simt
