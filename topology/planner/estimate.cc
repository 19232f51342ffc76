#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "topology/path.h"
#include "topology/planner/exchange.h"

namespace telegrad {
namespace {

constexpr double kBytesPerGbit = 1e9 / 8;
constexpr double kAssumedGbps = 10;
constexpr double kGpuReduceElemsPerS = 50e9;  // assumed: 600 GB/s of memory

// The first whose cards are slowest; null: no machine's rate is known.
const MachinePlan* Slowest(const Plan& plan) {
  const MachinePlan* slowest = nullptr;
  for (const MachinePlan& machine : plan.machines) {
    if (machine.gbps > 0 &&
        (slowest == nullptr || machine.gbps < slowest->gbps)) {
      slowest = &machine;
    }
  }
  return slowest;
}

double LeastGbps(const Plan& plan) {
  const MachinePlan* slowest = Slowest(plan);
  return slowest == nullptr ? 0 : slowest->gbps;
}

double MostGbps(const Plan& plan) {
  double most = 0;
  for (const MachinePlan& machine : plan.machines) {
    most = std::max(most, machine.gbps);
  }
  return most;
}

void SetRate(const Calibration& calibration, const PlanRequest& request,
             Estimate* estimate, Plan* plan) {
  const LinkFigures* link = calibration.FindLink(Name(plan->network));
  ClusterCost& cluster = estimate->cluster;
  std::string source = "given";
  double gbps = request.link_gbps;
  estimate->link_known = true;
  if (gbps <= 0 && link != nullptr && link->send.value > 0) {
    const bool sends_less =
        link->receive.value <= 0 || link->send.value <= link->receive.value;
    const Figure& rate = sends_less ? link->send : link->receive;
    gbps = rate.value / kBytesPerGbit;
    source = Name(rate.confidence);
    estimate->link_spread = rate.spread;
    estimate->link_known = rate.is_grounded();
  } else if (gbps <= 0) {
    gbps = LeastGbps(*plan);
    source = MostGbps(*plan) > gbps
                 ? absl::StrCat("reported by the ports of ",
                                Slowest(*plan)->host, ", the slowest machine")
                 : "reported by the machines' ports";
  }
  if (gbps <= 0) {
    gbps = kAssumedGbps;
    source = "assumed: no port tells its rate (--link-gbps)";
    estimate->link_known = false;
  }
  cluster.bytes_per_s = gbps * kBytesPerGbit;
  SetLink(calibration, Name(plan->network), &cluster);
  plan->link_bytes_per_s = cluster.bytes_per_s;
  if (request.is_link_of_busy_servers && cluster.servers > 0) {
    cluster.server_bytes_per_s =
        cluster.bytes_per_s * cluster.workers / cluster.servers;
  }
  plan->decisions.push_back(
      {.what = Decision::Kind::kLink,
       .choice = absl::StrFormat("%g Gb/s per machine", gbps),
       .why = source});
}

// Says who is slow.
bool RatesDiffer(Plan* plan) {
  const double most = MostGbps(*plan);
  if (most <= 1.5 * LeastGbps(*plan)) return false;
  const MachinePlan* slowest = Slowest(*plan);
  plan->warnings.push_back(absl::StrFormat(
      "%s has cards of %g Gb/s, others of up to %g Gb/s: it sets the pace",
      slowest->host, slowest->gbps, most));
  return true;
}

// Sums over a machine's GPUs come first, except in a run: there each worker
// process has one GPU, and sums for itself.
void SetGpus(const Calibration& calibration, const PlanRequest& request,
             Estimate* estimate, Plan* plan) {
  if (!request.worker_hosts.empty()) return;
  size_t gpus = 0;
  for (const MachinePlan& machine : plan->machines) {
    const bool has_gpu = !machine.gpus.front().gpu.empty();
    gpus = std::max(gpus, has_gpu ? machine.gpus.size() : 0);
  }
  ClusterCost& cluster = estimate->cluster;
  if (gpus > 0) cluster.gpu_reduce_elems_per_s = kGpuReduceElemsPerS;
  if (gpus < 2) return;
  cluster.gpus_per_node = static_cast<int>(gpus);
  const LinkFigures* intra = calibration.FindLink("intra");
  cluster.intra_bytes_per_s = intra == nullptr ? 0 : intra->send.value;
  plan->is_hierarchical = true;
  const double per_gpu = cluster.bytes_per_s / static_cast<double>(gpus);
  plan->decisions.push_back(
      {.what = Decision::Kind::kHierarchy,
       .choice = absl::StrFormat("%d GPUs of a machine sum first", gpus),
       .why = absl::StrFormat(
           "at %g GB/s (%s); a GPU's part of the link is %.3g GB/s",
           cluster.intra_bytes_per_s / 1e9,
           intra == nullptr ? "not known" : Name(intra->send.confidence),
           per_gpu / 1e9)});
}

}  // namespace

Estimate MakeEstimate(const Calibration& calibration,
                      const PlanRequest& request, Plan* plan) {
  Estimate estimate;
  ClusterCost& cluster = estimate.cluster;
  cluster.workers = plan->workers;
  cluster.servers = plan->servers;
  SetCores(calibration, &cluster);
  estimate.reduce_spread = calibration.reduce.spread;
  SetRate(calibration, request, &estimate, plan);
  SetGpus(calibration, request, &estimate, plan);
  estimate.rates_differ = RatesDiffer(plan);
  estimate.backward_s = request.compute_s * 2 / 3;
  for (const double share : request.profile.ReadyShares()) {
    estimate.ready_s.push_back(share * estimate.backward_s);
  }
  return estimate;
}

}  // namespace telegrad
