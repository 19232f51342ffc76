#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"

namespace telegrad::kernels {

// Copies between a device's memory and host memory that it can reach without
// the CPU's help (pinned). One thread.
class DeviceCopier {
 public:
  enum class State : uint8_t { kRunning, kDone, kFailed };
  using Ticket = uint64_t;

  // Waits for all copies and frees all host memory.
  virtual ~DeviceCopier() = default;

  virtual DeviceKind device() const = 0;

  // Pinned memory, aligned to a page; null where there is none left.
  virtual std::byte* AllocateHost(size_t size) = 0;
  virtual void FreeHost(std::byte* memory) = 0;  // without copies under way

  // Begins to copy `from.size` bytes; one side is device memory, that is ready,
  // the other from AllocateHost. Both untouched until Poll says the end.
  virtual Ticket Start(Bytes to, ConstBytes from) = 0;

  // After kDone and kFailed the ticket is gone.
  virtual State Poll(Ticket ticket) = 0;

  // What a failed copy, or AllocateHost, failed of; "" before any.
  virtual std::string error() const = 0;
};

// Copies of this machine's CUDA devices; null, and the reason in `why_not`
// (unless null), where there is none.
std::unique_ptr<DeviceCopier> MakeCudaCopier(std::string* why_not);

}  // namespace telegrad::kernels
