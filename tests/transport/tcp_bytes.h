#pragma once

#include <cstdint>
#include <string>

// What tcp says, as docs/transports.md has it, not as the transport packs it.
namespace telegrad::testing {

inline const std::string kTcpHello("T\2\0\0GRAD", 8);

inline std::string Number(uint64_t value, int num_bytes = 8) {
  std::string bytes;
  for (int i = 0; i < num_bytes; ++i) {
    bytes += static_cast<char>(value >> (8 * i));
  }
  return bytes;
}

// A record's first 8 bytes.
inline std::string Record(int kind, int header_bytes, uint64_t payload_bytes) {
  return Number(kind, 1) + Number(header_bytes, 1) + Number(0, 2) +
         Number(payload_bytes, 4);
}

}  // namespace telegrad::testing
