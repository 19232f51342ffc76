#include "topology/simulate.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "topology/plan.h"
#include "topology/simulation/engine.h"

namespace telegrad {
namespace {

constexpr double kBytesPerGbit = 1e9 / 8;
constexpr int64_t kMaxChunks = 100'000;  // in a step
constexpr int kMaxRing = 8;
constexpr double kGpuReduceElemsPerS = 50e9;  // assumed: 600 GB/s of memory
constexpr const char* kResourceNames[] = {
    "intra",          "gpu",         "core",        "send",    "receive",
    "server receive", "server core", "server send", "to host", "to device"};

absl::Status CheckRange(const char* name, double value, double low,
                        double high) {
  if (value >= low && value <= high) return absl::OkStatus();  // not for NaN
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; expected ", low, " to ", high));
}

absl::Status Check(const Scenario& scenario) {
  RETURN_IF_ERROR(CheckRange("workers", scenario.workers, 1, 1e6));
  RETURN_IF_ERROR(CheckRange("servers", scenario.servers, 0, 1e6));
  RETURN_IF_ERROR(CheckRange("gpus-per-node", scenario.gpus_per_node, 1, 1024));
  RETURN_IF_ERROR(CheckRange("batch", scenario.batch, 1e-3, 1e9));
  RETURN_IF_ERROR(CheckRange("compute-ms", 1e3 * scenario.compute_s, 0, 1e9));
  RETURN_IF_ERROR(CheckRange("link-gbps", scenario.link_gbps, 1e-6, 1e6));
  RETURN_IF_ERROR(
      CheckRange("server-link-gbps", scenario.server_link_gbps, 0, 1e6));
  RETURN_IF_ERROR(
      CheckRange("intra-gbytes-per-s", scenario.intra_gbytes_per_s, 0, 1e6));
  RETURN_IF_ERROR(CheckRange("cores", scenario.cores, 0, 1e4));
  RETURN_IF_ERROR(CheckRange("element-bits", scenario.element_bits, 1, 64));
  RETURN_IF_ERROR(CheckRange("min-codec-elements",
                             static_cast<double>(scenario.min_codec_elems), 0,
                             1e15));
  RETURN_IF_ERROR(CheckRange(
      "chunk-elements", static_cast<double>(scenario.chunk_elems), 0, 1e15));
  RETURN_IF_ERROR(
      CheckRange("dollars-per-hour", scenario.dollars_per_hour, 0, 1e9));
  RETURN_IF_ERROR(CheckRange("epoch-samples", scenario.epoch_samples, 1, 1e15));
  if (scenario.profile.tensors.empty()) {
    return absl::InvalidArgumentError("a simulation needs a profile");
  }
  return absl::OkStatus();
}

// A link without figures would cost nothing: refused.
absl::Status TakeLink(const Scenario& scenario, const Calibration& calibration,
                      ClusterCost* cluster) {
  ASSIGN_OR_RETURN(const std::optional<NetworkKind> network,
                   ParseNetwork(scenario.transport));
  // TCP is the only link that any machine is known to have.
  const char* name = Name(network.value_or(NetworkKind::kTcp));
  if (calibration.FindLink(name) != nullptr) {
    SetLink(calibration, name, cluster);
    return absl::OkStatus();
  }
  std::vector<std::string> names;
  for (const LinkFigures& each : calibration.links) names.push_back(each.name);
  return absl::InvalidArgumentError(
      absl::StrCat("the calibration knows no link '", name, "'; it has ",
                   names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

absl::StatusOr<ClusterCost> MakeCluster(const Scenario& scenario,
                                        const Calibration& calibration) {
  ClusterCost cluster{
      .workers = scenario.workers,
      .servers = scenario.servers,
      .gpus_per_node = scenario.gpus_per_node,
      .bytes_per_s = scenario.link_gbps * kBytesPerGbit,
      .server_bytes_per_s = scenario.server_link_gbps * kBytesPerGbit};
  SetCores(calibration, &cluster);
  if (scenario.cores > 0) cluster.cores = scenario.cores;
  if (scenario.gpus_per_node > 1) {
    cluster.gpu_reduce_elems_per_s = kGpuReduceElemsPerS;
  }
  const LinkFigures* intra = calibration.FindLink("intra");
  cluster.intra_bytes_per_s = scenario.intra_gbytes_per_s > 0
                                  ? scenario.intra_gbytes_per_s * 1e9
                                  : (intra == nullptr ? 0 : intra->send.value);
  RETURN_IF_ERROR(TakeLink(scenario, calibration, &cluster));
  return cluster;
}

absl::StatusOr<CodecCost> FindCodec(const Scenario& scenario,
                                    const Calibration& calibration,
                                    const ClusterCost& cluster) {
  if (scenario.codec == "none") {
    return DenseCost(cluster, scenario.element_bits);
  }
  const CodecFigures* figures = calibration.FindCodec(scenario.codec);
  if (figures != nullptr) return CostOf(*figures, cluster);
  std::vector<std::string> names = {"none"};
  for (const CodecFigures& each : calibration.codecs) {
    names.push_back(each.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the calibration knows no codec '", scenario.codec,
                   "'; it has ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<Aggregation> FindAggregation(const Scenario& scenario) {
  if (scenario.aggregation == "auto") {
    if (scenario.servers > 0) return Aggregation::kDedicatedServers;
    if (scenario.workers == 1) return Aggregation::kLocal;
    return scenario.codec == "none" && scenario.workers <= kMaxRing
               ? Aggregation::kRing
               : Aggregation::kColocatedServers;
  }
  std::vector<std::string> names = {"auto"};
  for (const Aggregation each : kAggregations) {
    if (scenario.aggregation == Name(each)) return each;
    names.push_back(Name(each));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no aggregation '", scenario.aggregation, "'; there are ",
                   absl::StrJoin(names, ", ")));
}

// Servers that a tensor is shared among, so that a step has no more than
// kMaxChunks chunks.
int MostParts(const Scenario& scenario) {
  const size_t most = kMaxChunks / scenario.profile.tensors.size();
  return static_cast<int>(std::max<size_t>(1, most));
}

// Tensors, layers and chunks; `dense` and `coded` must outlive it.
Play MakePlay(const Scenario& scenario, const Pipeline& dense,
              const Pipeline& coded) {
  Play play{.forward_s = scenario.compute_s / 3,
            .backward_s = scenario.compute_s * 2 / 3,
            .overlap = scenario.overlap,
            .first_layers_first = scenario.first_layers_first};
  // What is ready at the same time is a layer; the first is ready last.
  const std::vector<double> shares = scenario.profile.ReadyShares();
  std::vector<double> ready = shares;
  std::sort(ready.begin(), ready.end(), std::greater<>());
  ready.erase(std::unique(ready.begin(), ready.end()), ready.end());
  for (size_t i = 0; i < ready.size(); ++i) {
    play.layers.push_back(ready[i] - (i + 1 < ready.size() ? ready[i + 1] : 0));
  }
  const int64_t least_chunk = scenario.profile.num_elems() / kMaxChunks + 1;
  for (size_t i = 0; i < shares.size(); ++i) {
    const int64_t elems = scenario.profile.tensors[i].num_elems;
    const Pipeline& pipeline = elems < scenario.min_codec_elems ? dense : coded;
    const int64_t chunk = scenario.chunk_elems > 0
                              ? scenario.chunk_elems
                              : BestChunkElems(pipeline, elems);
    const auto layer = std::lower_bound(ready.begin(), ready.end(), shares[i],
                                        std::greater<>());
    play.tensors.push_back(
        {.pipeline = &pipeline,
         .elems = elems,
         .chunk_elems = std::max(chunk, least_chunk),
         .layer = static_cast<size_t>(layer - ready.begin())});
  }
  return play;
}

}  // namespace

absl::StatusOr<Prediction> Simulate(const Scenario& scenario,
                                    const Calibration& calibration) {
  RETURN_IF_ERROR(Check(scenario));
  RETURN_IF_ERROR(CheckCalibration(calibration));
  ASSIGN_OR_RETURN(const ClusterCost cluster,
                   MakeCluster(scenario, calibration));
  ASSIGN_OR_RETURN(const CodecCost codec,
                   FindCodec(scenario, calibration, cluster));
  ASSIGN_OR_RETURN(const Aggregation aggregation, FindAggregation(scenario));
  Pipeline dense = MakePipeline(aggregation, cluster,
                                DenseCost(cluster, scenario.element_bits));
  Pipeline coded = MakePipeline(aggregation, cluster, codec);
  for (Pipeline* const pipeline : {&dense, &coded}) {
    pipeline->max_parts = std::min(pipeline->max_parts, MostParts(scenario));
  }
  Play play = MakePlay(scenario, dense, coded);
  const Played played = PlaySteps(play);
  Prediction prediction{.step_s = played.step_s};
  for (const Play::Tensor& each : play.tensors) {
    prediction.bytes_per_worker +=
        each.pipeline->bytes_sent_per_elem * static_cast<double>(each.elems);
  }
  play.forward_s = play.backward_s = 0;
  prediction.comm_s = PlaySteps(play).step_s;
  prediction.exposed_s = std::max(0.0, played.step_s - scenario.compute_s);
  const double step_s = std::max(played.step_s, 1e-12);
  prediction.samples_per_s =
      scenario.batch * scenario.gpus_per_node * scenario.workers / step_s;
  prediction.efficiency = scenario.compute_s / step_s;
  prediction.epoch_s = scenario.epoch_samples / prediction.samples_per_s;
  prediction.epoch_dollars = prediction.epoch_s / 3600 *
                             scenario.dollars_per_hour *
                             (scenario.workers + scenario.servers);
  const auto busiest =
      std::max_element(played.busy_s.begin(), played.busy_s.end());
  prediction.busiest =
      kResourceNames[static_cast<size_t>(busiest - played.busy_s.begin())];
  prediction.busiest_share = *busiest / step_s;
  return prediction;
}

}  // namespace telegrad
