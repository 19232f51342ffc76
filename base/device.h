#pragma once

#include <cstdint>

// This header and stream.h are C++17, for .cu files.
namespace telegrad {

enum class DeviceKind : uint8_t { kCpu = 0, kCuda = 1 };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int ordinal = 0;

  friend bool operator==(const Device& a, const Device& b) {
    return a.kind == b.kind && a.ordinal == b.ordinal;
  }
};

}  // namespace telegrad
