#pragma once

#include <string>

#include "tests/transport/transport_node.h"
#include "transport/decorators/multirail/wire.h"
#include "transport/transport.h"

// For a peer that takes and sends each part of what goes over several
// connections by itself.
namespace telegrad::testing {

inline TransportOptions MultiRailOptions(size_t connections) {
  TransportOptions options;
  options.name = "inproc";
  options.connections = connections;
  return options;
}

// Takes headers as long as those of parts.
inline TransportOptions BareOptions() {
  TransportOptions options = MultiRailOptions(1);
  options.prefix_bytes = multirail::kPrefixBytes;
  return options;
}

inline std::string HelloText(const multirail::Hello& hello) {
  std::string text(multirail::kPrefixBytes, '\0');
  PackHello(hello, reinterpret_cast<std::byte*>(text.data()));
  return text;
}

inline std::string PartText(const multirail::Part& part,
                            const std::string& header) {
  std::string text(multirail::kPrefixBytes, '\0');
  PackPart(part, reinterpret_cast<std::byte*>(text.data()));
  return text + header;
}

inline std::string AckText(const multirail::ReceivedSoFar& heard) {
  std::string text(multirail::kPrefixBytes, '\0');
  PackAck(heard, reinterpret_cast<std::byte*>(text.data()));
  return text;
}

inline ConstBytes BytesOf(const std::string& text) {
  return {text.data(), text.size()};
}

}  // namespace telegrad::testing
