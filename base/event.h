#pragma once

namespace telegrad {

// A point in a stream's work (base/stream.h): a cudaEvent_t on a GPU; null:
// already passed.
struct Event {
  void* handle = nullptr;
};

}  // namespace telegrad
