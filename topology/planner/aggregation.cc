#include "topology/planner/aggregation.h"

#include "absl/strings/str_format.h"

namespace telegrad {
namespace {

constexpr double kSmallStepBytes = 256e3;
constexpr int kManyMachines = 8;

}  // namespace

Aggregation DenseAggregation(const Estimate& estimate, double step_bytes,
                             std::string* why) {
  const ClusterCost& cluster = estimate.cluster;
  if (cluster.servers > 0) {
    const double share = static_cast<double>(cluster.servers) / cluster.workers;
    *why = absl::StrFormat("%d servers have %g of the workers' bandwidth",
                           cluster.servers, share);
    return Aggregation::kDedicatedServers;
  }
  if (cluster.workers == 1) {
    *why = "one machine";
    return Aggregation::kLocal;
  }
  if (estimate.rates_differ) {
    *why =
        "the machines' rates differ by more than 1.5; a ring runs at the "
        "slowest";
    return Aggregation::kColocatedServers;
  }
  if (cluster.workers > kManyMachines && step_bytes < kSmallStepBytes) {
    *why = absl::StrFormat("%d machines and %.0f kB: latency counts",
                           cluster.workers, step_bytes / 1e3);
    return Aggregation::kRecursiveDoubling;
  }
  if (cluster.workers > kManyMachines) {
    *why = absl::StrFormat(
        "%d machines: the bytes of a ring, in 2 steps instead of %d",
        cluster.workers, 2 * (cluster.workers - 1));
    return Aggregation::kColocatedServers;
  }
  *why = absl::StrFormat("%d alike machines: fewest bytes and memory",
                         cluster.workers);
  return Aggregation::kRing;
}

Aggregation CodecAggregation(Aggregation dense, const CodecFigures& codec,
                             const CodecCost& cost) {
  const bool is_linear = codec.is_summable && codec.reply != Reply::kDense &&
                         cost.reply_bits == cost.push_bits &&
                         codec.reply_bits.size() == 1 && cost.push_bits >= 16;
  if (is_linear || dense == Aggregation::kDedicatedServers ||
      dense == Aggregation::kLocal) {
    return dense;
  }
  return Aggregation::kColocatedServers;
}

}  // namespace telegrad
