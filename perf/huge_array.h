#pragma once

#include <cstddef>

#include "base/bytes.h"

namespace telegrad::perf {

// Zero-filled memory that was touched, in huge pages where the system has them:
// with 4 KiB pages a measurement of bandwidth is one of the page walker too.
class HugeArray {
 public:
  HugeArray() = default;
  explicit HugeArray(size_t num_bytes);

  size_t size() const { return size_; }
  template <typename T>
  T* as() const {
    return pages_.as<T>();
  }

 private:
  Buffer pages_;
  size_t size_ = 0;
};

}  // namespace telegrad::perf
