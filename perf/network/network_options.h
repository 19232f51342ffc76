#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "kvstore/job/path/data_path.h"
#include "kvstore/program/member_flags.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace telegrad::perf {

// The flags that measurements over a network share. Without --bind a rank
// listens where the rendezvous is reached.
struct NetworkOptions : PathFlags {
  NetworkOptions() { path.transport.bind_address.clear(); }
  std::string command_line;     // for the report
  std::string memory = "host";  // PayloadDevice's
  std::string size_text;        // as given
  std::vector<size_t> sizes;
  int warmup = 5;
  int iterations = 0;  // 0: as many as take `seconds`
  double seconds = 0.3;
  int ranks = 2;
  int rank = -1;  // -1: as launch.h says
  // The second half of the ranks is started by the first, each on its host:
  // rank + ranks / 2.
  bool has_companions = false;
  std::string rendezvous;  // "node1:7777"
  double timeout_s = 60;
  bool pins = false;
  bool checks = false;
  bool json = false;
  bool lists_times = false;
  std::string html;            // file, empty: none
  Metrics* numbers = nullptr;  // null: nobody asks
};

// `default_sizes` as --size takes them.
void AddNetworkFlags(CLI::App& app, const std::string& default_sizes,
                     NetworkOptions& options);

// For commands whose payloads may lie on a GPU.
void AddMemoryFlag(CLI::App& app, NetworkOptions& options);

// The flag's last value counts: this process adds to the words that it was
// given when it starts others.
void Last(CLI::Option* option);

// Checks flags and fills in `sizes`. InvalidArgument says what is wrong.
absl::Status FinishOptions(NetworkOptions& options);

// FinishPathFlags; for a command that starts all ranks on this machine also
// whether --plan fits: errors name what does not.
absl::Status TakePathFlags(const CLI::App& app, NetworkOptions& options);

// What the flags say, for a rank that others reach at --bind, else by loopback.
// `worker`: the rank, whose payloads' GPU is named; -1: it has no payloads.
PathOptions PathOptionsOf(const NetworkOptions& options, int worker = -1);
// Nothing where there was nothing to decide.
void SayDecision(const Plan& plan, Decision::Kind what);

inline Duration TimeoutOf(const NetworkOptions& options) {
  return FromSeconds(options.timeout_s);
}

}  // namespace telegrad::perf
