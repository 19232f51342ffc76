#include "tests/simt/multiprocessor.h"

#include <cuda_runtime.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#else
namespace {
void __sanitizer_start_switch_fiber(void**, const void*, size_t) {}
void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) {}
}  // namespace
#endif

namespace telegrad::simt {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;
constexpr size_t kMostSharedBytes = size_t{48} << 10;
constexpr unsigned kWarp = 32;
constexpr uint64_t kGarbage = 0xA5C3A5C3A5C3A5C3u;

}  // namespace

Multiprocessor::Multiprocessor()
    : stack_bytes_(kStackBytes),
      fibers_(kMostThreads),
      warps_(kMostThreads / kWarp) {}

Multiprocessor::~Multiprocessor() {
  for (const Fiber& fiber : fibers_) {
    if (fiber.stack != nullptr) munmap(fiber.stack, stack_bytes_);
  }
}

// A fiber lives as long as its multiprocessor: it runs one kernel after
// another.
void Multiprocessor::Enter(unsigned high, unsigned low) {
  auto* const self = reinterpret_cast<Multiprocessor*>(
      static_cast<uintptr_t>(uint64_t{high} << 32 | low));
  self->Arrive(nullptr);
  for (;;) {
    (*self->kernel_)();
    ++self->num_done_;
    self->Wait(State::kDone);
  }
}

void Multiprocessor::MakeFiber(unsigned thread) {
  Fiber& fiber = fibers_[thread];
  void* const stack = mmap(nullptr, stack_bytes_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) Fail("no memory for a thread's stack");
  // What grows too large meets this page.
  mprotect(stack, static_cast<size_t>(sysconf(_SC_PAGESIZE)), PROT_NONE);
  fiber.stack = static_cast<char*>(stack);
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stack;
  fiber.context.uc_stack.ss_size = stack_bytes_;
  fiber.context.uc_link = nullptr;
  const auto self = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(this));
  makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Enter), 2,
              static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  // Needed no more; AddressSanitizer would forget what it knows of the stack
  // with each switch.
  fiber.context.uc_stack = {};
}

bool Multiprocessor::TakeTurn() {
  for (unsigned i = 0; i < num_threads_; ++i) {
    if (++turn_ == num_threads_) turn_ = 0;
    const unsigned thread = is_descending_ ? num_threads_ - 1 - turn_ : turn_;
    if (fibers_[thread].state != State::kReady) continue;
    running_ = thread;
    return true;
  }
  return false;
}

void Multiprocessor::SwitchToRunning(ucontext_t* from, void** fake_stack) {
  Fiber& fiber = fibers_[running_];
  if (fiber.stack == nullptr) MakeFiber(running_);
  threadIdx.x = running_;
  __sanitizer_start_switch_fiber(fake_stack, fiber.stack, stack_bytes_);
  swapcontext(from, &fiber.context);
}

// On a fiber's stack, after each switch to it.
void Multiprocessor::Arrive(void* fake_stack) {
  const void* from = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack, &from, &bytes);
  if (!comes_from_caller_) return;
  comes_from_caller_ = false;
  caller_stack_ = from;
  caller_stack_bytes_ = bytes;
}

void Multiprocessor::Wait(State state) {
  Fiber& fiber = fibers_[running_];
  fiber.state = state;
  if (TakeTurn()) {
    SwitchToRunning(&fiber.context, &fiber.fake_stack);
  } else {
    __sanitizer_start_switch_fiber(&fiber.fake_stack, caller_stack_,
                                   caller_stack_bytes_);
    swapcontext(&fiber.context, &caller_);
  }
  Arrive(fiber.fake_stack);
}

void Multiprocessor::RunBlock(const Shape& shape, unsigned block,
                              uint64_t order,
                              const std::function<void()>& kernel) {
  kernel_ = &kernel;
  block_ = block;
  num_threads_ = shape.threads;
  num_done_ = 0;
  num_at_barrier_ = 0;
  blockIdx.x = block;
  blockDim.x = shape.threads;
  gridDim.x = shape.blocks;
  for (unsigned t = 0; t < num_threads_; ++t) {
    fibers_[t].state = State::kReady;
    fibers_[t].operations = 0;
  }
  for (Warp& warp : warps_) warp.operation = nullptr;
  turn_ = static_cast<unsigned>(order / 2 % num_threads_);
  is_descending_ = order % 2 != 0;
  TakeTurn();
  comes_from_caller_ = true;
  void* fake_stack = nullptr;
  SwitchToRunning(&caller_, &fake_stack);
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
  if (num_done_ < num_threads_) FailStuck();
  shared_.clear();
  shared_bytes_ = 0;
}

void Multiprocessor::Release(unsigned first, unsigned count) {
  for (unsigned t = first; t < first + count; ++t) {
    fibers_[t].state = State::kReady;
  }
}

void Multiprocessor::SyncBlock() {
  if (++num_at_barrier_ == num_threads_) {
    num_at_barrier_ = 0;
    Release(0, num_threads_);
  } else {
    Wait(State::kAtBarrier);
  }
}

const uint64_t* Multiprocessor::GatherWarp(const char* operation, unsigned mask,
                                           uint64_t value) {
  const unsigned lane = running_ % kWarp;
  Warp& warp = warps_[running_ / kWarp];
  if (mask != 0xFFFFFFFFu) Fail("%s of mask %08x", operation, mask);
  if (running_ - lane + kWarp > num_threads_) {
    Fail("%s in a warp that is not whole", operation);
  }
  if (warp.operation == nullptr) {
    warp.operation = operation;
    warp.arrived = 0;
  } else if (std::strcmp(warp.operation, operation) != 0) {
    Fail("%s, while lanes of its warp are at %s", operation, warp.operation);
  }
  uint64_t* const values = warp.values[fibers_[running_].operations++ % 2];
  values[lane] = value;
  if (++warp.arrived == kWarp) {
    warp.operation = nullptr;
    Release(running_ - lane, kWarp);
  } else {
    Wait(State::kAtWarpOperation);
  }
  return values;
}

void* Multiprocessor::SharedMemory(const void* place, size_t size) {
  for (const SharedVariable& variable : shared_) {
    if (variable.place == place) return variable.memory.get();
  }
  shared_bytes_ += size;
  if (shared_bytes_ > kMostSharedBytes) {
    Fail("%zu bytes of shared memory, more than %zu", shared_bytes_,
         kMostSharedBytes);
  }
  const size_t words = (size + 7) / 8;
  shared_.push_back({place, std::make_unique<uint64_t[]>(words)});
  uint64_t* const memory = shared_.back().memory.get();
  for (size_t i = 0; i < words; ++i) memory[i] = kGarbage;
  return memory;
}

std::string Multiprocessor::WhereRunning() const {
  return "block " + std::to_string(block_) + " thread " +
         std::to_string(running_);
}

void Multiprocessor::FailStuck() {
  for (unsigned t = 0; t < num_threads_; ++t) {
    if (fibers_[t].state == State::kDone) continue;
    running_ = t;
    const char* const operation = fibers_[t].state == State::kAtBarrier
                                      ? "__syncthreads"
                                      : warps_[t / kWarp].operation;
    Fail("waits at %s for threads that never come; %u of %u have ended",
         operation, num_done_, num_threads_);
  }
  std::abort();
}

}  // namespace telegrad::simt
