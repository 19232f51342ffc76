#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/tensor_view.h"
#include "kvstore/codec_control.h"
#include "kvstore/job/path/worker_group.h"
#include "kvstore/options.h"
#include "kvstore/states.h"
#include "kvstore/ticket.h"

// Who sums what. In order of use: MakeKVStore, SetCompression, SetOptimizer,
// Init, then PushPull (or Push and Pull) per tensor and round, Close. Results
// are sums; OptimizerConfig makes them means: result_scale, or the optimizer's
// rescale where the store runs one.
namespace telegrad {

class Backups;      // kvstore/backups.h
class MetricsPage;  // base/metrics.h

// Bytes of gradients (raw) and of frames with their headers (wire), since the
// first Init without the traffic of Init. Stores of one process have no frames.
struct StoreStats {
  int64_t push_raw_bytes = 0;
  int64_t push_wire_bytes = 0;
  int64_t pull_raw_bytes = 0;
  int64_t pull_wire_bytes = 0;
  int64_t num_nonfinite = 0;  // elements that policy zero replaced
  int64_t num_frames = 0;     // sent and received
  // Bytes copied from host to devices and back, since the store was made.
  int64_t to_device_bytes = 0;
  int64_t from_device_bytes = 0;
  // Asynchronous types only: by how many steps this worker was ahead of the
  // slowest when its pushes were answered. Where servers drop the slowest: by
  // how many rounds its pushes were late, and how many pushes of chunks were.
  int64_t max_staleness = 0;
  double mean_staleness = 0;
  int64_t num_late = 0;
  // CPU seconds that the thread that sends and receives has used.
  double io_cpu_s = 0;
  // Seconds that threads have spent on codecs of tensors in host memory, summed
  // over threads.
  double codec_s = 0;
  // Seconds in which at least one frame was being sent or received.
  double network_s = 0;
  // Mean seconds from sending a push to the end of its answer, by server. With
  // several workers the time includes waiting for the other ones.
  std::vector<double> answer_s = {};
};

// What a type of store is like.
struct StoreTraits {
  const char* type = "";
  const char* summary = "";
  bool has_workers = false;  // sums over all workers of the job, not only here
  int max_devices = 1;       // per process
  // Each worker sums a part, there are no servers: JobOptions::part.
  bool hosts_parts = false;
  // Tensors may lie on devices (TensorSpec::devices); where there are workers,
  // NCCL sums several GPUs of one.
  bool takes_devices = false;
  // Tensors lie on GPUs, one for each device of the process, and are dense; the
  // store runs no optimizer.
  bool needs_gpus = false;
  bool is_async = false;  // each push is a step of its own, by the store
};

// What only some stores have; null where there is none.
struct StoreExtras {
  StateAccess* states = nullptr;  // what an optimizer in the store keeps
  Backups* backups = nullptr;     // where servers drop the slowest
};

using TensorViews = std::span<const TensorView>;

inline TensorView FloatTensor(Bytes bytes) {
  return {.bytes = bytes,
          .dtype = Dtype::kFloat32,
          .num_elems = static_cast<int64_t>(bytes.size / 4)};
}

// Keys of one process are summed over its devices and, in stores of several
// workers, over these. Methods may be called from any thread; those of one key
// one after the other.
class KVStore {
 public:
  virtual ~KVStore() = default;
  virtual const StoreTraits& traits() const = 0;
  virtual WorkerGroup& group() = 0;

  // Called before the first Init; FailedPrecondition afterwards.
  virtual absl::Status SetCompression(const CompressionConfig& config) = 0;
  // Called before the first Init. Between rounds all workers may call it with
  // the same new rates, which each key has from its next round on; nothing else
  // may change then.
  virtual absl::Status SetOptimizer(const OptimizerConfig& config) = 0;

  // Adds tensors, at any time between rounds, and gives their keys in order.
  // All workers call it with the same tensors and settings; a name that the
  // store has is InvalidArgument. `values` has one view per tensor and device,
  // a tensor's devices behind each other, or is empty. All views get the value
  // of the first device of worker 0, in an elastic job of WorkerGroup::elder.
  // Errors carry exit codes (base/exit_code.h).
  virtual absl::StatusOr<std::vector<Key>> Init(
      std::span<const TensorSpec> tensors, TensorViews values) = 0;

  // Starts a round for `key`: sends `grads`, one view per device, and fills
  // `outs` (may be the same memory) with the sum over devices and workers times
  // OptimizerConfig::result_scale, or with the new weights where the optimizer
  // runs in the store. All are [num_elems] of the tensor's type, on its
  // devices, untouched until the ticket is done. On a device the store begins
  // when what views' streams have been given by now has passed. Larger
  // priorities go first. One operation per key at a time.
  virtual Ticket PushPull(Key key, TensorViews grads, TensorViews outs,
                          int priority) = 0;
  // Push and Pull are the halves of PushPull. A Push is done when all workers
  // have pushed; a Pull fetches the result of the last round, or the initial
  // value before any. Views of a tensor with rows (TensorSpec::row_elems) may
  // have some rows only, as [rows, row_elems] of float32 in host memory: a push
  // adds nothing to other rows, a pull fetches no others. Rows that a push
  // repeats are added.
  virtual Ticket Push(Key key, TensorViews grads, int priority) = 0;
  virtual Ticket Pull(Key key, TensorViews outs, int priority) = 0;
  // Gives the value on the first device of worker `root` to all workers' views
  // and to the key: pulls give it until the next round. All workers call it,
  // between rounds; a Pull of a worker that has not called it yet may give the
  // new value already.
  virtual Ticket Broadcast(Key key, int root, TensorViews values,
                           int priority) = 0;

  virtual CodecControl& codecs() = 0;
  // "ucx: UCX 1.13.1, ...": the transport, as the first Init has set it up;
  // empty where no data leaves the process.
  virtual std::string transport_details() const { return ""; }
  virtual StoreExtras extras() { return {}; }
  StateAccess* states() { return extras().states; }
  virtual StoreStats stats() const = 0;
  // Adds what it counts to a page (kvstore/metrics.h); any thread. By default
  // what `stats` has.
  virtual void Collect(MetricsPage& page) const;
  // Ends in order and leaves the group; every later operation fails.
  virtual void Close() = 0;

  // These three are for one device and float32 values that are ready.
  Ticket PushPull(Key key, Bytes grad, Bytes out, int priority) {
    const TensorView in = FloatTensor(grad);
    const TensorView to = FloatTensor(out);
    return PushPull(key, TensorViews(&in, 1), TensorViews(&to, 1), priority);
  }
  Ticket Push(Key key, Bytes grad, int priority) {
    const TensorView in = FloatTensor(grad);
    return Push(key, TensorViews(&in, 1), priority);
  }
  Ticket Pull(Key key, Bytes out, int priority) {
    const TensorView to = FloatTensor(out);
    return Pull(key, TensorViews(&to, 1), priority);
  }
};

// `type` is a name of DescribeKVStores in any case; MXNet's are among them. The
// store is a member of `group`, which outlives it and has no other store; with
// null it is of this process alone. NotFound lists the types that exist;
// Unimplemented is returned for MXNet's types that do not exist yet, and
// FailedPrecondition where the type needs servers, or parts of them, and there
// are none.
absl::StatusOr<std::unique_ptr<KVStore>> MakeKVStore(
    absl::string_view type, const StoreOptions& options, WorkerGroup* group);
// Finds a type without starting anything. InvalidArgument, NotFound and
// Unimplemented are those of MakeKVStore.
absl::StatusOr<StoreTraits> FindStoreType(absl::string_view type);
// Unavailable or NotFound names what this machine or build lacks for a store
// of this type with so many devices: a GPU, NCCL.
absl::Status CheckStoreType(absl::string_view type, int num_devices);
// The types of this build, without their other names.
std::vector<StoreTraits> StoreTypes();
std::string DescribeKVStores();

}  // namespace telegrad
