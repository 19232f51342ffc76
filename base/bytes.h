#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "base/device.h"

namespace telegrad {

// A view of bytes on a device; does not own them.
struct ConstBytes {
  const std::byte* data = nullptr;
  size_t size = 0;
  Device device;

  ConstBytes() = default;
  ConstBytes(const void* pointer, size_t num_bytes, Device where = {})
      : data(static_cast<const std::byte*>(pointer)),
        size(num_bytes),
        device(where) {}
  std::span<const std::byte> span() const { return {data, size}; }
};

struct Bytes {
  std::byte* data = nullptr;
  size_t size = 0;
  Device device;

  Bytes() = default;
  Bytes(void* pointer, size_t num_bytes, Device where = {})
      : data(static_cast<std::byte*>(pointer)),
        size(num_bytes),
        device(where) {}
  operator ConstBytes() const { return {data, size, device}; }
  std::span<std::byte> span() const { return {data, size}; }
};

// Owns host memory aligned to kAlignment, zero-filled. Large ones come from
// fresh pages, so that memory which is never touched costs nothing. Or memory
// of a device, which the host must not touch.
class Buffer {
 public:
  static constexpr size_t kAlignment = 64;

  Buffer() = default;
  // Ends the program where there is no memory; sizes that a peer, a file or a
  // user may name go through Create.
  explicit Buffer(size_t size);
  // ResourceExhausted: there is no such memory.
  static absl::StatusOr<Buffer> Create(size_t size);
  // Takes memory of a device, which `give_back` gets in the end.
  Buffer(std::byte* memory, size_t size, Device device,
         void (*give_back)(std::byte*));
  Buffer(Buffer&& other) noexcept
      : data_(std::move(other.data_)),
        size_(std::exchange(other.size_, 0)),
        device_(std::exchange(other.device_, Device())) {}
  Buffer& operator=(Buffer&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    device_ = std::exchange(other.device_, Device());
    return *this;
  }

  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  Bytes view() const { return {data_.get(), size_, device_}; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    Free() : mapped_bytes(0) {}
    explicit Free(size_t bytes) : mapped_bytes(bytes) {}
    explicit Free(void (*function)(std::byte*))
        : mapped_bytes(0), give_back(function) {}
    size_t mapped_bytes;                      // 0: from the heap
    void (*give_back)(std::byte*) = nullptr;  // null: the host's
    void operator()(std::byte* pointer) const;
  };
  using Memory = std::unique_ptr<std::byte, Free>;
  Memory data_;
  size_t size_ = 0;
  Device device_;
};

}  // namespace telegrad
