#pragma once

#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "tests/transport/labelled.h"
#include "transport/transport.h"

namespace telegrad::testing {

// A transport that a suite runs over.
struct Backend {
  const char* test_name;
  const char* name;
  const char* tls;
  double link_bytes_per_s = 0;
  const char* fault = "";
  size_t connections = 1;
  const char* rail = "";
  double link_latency_s = 0;
  size_t fragment_bytes = 0;  // above 0: staged, in fragments of that size
  absl::StatusOr<std::unique_ptr<TransportContext>> (*make)(
      const TransportOptions&, TransportHandler*) = MakeTransport;
  const char* memory = "host";
  bool resend = false;
  bool is_in_memory = false;  // what IsInMemory says of connected endpoints
  bool has_key = false;
  Encryption encryption = Encryption::kAuto;
};

inline void PrintTo(const Backend& backend, std::ostream* out) {
  *out << backend.test_name;
}

// With payloads on a device, so to speak; a large message has many fragments.
inline Backend Staged(Backend backend) {
  backend.fragment_bytes = size_t{40} << 10;
  return backend;
}

inline Backend Resent(Backend backend) {
  backend.resend = true;
  return backend;
}

// Whose peers prove that they hold a key.
inline Backend Keyed(Backend backend) {
  backend.has_key = true;
  return backend;
}

// Which seals its messages.
inline Backend Sealed(Encryption encryption, Backend backend) {
  backend.encryption = encryption;
  return Keyed(backend);
}

// Whose peers share the memory of this machine.
inline Backend InMemory(Backend backend) {
  backend.is_in_memory = true;
  return backend;
}

inline TransportOptions OptionsOf(const Backend& backend) {
  TransportOptions options;
  options.name = backend.name;
  options.tls = backend.tls;
  options.link_bytes_per_s = backend.link_bytes_per_s;
  options.link_latency_s = backend.link_latency_s;
  options.fault = backend.fault;
  options.connections = backend.connections;
  options.memory = backend.memory;
  options.resend = backend.resend;
  options.encryption = backend.encryption;
  if (backend.has_key) options.key = MakeConnectionKey("a key");
  if (*backend.rail != 0) options.rails = {backend.rail};
  return options;
}

// What the conformance suite runs over in this program.
std::vector<Backend> AllBackends();

// What its tests of many bytes run over: not decorators of UCX and libfabric,
// since those over sockets and within the process have the same code. With
// TELEGRAD_CONFORMANCE=whole all.
inline std::vector<Backend> BulkBackends() {
  const char* const text = std::getenv("TELEGRAD_CONFORMANCE");
  std::vector<Backend> all = AllBackends();
  if (text != nullptr && std::string(text) == "whole") return all;
  std::erase_if(all, [](const Backend& each) {
    const std::string name = each.name;
    const bool is_decorated = each.has_key || each.resend ||
                              each.fragment_bytes > 0 || each.connections > 1;
    return is_decorated && std::string(each.memory) == "host" &&
           (name == "ucx" || name == "ofi");
  });
  return all;
}

// Of contexts over it.
inline TransportFactory FactoryOf(const Backend& backend) {
  if (backend.fragment_bytes == 0) return backend.make;
  return [backend](const TransportOptions& options, TransportHandler* handler) {
    return Labelled::Make(backend.make, options, backend.fragment_bytes,
                          handler);
  };
}

}  // namespace telegrad::testing
