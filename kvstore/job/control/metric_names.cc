#include "kvstore/job/control/metric_names.h"

namespace telegrad {

void CollectJob(const Membership& membership, const std::string& job_id,
                size_t num_left, MetricsPage& page) {
  page.Add(metric::kPeers,
           static_cast<double>(membership.workers.size() - num_left),
           {{"kind", "worker"}});
  page.Add(metric::kPeers, static_cast<double>(membership.servers.size()),
           {{"kind", "server"}});
  page.Add(metric::kJobInfo, 1, {{"job_id", job_id}});
}

}  // namespace telegrad
