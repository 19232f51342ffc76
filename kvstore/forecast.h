#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/options.h"

namespace telegrad {

// The store whose work is foretold: workers, and servers that sum.
struct ForecastRequest {
  CompressionConfig compression = {};
  UpdateOn update_on = UpdateOn::kWorker;
  int num_workers = 1;
  int num_servers = 1;
  size_t chunk_elems = 0;
};

// What a tensor will cost in a step, in bytes; payloads of variable width count
// as at their largest. Wire bytes have frame headers.
struct TensorForecast {
  TensorReport report = {};  // as CodecControl::Report after Init
  size_t num_chunks = 0;     // frames of a push
  size_t push_wire = 0;      // frame bytes that one worker pushes
  size_t pull_wire = 0;      // to one worker
  // Memory of each worker: residual, a frame each way.
  size_t worker_memory = 0;
  // Memory of all servers: a round's frames, the result, a residual of
  // re-encoding, weights and momentum where the optimizer runs there.
  size_t server_memory = 0;
};

// Codec, reason and bytes of each tensor, without a store. Errors name what is
// wrong in `compression`, as SetCompression and Init do.
absl::StatusOr<std::vector<TensorForecast>> ForecastCompression(
    std::span<const TensorSpec> tensors, const ForecastRequest& request);

}  // namespace telegrad
