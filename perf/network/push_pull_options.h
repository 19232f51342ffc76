#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kvstore/kvstore.h"
#include "perf/network/network_options.h"

namespace telegrad::perf {

struct PushPullOptions {
  NetworkOptions network;
  int workers = 0;   // 0: as many as are launched, 2 where nobody launches
  int servers = -1;  // 0: one beside each worker; -1: as SettleRoles says
  std::string kv_store = "dist_sync";
  std::string tier_one = "auto";
  std::string gdr = "auto";
  StoreTraits traits = {};  // its; SettleRoles sets them
  int devices = 1;          // devices whose gradients each worker adds
  int64_t max_staleness = kAnyStaleness;
  std::string type = "none";
  std::string threshold = "auto";
  std::string reply = "auto";
  std::string packing = "plain";
  std::string profile;
  std::string chunk = "524288";            // as given
  size_t chunk_elems = size_t{512} << 10;  // where nothing else is known
  bool has_auto_chunk = false;             // the plan's, tensor by tensor
  bool overcommits = false;                // begins without the memory for it
  int threads = 1;

  int num_gradients() const { return workers * devices; }
};

void AddPushPullFlags(CLI::App& app, PushPullOptions& options);

// What --chunk and --plan say. InvalidArgument where they or other flags of
// `app` contradict each other.
absl::Status SettlePlan(const CLI::App& app, PushPullOptions& options);

// Sets what was not given: where this command starts all ranks, 2 workers and 1
// server; where it is given on several hosts or by a launcher, a worker and a
// server in each place; 1 server beside a single worker or where --rank was
// given; no servers where the store has none, and one worker where it sums
// within one process. `words` get what was found, for further ranks.
// InvalidArgument where the store cannot do what was asked for.
absl::Status SettleRoles(PushPullOptions& options,
                         std::vector<std::string>& words);

}  // namespace telegrad::perf
