#include "kvstore/group_options.h"

#include <map>
#include <string>

#include "kvstore/job/path/data_path.h"
#include "kvstore/job/path/job_options.h"

namespace telegrad {

GroupOptions GroupOptionsOf(const WorkerGroup& workers) {
  const DataPath& path = workers.data_path();
  GroupOptions options;
  options.transport = path.transport;
  options.rank = workers.rank();
  options.world_size = workers.num_workers();
  options.timeout = workers.options().operation_timeout;
  options.sums = path.plan.sums;
  if (path.link_bytes_per_s() > 0) {
    options.bytes_per_s = path.link_bytes_per_s();
  }
  options.latency_s += path.transport.link_latency_s;
  // An emulated link is between any two ranks.
  if (path.transport.link_bytes_per_s > 0) return options;
  const auto num_workers = static_cast<size_t>(options.world_size);
  if (path.plan.hosts.size() == num_workers) {
    options.hosts = path.plan.hosts;
    return options;
  }
  // Nobody has planned for these workers: by their hosts' names.
  std::map<std::string, int> numbers;
  for (const Member& worker : workers.membership().workers) {
    const auto next = static_cast<int>(numbers.size());
    options.hosts.push_back(
        numbers.try_emplace(worker.host, next).first->second);
  }
  return options;
}

}  // namespace telegrad
