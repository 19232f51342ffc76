#include <algorithm>
#include <bit>
#include <cmath>

#include "topology/cost_model.h"

namespace telegrad {
namespace {

using Use = Stage::Use;

// To encode, and to decode.
constexpr double kWorkersHandovers = 2;
constexpr double kDenseBits = 32;

// Builds the stages of one cluster and codec.
class Builder {
 public:
  Builder(const ClusterCost& cluster, const CodecCost& codec)
      : cluster_(cluster),
        codec_(codec),
        workers_(cluster.workers),
        others_((workers_ - 1) / workers_) {}

  Pipeline Make(Aggregation aggregation) {
    Intra();
    if (cluster_.workers > 1 || aggregation == Aggregation::kDedicatedServers) {
      switch (aggregation) {
        case Aggregation::kLocal:
          break;
        case Aggregation::kRing:
          Ring();
          break;
        case Aggregation::kRecursiveDoubling:
          RecursiveDoubling();
          break;
        case Aggregation::kHalvingDoubling:
          HalvingDoubling();
          break;
        case Aggregation::kTree:
          Tree();
          break;
        case Aggregation::kColocatedServers:
          Colocated();
          break;
        case Aggregation::kDedicatedServers:
          Dedicated();
          break;
        case Aggregation::kAllGather:
          AllGather();
          break;
      }
    }
    Intra();
    return std::move(pipeline_);
  }

 private:
  void Add(std::vector<Use> uses, double delay_s = 0) {
    pipeline_.stages.push_back({std::move(uses), delay_s});
  }

  // Half of an all-reduce between the GPUs of a machine.
  void Intra() {
    const double gpus = cluster_.gpus_per_node;
    if (gpus <= 1 || cluster_.intra_bytes_per_s <= 0) return;
    const double per_elem = (gpus - 1) / gpus * 4 / cluster_.intra_bytes_per_s;
    Add({{.resource = Resource::kIntra, .per_elem_s = per_elem}});
  }

  // To encode or decode, so many seconds an element.
  void AddCodec(double per_elem_s) {
    if (!codec_.compresses) return;
    Add({{.resource = codec_.on_gpu ? Resource::kGpu : Resource::kCore,
          .fixed_s = codec_.call_s,
          .per_elem_s = per_elem_s}});
  }
  // To add, or to encode sums again, which cores do. What a call takes on a GPU
  // says nothing of a core's, which is small.
  Use Merge(double per_elem_s, double calls = 1) const {
    return {.resource = Resource::kCore,
            .fixed_s = codec_.on_gpu ? 0 : codec_.call_s * calls,
            .per_elem_s = per_elem_s};
  }
  // A copy of `bits` of each element, where gradients lie on a GPU.
  void AddCopy(Resource direction, double bits) {
    const double rate = direction == Resource::kToHost
                            ? cluster_.to_host_bytes_per_s
                            : cluster_.to_device_bytes_per_s;
    if (rate <= 0) return;
    Add({Wire(direction, bits / 8, rate)}, cluster_.bus_latency_s);
  }

  // What the transport costs a core: messages and bytes, sent and received.
  Use Messages(Resource core, double messages, double bytes) const {
    return {.resource = core,
            .fixed_s = messages * cluster_.message_cpu_s / cluster_.cores,
            .per_elem_s = bytes * cluster_.cpu_s_per_byte / cluster_.cores};
  }
  // What frames to servers and back cost a core.
  Use Frames(Resource core, double frames, double bytes) const {
    const double cpu_s = cluster_.frame_cpu_s > 0 ? cluster_.frame_cpu_s
                                                  : cluster_.message_cpu_s;
    const double byte_s = cluster_.frame_cpu_s_per_byte > 0
                              ? cluster_.frame_cpu_s_per_byte
                              : cluster_.cpu_s_per_byte;
    return {.resource = core,
            .fixed_s = frames * cpu_s / cluster_.cores,
            .per_elem_s =
                bytes * (byte_s + cluster_.check_s_per_byte) / cluster_.cores};
  }
  double FrameLatency() const {
    return cluster_.frame_latency_s > 0 ? cluster_.frame_latency_s
                                        : cluster_.latency_s;
  }
  Use Wire(Resource direction, double bytes, double rate) const {
    return {.resource = direction, .per_elem_s = bytes / rate};
  }

  // `bytes` of each element go and as many come, for `work` of the cores.
  void AddExchange(double bytes, const Use& work, double delay_s) {
    Add({Wire(Resource::kSend, bytes, cluster_.bytes_per_s), work}, delay_s);
    pipeline_.bytes_sent_per_elem += bytes;
  }
  void AddRounds(double rounds, double bytes) {
    AddExchange(bytes, Messages(Resource::kCore, 2 * rounds, 2 * bytes),
                rounds * cluster_.latency_s);
  }

  void Ring() {
    pipeline_.is_chunked = false;
    AddCodec(codec_.encode_s);
    const double rounds = 2 * (workers_ - 1);
    AddRounds(rounds, 2 * others_ * codec_.push_bits / 8);
    AddReduction(others_);
    AddCodec(codec_.decode_s);
  }

  void RecursiveDoubling() {
    pipeline_.is_chunked = false;
    AddCodec(codec_.encode_s);
    const auto count = static_cast<unsigned>(cluster_.workers);
    // Machines beyond a power of two fold in before and out after.
    const double rounds =
        std::bit_width(count) - 1 + (std::has_single_bit(count) ? 0 : 2);
    AddRounds(rounds, rounds * codec_.push_bits / 8);
    AddReduction(rounds);
    AddCodec(codec_.decode_s);
  }

  void HalvingDoubling() {
    pipeline_.is_chunked = false;
    AddCodec(codec_.encode_s);
    const auto count = static_cast<unsigned>(cluster_.workers);
    const double power = std::bit_floor(count);
    const double folds = std::has_single_bit(count) ? 0 : 1;  // as above
    const double halves = (power - 1) / power;
    AddRounds(2 * (std::log2(power) + folds),
              2 * (halves + folds) * codec_.push_bits / 8);
    AddReduction(halves + folds);
    AddCodec(codec_.decode_s);
  }

  // An inner machine sends to its parent and to two children, of which it adds
  // what they have.
  void Tree() {
    pipeline_.is_chunked = false;
    AddCodec(codec_.encode_s);
    const double depth =
        std::bit_width(static_cast<unsigned>(cluster_.workers)) - 1;
    AddRounds(2 * depth, std::min(workers_ - 1, 3.0) * codec_.push_bits / 8);
    AddReduction(std::min(workers_ - 1, 2.0));
    AddCodec(codec_.decode_s);
  }

  void AddReduction(double share) {
    if (!codec_.compresses && cluster_.gpu_reduce_elems_per_s > 0) {
      Add({{.resource = Resource::kGpu,
            .per_elem_s = share / cluster_.gpu_reduce_elems_per_s}});
    } else {
      Add({Merge(share * codec_.merge_s)});
    }
  }

  void AllGather() {
    pipeline_.is_chunked = false;
    AddCodec(codec_.encode_s);
    AddRounds(workers_ - 1, (workers_ - 1) * codec_.push_bits / 8);
    Add({Merge(workers_ * codec_.merge_s, workers_)});
  }

  // A store encodes a push where the gradient is; one that is dense it looks
  // through for what is not finite, which takes about as long as a checksum.
  void Encode() {
    const bool is_first = codec_.on_gpu || !codec_.compresses;
    if (!is_first) AddCopy(Resource::kToHost, kDenseBits);
    AddCodec(codec_.encode_s);
    if (is_first) AddCopy(Resource::kToHost, codec_.push_bits);
    if (codec_.compresses) return;
    AddCoreBytes(codec_.push_bits / 8, cluster_.check_s_per_byte);
  }
  void Decode() {
    const bool is_last = codec_.on_gpu || !codec_.compresses;
    if (is_last) AddCopy(Resource::kToDevice, codec_.reply_bits);
    AddCodec(codec_.decode_s);
    if (!is_last) AddCopy(Resource::kToDevice, kDenseBits);
  }
  void AddCoreBytes(double bytes, double s_per_byte) {
    if (s_per_byte == 0) return;
    Add({{.resource = Resource::kCore,
          .per_elem_s = bytes * s_per_byte / cluster_.cores}});
  }

  // To all servers, or from them: `bits` of each element, of which those for
  // the server next door are copied in memory, by the receiver.
  void Scatter(double bits) {
    const double bytes = others_ * bits / 8;
    // A message's figure knows nothing of frames between neighbours.
    const double frames = cluster_.frame_cpu_s > 0 ? 2 : 2 * others_;
    AddExchange(bytes, Frames(Resource::kCore, frames, 2 * bytes),
                FrameLatency());
    AddCoreBytes(bits / 8 / workers_, cluster_.copy_s_per_byte);
  }

  // Hand-overs between threads of jobs that are not small. The first one, from
  // the caller to the thread that sends, and the last, back to it, are in what
  // a frame costs.
  void AddHandovers(Resource core, double count, double bits = 32) {
    if (cluster_.handover_s == 0) return;
    Add({{.resource = core,
          .job_s = count * cluster_.handover_s / cluster_.cores,
          .job_bits = bits}});
  }
  // A server has each contribution checked, and then their sum made.
  void AddServersHandovers(Resource core, double servers) {
    AddHandovers(core, 2 * workers_ / servers, codec_.push_bits);
    AddHandovers(core, 2 / servers);
  }

  // A chunk lives on one machine; as every machine has as many, each does
  // 1/W of the work for it.
  void Colocated() {
    pipeline_.max_parts = cluster_.workers;
    Encode();
    Scatter(codec_.push_bits);
    Add({Merge(codec_.merge_s + codec_.reply_encode_s / workers_,
               1 + 1 / workers_)});
    AddHandovers(Resource::kCore, kWorkersHandovers);
    AddServersHandovers(Resource::kCore, workers_);
    Scatter(codec_.reply_bits);
    Decode();
  }

  void Dedicated() {
    const double fan_in = workers_ / std::max(cluster_.servers, 1);
    const double server_rate = cluster_.server_bytes_per_s > 0
                                   ? cluster_.server_bytes_per_s
                                   : cluster_.bytes_per_s;
    const double push = codec_.push_bits / 8;
    const double reply = codec_.reply_bits / 8;
    pipeline_.max_parts = std::max(cluster_.servers, 1);
    Encode();
    Add({Wire(Resource::kSend, push, cluster_.bytes_per_s),
         Frames(Resource::kCore, 1, push),
         Wire(Resource::kServerReceive, fan_in * push, server_rate),
         Frames(Resource::kServerCore, fan_in, fan_in * push)},
        FrameLatency());
    AddHandovers(Resource::kCore, kWorkersHandovers);
    AddServersHandovers(Resource::kServerCore, std::max(cluster_.servers, 1));
    Add({{.resource = Resource::kServerCore,
          .fixed_s = Merge(0, fan_in).fixed_s,
          .per_elem_s =
              fan_in * codec_.merge_s +
              codec_.reply_encode_s / std::max(cluster_.servers, 1)}});
    Add({Wire(Resource::kServerSend, fan_in * reply, server_rate),
         Frames(Resource::kServerCore, fan_in, fan_in * reply),
         Wire(Resource::kReceive, reply, cluster_.bytes_per_s),
         Frames(Resource::kCore, 1, reply)},
        FrameLatency());
    Decode();
    pipeline_.bytes_sent_per_elem = push;
  }

  const ClusterCost& cluster_;
  const CodecCost& codec_;
  const double workers_;
  const double others_;  // (W - 1) / W
  Pipeline pipeline_;
};

}  // namespace

Pipeline MakePipeline(Aggregation aggregation, const ClusterCost& cluster,
                      const CodecCost& codec) {
  return Builder(cluster, codec).Make(aggregation);
}

int64_t NumChunks(const Pipeline& pipeline, int64_t elems,
                  int64_t chunk_elems) {
  if (!pipeline.is_chunked) return 1;
  constexpr auto kLeast = static_cast<int64_t>(kMinPartElems);
  const int64_t parts =
      std::clamp<int64_t>(elems / kLeast, 1, pipeline.max_parts);
  if (chunk_elems <= 0) return parts;
  return std::max(parts, (elems + chunk_elems - 1) / chunk_elems);
}

std::array<double, kNumResources> Occupancy(const Pipeline& pipeline,
                                            int64_t elems,
                                            int64_t chunk_elems) {
  std::array<double, kNumResources> seconds{};
  const auto chunks =
      static_cast<double>(NumChunks(pipeline, elems, chunk_elems));
  const double chunk = static_cast<double>(elems) / chunks;
  for (const Stage& stage : pipeline.stages) {
    for (const Use& use : stage.uses) {
      seconds[static_cast<size_t>(use.resource)] += chunks * use.seconds(chunk);
    }
  }
  return seconds;
}

double PipelineSeconds(const Pipeline& pipeline, int64_t elems,
                       int64_t chunk_elems) {
  const auto chunks =
      static_cast<double>(NumChunks(pipeline, elems, chunk_elems));
  const double chunk = static_cast<double>(elems) / chunks;
  double sum = 0;
  for (const Stage& stage : pipeline.stages) {
    double longest = 0;
    for (const Use& use : stage.uses) {
      longest = std::max(longest, use.seconds(chunk));
    }
    sum += longest + stage.delay_s;
  }
  const auto busy = Occupancy(pipeline, elems, chunk_elems);
  const double bottleneck = *std::max_element(busy.begin(), busy.end());
  return sum + bottleneck * (chunks - 1) / chunks;
}

int64_t BestChunkElems(const Pipeline& pipeline, int64_t elems) {
  constexpr int kMinLog = 16;
  constexpr int kMaxLog = 22;
  int64_t best = int64_t{1} << kMaxLog;
  double best_s = PipelineSeconds(pipeline, elems, best);
  for (int log = kMaxLog - 1; log >= kMinLog; --log) {
    const int64_t chunk = int64_t{1} << log;
    const double seconds = PipelineSeconds(pipeline, elems, chunk);
    if (seconds < best_s) {
      best = chunk;
      best_s = seconds;
    }
  }
  return best;
}

double FinishSeconds(std::span<const TensorCost> tensors) {
  std::array<double, kNumResources> busy_until{};
  double finish = 0;
  for (const TensorCost& tensor : tensors) {
    const auto busy =
        Occupancy(*tensor.pipeline, tensor.elems, tensor.chunk_elems);
    double last = 0;
    for (size_t r = 0; r < kNumResources; ++r) {
      if (busy[r] == 0) continue;
      busy_until[r] = std::max(busy_until[r], tensor.ready_s) + busy[r];
      last = std::max(last, busy_until[r]);
    }
    const double alone =
        PipelineSeconds(*tensor.pipeline, tensor.elems, tensor.chunk_elems);
    const double fill = alone - *std::max_element(busy.begin(), busy.end());
    finish = std::max({finish, tensor.ready_s + alone, last + fill});
  }
  return finish;
}

}  // namespace telegrad
