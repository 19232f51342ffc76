#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/mutex.h"

namespace telegrad {

// Buffers that come back when their last user lets go, by exact size, and with
// them what counts their users, so that the steady state allocates nothing.
// Thread-safe; outlived by its buffers.
class BufferPool {
 public:
  // Buffers are `make`'s, empty ones where it has none left; null: ordinary
  // memory.
  explicit BufferPool(std::function<Buffer(size_t)> make = nullptr)
      : shelf_(std::make_shared<Shelf>()), make_(std::move(make)) {}

  std::shared_ptr<Buffer> Get(size_t size) {
    std::unique_ptr<Buffer> buffer = shelf_->Take(size);
    if (buffer == nullptr) buffer = std::make_unique<Buffer>(Make(size));
    return {buffer.release(),
            [shelf = shelf_](Buffer* used) {
              shelf->Put(std::unique_ptr<Buffer>(used));
            },
            Blocks<Buffer>{shelf_}};
  }

 private:
  Buffer Make(size_t size) const { return make_ ? make_(size) : Buffer(size); }
  // Room for a shared_ptr's counts.
  struct alignas(std::max_align_t) Block {
    std::byte room[96];
  };
  struct Shelf {
    std::unique_ptr<Buffer> Take(size_t size) {
      MutexLock lock(&mutex);
      return TakeLast(free[size]);
    }
    void Put(std::unique_ptr<Buffer> buffer) {
      MutexLock lock(&mutex);
      free[buffer->size()].push_back(std::move(buffer));
    }
    std::unique_ptr<Block> TakeBlock() {
      MutexLock lock(&mutex);
      return TakeLast(blocks);
    }
    void PutBlock(std::unique_ptr<Block> block) {
      MutexLock lock(&mutex);
      blocks.push_back(std::move(block));
    }
    template <typename T>
    static std::unique_ptr<T> TakeLast(std::vector<std::unique_ptr<T>>& from) {
      if (from.empty()) return nullptr;
      std::unique_ptr<T> last = std::move(from.back());
      from.pop_back();
      return last;
    }
    Mutex mutex;
    std::map<size_t, std::vector<std::unique_ptr<Buffer>>> free
        ABSL_GUARDED_BY(mutex);
    std::vector<std::unique_ptr<Block>> blocks ABSL_GUARDED_BY(mutex);
  };
  // What shared_ptr takes its memory from.
  template <typename T>
  struct Blocks {
    using value_type = T;
    std::shared_ptr<Shelf> shelf;

    explicit Blocks(std::shared_ptr<Shelf> of) : shelf(std::move(of)) {}
    template <typename U>
    Blocks(const Blocks<U>& other) : shelf(other.shelf) {}
    T* allocate(size_t count) {
      static_assert(sizeof(T) <= sizeof(Block));
      static_assert(alignof(T) <= alignof(Block));
      TELEGRAD_CHECK(count == 1, "a shared_ptr has one block");
      std::unique_ptr<Block> block = shelf->TakeBlock();
      if (block == nullptr) block = std::make_unique<Block>();
      return reinterpret_cast<T*>(block.release());
    }
    void deallocate(T* block, size_t) {
      shelf->PutBlock(std::unique_ptr<Block>(reinterpret_cast<Block*>(block)));
    }
    template <typename U>
    bool operator==(const Blocks<U>& other) const {
      return shelf == other.shelf;
    }
  };
  std::shared_ptr<Shelf> shelf_;
  std::function<Buffer(size_t)> make_;
};

}  // namespace telegrad
