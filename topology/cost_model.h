#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/small_job.h"
#include "topology/calibration.h"

namespace telegrad {

// How machines sum gradients. With several GPUs per machine each of these is
// the outer leg of two: inside, a reduce-scatter before and an all-gather
// after.
enum class Aggregation : uint8_t {
  kLocal,  // one machine
  kRing,
  kRecursiveDoubling,
  kHalvingDoubling,
  kTree,
  kColocatedServers,  // each machine serves a share: scatter, reduce,
                      // all-gather
  kDedicatedServers,
  kAllGather,  // encoded gradients go to all; everybody sums all
};
inline constexpr Aggregation kAggregations[] = {
    Aggregation::kLocal,
    Aggregation::kRing,
    Aggregation::kRecursiveDoubling,
    Aggregation::kHalvingDoubling,
    Aggregation::kTree,
    Aggregation::kColocatedServers,
    Aggregation::kDedicatedServers,
    Aggregation::kAllGather,
};
const char* Name(Aggregation aggregation);  // "ring", "co-located-servers"

// What a machine and its network cost; all rates of one direction.
struct ClusterCost {
  int workers = 1;                    // machines that exchange gradients
  int servers = 0;                    // machines that only serve
  int gpus_per_node = 1;              // GPUs that share the machine's link
  double cores = 1;                   // for codecs and transport, each machine
  double reduce_elems_per_s = 1e9;    // float additions of one core
  double gpu_reduce_elems_per_s = 0;  // above 0: rings add on the GPU
  double intra_bytes_per_s = 0;       // between GPUs; 0: takes no time
  double bytes_per_s = 1.25e9;        // a worker's link
  double server_bytes_per_s = 0;      // 0: as a worker's
  double latency_s = 0;
  double message_cpu_s = 0;   // a core's, per message sent or received
  double cpu_s_per_byte = 0;  // a core's, per byte sent or received
  // A core's seconds where servers sum: per byte of a frame sent or received,
  // and per byte to or from a server on the worker's own machine.
  double check_s_per_byte = 0;
  double copy_s_per_byte = 0;
  double handover_s = 0;       // a core's, per job that goes to another thread
  double frame_latency_s = 0;  // 0: latency_s
  double frame_cpu_s = 0;      // 0: message_cpu_s
  double frame_cpu_s_per_byte = 0;  // 0: cpu_s_per_byte
  // Rates between a GPU and its host, on the way to servers and back; 0:
  // gradients lie on the host.
  double to_host_bytes_per_s = 0;
  double to_device_bytes_per_s = 0;
  double bus_latency_s = 0;
};

// The link between a GPU, where gradients are, and its host.
inline constexpr char kBusLink[] = "bus";

// What a calibration says of a machine's cores, and of its GPUs' bus.
void SetCores(const Calibration& calibration, ClusterCost* cluster);
// What it says of messages on the link of that name, if anything.
void SetLink(const Calibration& calibration, absl::string_view name,
             ClusterCost* cluster);

// Seconds per element of a codec's operations, all cores together.
struct CodecCost {
  std::string name = "none";
  bool compresses = false;
  bool on_gpu = false;  // encodes and decodes there; cores do the rest
  double encode_s = 0;
  double merge_s = 0;  // per contribution
  double reply_encode_s = 0;
  double decode_s = 0;
  double call_s = 0;
  double push_bits = 32;
  double reply_bits = 32;
};

// Gradients as they are, of `bits` per element (16 where training is in half
// precision).
CodecCost DenseCost(const ClusterCost& cluster, double bits = 32);

// `corner` -1 takes every speed at the low end of its spread, 0 as it is.
// FailedPrecondition when a speed that is needed is not known or the codec's
// sums do not reach `cluster.workers`.
absl::StatusOr<CodecCost> CostOf(const CodecFigures& figures,
                                 const ClusterCost& cluster, int corner = 0);

// What chunks wait for. A co-located server uses its worker's.
enum class Resource : uint8_t {
  kIntra,
  kGpu,
  kCore,
  kSend,
  kReceive,
  kServerReceive,
  kServerCore,
  kServerSend,
  kToHost,
  kToDevice,
};
inline constexpr size_t kNumResources = 10;

// One way station of a chunk: all `uses` run side by side, then
// `delay_s` without any.
struct Stage {
  struct Use {
    Resource resource = Resource::kCore;
    double fixed_s = 0;
    double per_elem_s = 0;
    double job_s = 0;      // per chunk that is no small job
    double job_bits = 32;  // per element, of the memory that is worked on
    double seconds(double elems) const {
      const bool is_small = elems * job_bits / 8 <= kSmallJobBytes;
      return fixed_s + per_elem_s * elems + (is_small ? 0 : job_s);
    }
  };
  std::vector<Use> uses = {};
  double delay_s = 0;
};

// Servers get equal parts of a tensor, none a smaller one while it has more.
inline constexpr size_t kMinPartElems = size_t{32} << 10;

// The way of a gradient. Chunks of one, and tensors, overlap wherever they use
// different resources; stages that share one add.
struct Pipeline {
  std::vector<Stage> stages = {};
  bool is_chunked = true;          // rings and the like run over a whole tensor
  int max_parts = 1;               // servers that a tensor lives on
  double bytes_sent_per_elem = 0;  // by one worker, on the network
};
Pipeline MakePipeline(Aggregation aggregation, const ClusterCost& cluster,
                      const CodecCost& codec);

// Into how many chunks `elems` elements are cut: one for each server that has a
// part, or as many as `chunk_elems` (0: no limit) makes if those are more. (A
// store cuts each part for itself, which can make up to one more of each.)
int64_t NumChunks(const Pipeline& pipeline, int64_t elems, int64_t chunk_elems);

// Seconds in which the pipeline has `elems` elements in use of each resource,
// and from the first byte to the last:
// T = sum_s t_s(m) + (k - 1) max_r t_r(m), k chunks of m elements.
std::array<double, kNumResources> Occupancy(const Pipeline& pipeline,
                                            int64_t elems, int64_t chunk_elems);
double PipelineSeconds(const Pipeline& pipeline, int64_t elems,
                       int64_t chunk_elems);

// The power of two between 2^16 and 2^22 elements that is best for a tensor.
int64_t BestChunkElems(const Pipeline& pipeline, int64_t elems);

// Several tensors in the order in which they become ready. Returns when the
// last one is back, in seconds, by the bottleneck of each resource.
struct TensorCost {
  const Pipeline* pipeline = nullptr;
  int64_t elems = 0;
  int64_t chunk_elems = 0;
  double ready_s = 0;
};
double FinishSeconds(std::span<const TensorCost> tensors);

// Link rate, bytes/s, below which a codec shortens a serial exchange:
// (k - c k') / (1 / encode + d / decode); 0: at no rate. k and k' are how often
// the gradient crosses a link without and with the codec, c the share of bytes
// that is left, d how often each element is decoded; rates in bytes/s of
// gradient.
double BreakEvenBytesPerS(double k, double k_compressed, double c,
                          double encode_bytes_per_s, double d,
                          double decode_bytes_per_s);

// The break-even rate of whole pipelines, in which codec, transport and link
// overlap: the rate at which `elems` elements take as long dense as encoded, to
// 0.1 %. Infinity where they take longer dense at any rate (then the transport
// keeps the cores busier than the codec would), 0 where at none. Only the ratio
// of the servers' rate to the workers' counts of the rates in `cluster`.
double BreakEvenBytesPerS(Aggregation dense_aggregation,
                          Aggregation codec_aggregation,
                          const ClusterCost& cluster, const CodecCost& codec,
                          int64_t elems);

}  // namespace telegrad
