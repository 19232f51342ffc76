#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"

namespace telegrad {

// Buffers that come back when their last user lets go, by exact size, so that
// the steady state allocates nothing. Thread-safe; outlived by its buffers.
class BufferPool {
 public:
  BufferPool() : shelf_(std::make_shared<Shelf>()) {}

  std::shared_ptr<Buffer> Get(size_t size) {
    std::unique_ptr<Buffer> buffer = shelf_->Take(size);
    if (buffer == nullptr) buffer = std::make_unique<Buffer>(size);
    return {buffer.release(), [shelf = shelf_](Buffer* used) {
              shelf->Put(std::unique_ptr<Buffer>(used));
            }};
  }

 private:
  struct Shelf {
    std::unique_ptr<Buffer> Take(size_t size) {
      MutexLock lock(&mutex);
      auto& buffers = free[size];
      if (buffers.empty()) return nullptr;
      std::unique_ptr<Buffer> buffer = std::move(buffers.back());
      buffers.pop_back();
      return buffer;
    }
    void Put(std::unique_ptr<Buffer> buffer) {
      MutexLock lock(&mutex);
      free[buffer->size()].push_back(std::move(buffer));
    }
    Mutex mutex;
    std::map<size_t, std::vector<std::unique_ptr<Buffer>>> free
        ABSL_GUARDED_BY(mutex);
  };
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace telegrad
