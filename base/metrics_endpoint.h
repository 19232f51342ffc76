#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/metrics.h"

namespace telegrad {

// Where a process's metrics can be read.
struct MetricsOutlet {
  static constexpr int kNoPort = -1;
  // The first free one from there on, of kPorts; 0: any free one.
  int port = kNoPort;
  static constexpr int kPorts = 128;
  std::string ip = "127.0.0.1";
  // Written every ten seconds and at the end; empty: none.
  std::string file = {};
};

// Answers "GET /metrics" and writes the file, on a thread of its own. A request
// that is none, comes slowly or is too large ends its connection; of kMost at a
// time the oldest gives way.
class MetricsEndpoint {
 public:
  static constexpr size_t kMost = 8;          // connections
  static constexpr size_t kMostBytes = 4096;  // a request's
  static constexpr Duration kPatience = std::chrono::seconds(5);

  // Null where nothing is wanted. `metrics` outlives it. AlreadyExists: no port
  // is free; an error names a file that cannot be written.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(
      const Metrics& metrics, const MetricsOutlet& outlet);
  virtual ~MetricsEndpoint() = default;

  // "127.0.0.1:9108"; empty: it only writes a file.
  virtual std::string address() const = 0;
};

}  // namespace telegrad
