#include <mutex>
#include <set>

#include "tests/simt/observe_state.h"
#include "tests/simt/simt.h"

namespace telegrad::simt {
namespace {

struct State {
  std::mutex mutex;
  Counters counters;
  bool is_to_fail = false;
  unsigned others = 0;  // launches before that which fails
  cudaError_t error = cudaSuccess;
  bool for_ever = false;
  cudaError_t lasting = cudaSuccess;
  bool fails_pinned = false;
  bool has_context[2] = {};
  std::set<const void*> loaded;
};
State& Now() {
  static auto* const state = new State;
  return *state;
}

template <typename Change>
auto Locked(Change change) {
  State& state = Now();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return change(state);
}

}  // namespace

Counters Counters::operator-(const Counters& before) const {
  Counters left = *this;
  left.waits -= before.waits;
  left.launches -= before.launches;
  left.loads -= before.loads;
  left.allocations -= before.allocations;
  left.pool_allocations -= before.pool_allocations;
  left.bytes_to_device -= before.bytes_to_device;
  left.bytes_to_host -= before.bytes_to_host;
  left.copies_to_host -= before.copies_to_host;
  left.flushes -= before.flushes;
  return left;
}

Counters Counted() {
  return Locked([](State& state) { return state.counters; });
}

void FailLaunch(unsigned others, cudaError_t error, bool for_ever) {
  Locked([&](State& state) {
    state.is_to_fail = true;
    state.others = others;
    state.error = error;
    state.for_ever = for_ever;
  });
}

void BreakDevice(cudaError_t error) {
  Locked([=](State& state) { state.lasting = error; });
}

void FailNoMore() {
  Locked([](State& state) {
    state.is_to_fail = false;
    state.lasting = cudaSuccess;
  });
}

void CountWait() {
  Locked([](State& state) { ++state.counters.waits; });
}

void CountFlush() {
  Locked([](State& state) { ++state.counters.flushes; });
}

void CountAllocation(bool is_pooled) {
  Locked([=](State& state) {
    ++(is_pooled ? state.counters.pool_allocations
                 : state.counters.allocations);
  });
}

void CountCopied(uint64_t to_device, uint64_t to_host) {
  Locked([=](State& state) {
    state.counters.bytes_to_device += to_device;
    state.counters.bytes_to_host += to_host;
    state.counters.copies_to_host += to_host > 0 ? 1 : 0;
  });
}

cudaError_t BeginLaunch() {
  return Locked([](State& state) {
    ++state.counters.launches;
    if (state.lasting != cudaSuccess) return state.lasting;
    if (!state.is_to_fail || state.others-- > 0) return cudaSuccess;
    state.is_to_fail = false;
    if (state.for_ever) state.lasting = state.error;
    return state.error;
  });
}

void NoteKernel(const void* kernel) {
  Locked([=](State& state) {
    state.counters.loads += state.loaded.insert(kernel).second ? 1 : 0;
  });
}

void FailPinned(bool fails) {
  Locked([=](State& state) { state.fails_pinned = fails; });
}

bool IsPinnedToFail() {
  return Locked([](State& state) { return state.fails_pinned; });
}

void NoteContext(int device) {
  Locked([=](State& state) { state.has_context[device] = true; });
}

bool HasContext(int device) {
  return Locked([=](State& state) { return state.has_context[device]; });
}

cudaError_t LastingError() {
  return Locked([](State& state) { return state.lasting; });
}

}  // namespace telegrad::simt
