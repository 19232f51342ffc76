#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "perf/network/measurement.h"
#include "perf/network/network_options.h"
#include "transport/transport.h"

namespace telegrad::perf {

// One measured size. docs/benchmarks.md defines the quantities.
struct NetworkRow {
  std::string what = {};  // "allreduce"
  std::string algorithm = {};
  std::string profile = {};  // empty: a size
  int ranks = 0;
  size_t size_bytes = 0;
  double bytes_moved = 0;  // in one iteration: algbw = this / time
  double bus_factor = 1;   // busbw = algbw x this
  int messages = 0;        // messages of one iteration; 0: no rate is shown
  double raw_bytes = 0;    // one rank's in one iteration
  double wire_bytes = 0;
  std::string checked = "no";  // "values"
  Result result = {};
  // Further fields: --gc-type and so on.
  using Setting = std::variant<std::string, int64_t>;
  std::vector<std::pair<std::string, Setting>> settings = {};

  double algbw_GBps() const;
  double busbw_GBps() const;
};

// Prints rows as they come, on rank 0, and writes the page at the end.
class Report {
 public:
  // `heading`: what is measured, for people.
  Report(const NetworkOptions& options, std::string heading);
  void Add(const NetworkRow& row, const TransportInfo& transport);
  // Writes --html, if it was asked for.
  absl::Status Finish() const;

 private:
  const NetworkOptions options_;
  const std::string heading_;
  std::string transport_;  // the last row's
  std::vector<NetworkRow> rows_;
};

}  // namespace telegrad::perf
