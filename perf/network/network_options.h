#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "kvstore/job/path/data_path.h"
#include "transport/transport.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace telegrad::perf {

// The flags that measurements over a network share.
struct NetworkOptions {
  std::string command_line;  // for the report
  std::string transport = "auto";
  std::string tls;
  std::string tcp_congestion = "auto";
  std::string connections = "1";  // to each peer, as given
  std::vector<std::string> rails;
  std::string memory = "host";             // PayloadDevice's
  std::string plan;                        // file; empty: none
  std::shared_ptr<const GivenPlan> given;  // what it holds
  std::string bind;  // empty: where the rendezvous is reached
  std::string secret_file;
  bool insecure = false;  // beyond loopback without a secret
  std::string link = "none";
  std::string fault;  // as TransportOptions takes it
  bool resend = false;
  std::string size_text;  // as given
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
  std::string html;  // file, empty: none
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

// Reads --plan. For a command that starts all ranks on this machine also
// whether it fits: errors name what does not.
absl::Status TakePlan(const CLI::App& app, NetworkOptions& options);

// What the flags say, for a rank that others reach at --bind, else by loopback.
absl::StatusOr<PathOptions> PathOptionsOf(const NetworkOptions& options);
// Nothing where there was nothing to decide.
void SayDecision(const Plan& plan, Decision::Kind what);

inline Duration TimeoutOf(const NetworkOptions& options) {
  return FromSeconds(options.timeout_s);
}

}  // namespace telegrad::perf
