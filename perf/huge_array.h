#pragma once

#include <cstddef>
#include <utility>

namespace telegrad::perf {

// Zero-filled memory in huge pages where the system has them: with 4 KiB pages
// a measurement of bandwidth is one of the page walker too.
class HugeArray {
 public:
  HugeArray() = default;
  explicit HugeArray(size_t num_bytes);
  ~HugeArray();
  HugeArray(HugeArray&& other) noexcept { *this = std::move(other); }
  HugeArray& operator=(HugeArray&& other) noexcept {
    std::swap(pages_, other.pages_);
    std::swap(mapped_, other.mapped_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  size_t size() const { return size_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* pages_ = nullptr;
  size_t mapped_ = 0;
  void* data_ = nullptr;  // at a border of huge pages
  size_t size_ = 0;
};

}  // namespace telegrad::perf
