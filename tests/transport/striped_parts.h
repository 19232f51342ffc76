#pragma once

#include <string>

#include "tests/transport/transport_node.h"
#include "transport/striped/wire.h"
#include "transport/transport.h"

// For a peer that takes and sends each part of what goes over several
// connections by itself.
namespace telegrad::testing {

inline TransportOptions StripedOptions(size_t connections) {
  TransportOptions options;
  options.name = "inproc";
  options.connections = connections;
  return options;
}

// Takes headers as long as those of parts.
inline TransportOptions BareOptions() {
  TransportOptions options = StripedOptions(1);
  options.prefix_bytes = striped::kPrefixBytes;
  return options;
}

inline std::string HelloText(const striped::Hello& hello) {
  std::string text(striped::kPrefixBytes, '\0');
  PackHello(hello, reinterpret_cast<std::byte*>(text.data()));
  return text;
}

inline std::string PartText(const striped::Part& part,
                            const std::string& header) {
  std::string text(striped::kPrefixBytes, '\0');
  PackPart(part, reinterpret_cast<std::byte*>(text.data()));
  return text + header;
}

inline std::string HeardText(const striped::HeardSoFar& heard) {
  std::string text(striped::kPrefixBytes, '\0');
  PackHeard(heard, reinterpret_cast<std::byte*>(text.data()));
  return text;
}

inline ConstBytes BytesOf(const std::string& text) {
  return {text.data(), text.size()};
}

}  // namespace telegrad::testing
