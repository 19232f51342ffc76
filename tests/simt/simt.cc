#include "tests/simt/simt.h"

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/simt/device_memory.h"
#include "tests/simt/multiprocessor.h"

namespace telegrad::simt {
namespace {

// Blocks that wait for one another (decoupled look-back) need several at once;
// those that spin take the others' time where cores are few.
constexpr unsigned kMostWorkers = 4;

thread_local Multiprocessor* current = nullptr;

unsigned NumWorkers() {
  static const unsigned workers =
      std::clamp(std::thread::hardware_concurrency(), 2u, kMostWorkers);
  return workers;
}

// SplitMix64's step: an order that looks random and is the same in each run.
uint64_t Mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

// One grid: workers take its blocks until none is left.
class Blocks {
 public:
  Blocks(const Shape& shape, const std::function<void()>& kernel,
         uint64_t number)
      : shape_(shape), kernel_(kernel), seed_(Mixed(number)) {}

  void Work(Multiprocessor& multiprocessor) {
    current = &multiprocessor;
    for (;;) {
      const unsigned i = next_.fetch_add(1);
      if (i >= shape_.blocks) break;
      // Any order: those before are under way, never those after.
      const uint64_t turn = (seed_ + i) % shape_.blocks;
      const uint64_t block = seed_ >> 63 != 0 ? shape_.blocks - 1 - turn : turn;
      multiprocessor.RunBlock(shape_, static_cast<unsigned>(block),
                              Mixed(seed_ + i), kernel_);
    }
    current = nullptr;
  }

 private:
  const Shape shape_;
  const std::function<void()>& kernel_;
  const uint64_t seed_;
  std::atomic<unsigned> next_{0};
};

}  // namespace

void Run(const Shape& shape, int device, const std::function<void()>& kernel) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<Multiprocessor>> multiprocessors;
  static uint64_t number = 0;
  const std::lock_guard<std::mutex> lock(mutex);
  while (multiprocessors.size() < NumWorkers()) {
    multiprocessors.push_back(std::make_unique<Multiprocessor>());
  }
  const DeviceAccess access(device);
  Blocks launch(shape, kernel, number++);
  std::vector<std::thread> helpers;
  for (unsigned w = 1; w < std::min(NumWorkers(), shape.blocks); ++w) {
    helpers.emplace_back(
        [&launch, m = multiprocessors[w].get()] { launch.Work(*m); });
  }
  launch.Work(*multiprocessors[0]);
  for (std::thread& helper : helpers) helper.join();
}

void SyncBlock() { current->SyncBlock(); }

const uint64_t* GatherWarp(const char* operation, unsigned mask,
                           uint64_t value) {
  return current->GatherWarp(operation, mask, value);
}

void* SharedMemory(const void* place, size_t size) {
  return current->SharedMemory(place, size);
}

void Fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::fprintf(stderr, "simt: %s: ",
               current == nullptr ? "host" : current->WhereRunning().c_str());
  std::vfprintf(stderr, format, arguments);
  std::fprintf(stderr, "\n");
  va_end(arguments);
  std::abort();
}

}  // namespace telegrad::simt
