#include "topology/planner/sums.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace telegrad {
namespace {

constexpr double kBytesPerGbitOfSums = 1e9 / 8;

void ChooseSums(double link_bytes_per_s, RankNetwork network, Plan* plan) {
  plan->sums.clear();
  if (network.ranks < 2) return;
  const bool is_known = link_bytes_per_s > 0;
  if (is_known) network.bytes_per_s = link_bytes_per_s;
  plan->sums = SumRanges(network);
  Decision decision{.what = Decision::Kind::kSums,
                    .choice = ToText(plan->sums)};
  size_t most_gathered = 0;
  for (size_t bytes = 4; GathersByBruck(bytes, network); bytes *= 2) {
    most_gathered = bytes;
  }
  if (most_gathered > 0) {
    absl::StrAppend(&decision.choice, "; allgathers by bruck to ",
                    most_gathered, " bytes of each");
  }
  decision.why = absl::StrCat(network.ranks, " workers on ", network.hosts,
                              network.hosts == 1 ? " host" : " hosts");
  if (network.hosts > 1) {
    absl::StrAppendFormat(
        &decision.why, ", %.3g us and %.3g Gb/s%s between them",
        1e6 * network.latency_s, network.bytes_per_s / kBytesPerGbitOfSums,
        is_known ? "" : " (assumed)");
  }
  plan->decisions.push_back(std::move(decision));
}

}  // namespace

std::vector<int> HostsOf(const PlanRequest& request) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  if (request.is_link_of_each_worker) return hosts;
  for (const std::string& host : request.worker_hosts) {
    const int next = static_cast<int>(numbers.size());
    hosts.push_back(numbers.try_emplace(host, next).first->second);
  }
  return hosts;
}

void ChooseSumsOfWorkers(const PlanRequest& request, Plan* plan) {
  plan->hosts = HostsOf(request);
  const int workers = static_cast<int>(request.worker_hosts.size());
  const double link =
      request.link_gbps > 0 ? kBytesPerGbitOfSums * request.link_gbps
      : plan->network == NetworkKind::kLocal ? 0
                                             : plan->link_bytes_per_s;
  RankNetwork network = NetworkOf(workers, plan->hosts);
  network.latency_s += request.link_latency_s;
  ChooseSums(link, network, plan);
}

void ChooseSumsOfMachines(const PlanRequest& request,
                          const ClusterCost& cluster, Plan* plan) {
  const RankNetwork network{.ranks = plan->workers * cluster.gpus_per_node,
                            .hosts = plan->workers,
                            .most = cluster.gpus_per_node};
  const bool is_known = request.link_gbps > 0 || plan->link_bytes_per_s > 0;
  ChooseSums(is_known ? cluster.bytes_per_s : 0, network, plan);
}

}  // namespace telegrad
