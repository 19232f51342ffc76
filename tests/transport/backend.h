#pragma once

#include <ostream>

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
};

inline void PrintTo(const Backend& backend, std::ostream* out) {
  *out << backend.test_name;
}

// That stands for a network, whatever is below.
inline bool IsDecorated(const Backend& backend) {
  return backend.link_bytes_per_s > 0 || backend.link_latency_s > 0 ||
         *backend.fault != 0;
}

inline TransportOptions OptionsOf(const Backend& backend) {
  TransportOptions options;
  options.name = backend.name;
  options.tls = backend.tls;
  options.link_bytes_per_s = backend.link_bytes_per_s;
  options.link_latency_s = backend.link_latency_s;
  options.fault = backend.fault;
  options.connections = backend.connections;
  if (*backend.rail != 0) options.rails = {backend.rail};
  return options;
}

}  // namespace telegrad::testing
