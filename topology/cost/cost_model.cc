#include "topology/cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

// The seconds per element of a speed, on all cores or all GPUs of a machine.
absl::Status Invert(const CodecFigures& codec, const char* name,
                    const Figure& speed, double units, int corner,
                    double* seconds) {
  if (speed.value <= 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        codec.name, " has no ", name, " speed: measure it for a calibration"));
  }
  *seconds = 1 / (speed.value * (1 + corner * speed.spread) * units);
  return absl::OkStatus();
}

}  // namespace

const char* Name(Aggregation aggregation) {
  switch (aggregation) {
    case Aggregation::kLocal:
      return "local";
    case Aggregation::kRing:
      return "ring";
    case Aggregation::kRecursiveDoubling:
      return "recursive-doubling";
    case Aggregation::kHalvingDoubling:
      return "halving-doubling";
    case Aggregation::kTree:
      return "tree";
    case Aggregation::kColocatedServers:
      return "co-located-servers";
    case Aggregation::kDedicatedServers:
      return "dedicated-servers";
    case Aggregation::kAllGather:
      return "all-gather";
  }
  return "unknown";
}

void SetCores(const Calibration& calibration, ClusterCost* cluster) {
  if (calibration.cores.value > 0) cluster->cores = calibration.cores.value;
  if (calibration.reduce.value > 0) {
    cluster->reduce_elems_per_s = calibration.reduce.value;
  }
  const auto per_byte = [](const Figure& rate) {
    return rate.value > 0 ? 1 / rate.value : 0;
  };
  cluster->check_s_per_byte = per_byte(calibration.check);
  cluster->copy_s_per_byte = per_byte(calibration.copy);
  cluster->handover_s = calibration.handover_s.value;
  const LinkFigures* bus = calibration.FindLink(kBusLink);
  if (bus == nullptr) return;
  cluster->to_host_bytes_per_s = bus->send.value;
  cluster->to_device_bytes_per_s = bus->receive.value;
  cluster->bus_latency_s = bus->latency_s.value;
}

void SetLink(const Calibration& calibration, absl::string_view name,
             ClusterCost* cluster) {
  const LinkFigures* link = calibration.FindLink(name);
  if (link == nullptr) return;
  cluster->latency_s = link->latency_s.value;
  cluster->message_cpu_s = link->message_cpu_s.value;
  cluster->cpu_s_per_byte = link->cpu_s_per_byte.value;
  cluster->frame_latency_s = link->frame_latency_s.value;
  cluster->frame_cpu_s = link->frame_cpu_s.value;
  cluster->frame_cpu_s_per_byte = link->frame_cpu_s_per_byte.value;
}

CodecCost DenseCost(const ClusterCost& cluster, double bits) {
  CodecCost cost;
  cost.merge_s = 1 / (cluster.reduce_elems_per_s * cluster.cores);
  cost.push_bits = bits;
  cost.reply_bits = bits;
  return cost;
}

absl::StatusOr<CodecCost> CostOf(const CodecFigures& figures,
                                 const ClusterCost& cluster, int corner) {
  CodecCost cost{
      .name = figures.name,
      .compresses = true,
      .on_gpu = figures.on_gpu,
      .call_s = figures.call_s.value * (1 - corner * figures.call_s.spread),
      .push_bits = figures.push_bits};
  for (const BitsForWorkers& each : figures.reply_bits) {
    cost.reply_bits = each.bits;
    if (each.max_workers >= cluster.workers) break;
  }
  if (figures.reply_bits.empty() ||
      figures.reply_bits.back().max_workers < cluster.workers) {
    return absl::FailedPreconditionError(
        absl::StrCat(figures.name, " has no width for replies to ",
                     cluster.workers, " workers"));
  }
  const double units = figures.on_gpu ? cluster.gpus_per_node : cluster.cores;
  RETURN_IF_ERROR(
      Invert(figures, "encode", figures.encode, units, corner, &cost.encode_s));
  RETURN_IF_ERROR(
      Invert(figures, "decode", figures.decode, units, corner, &cost.decode_s));
  const bool adds_codes = figures.is_summable && figures.reply != Reply::kDense;
  RETURN_IF_ERROR(Invert(figures, adds_codes ? "sum" : "decode_add",
                         adds_codes ? figures.sum : figures.decode_add,
                         cluster.cores, corner, &cost.merge_s));
  if (figures.reply == Reply::kReencode) {
    const Figure& speed =
        figures.reply_encode.value > 0 ? figures.reply_encode : figures.encode;
    RETURN_IF_ERROR(Invert(figures, "reply_encode", speed, cluster.cores,
                           corner, &cost.reply_encode_s));
  }
  return cost;
}

double BreakEvenBytesPerS(double k, double k_compressed, double c,
                          double encode_bytes_per_s, double d,
                          double decode_bytes_per_s) {
  return std::max(0.0, (k - c * k_compressed) /
                           (1 / encode_bytes_per_s + d / decode_bytes_per_s));
}

double BreakEvenBytesPerS(Aggregation dense_aggregation,
                          Aggregation codec_aggregation,
                          const ClusterCost& cluster, const CodecCost& codec,
                          int64_t elems) {
  const double servers_share = cluster.server_bytes_per_s / cluster.bytes_per_s;
  const auto pays = [&](double bytes_per_s) {
    ClusterCost at = cluster;
    at.bytes_per_s = bytes_per_s;
    at.server_bytes_per_s = servers_share * bytes_per_s;
    const Pipeline raw = MakePipeline(dense_aggregation, at, DenseCost(at));
    const Pipeline small = MakePipeline(codec_aggregation, at, codec);
    constexpr int64_t kChunk = int64_t{1} << 20;
    return PipelineSeconds(small, elems, kChunk) <
           PipelineSeconds(raw, elems, kChunk);
  };
  double low = 1e3;
  double high = 1e15;
  if (!pays(low)) return 0;
  if (pays(high)) return std::numeric_limits<double>::infinity();
  while (high > low * 1.001) {
    const double middle = std::sqrt(low * high);
    (pays(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace telegrad
