#pragma once

#include "kvstore/collective/collective.h"
#include "kvstore/job/path/worker_group.h"

namespace telegrad {

// What a group of all workers of a job has: its path, ranks, hosts, the rate of
// its link and operation_timeout.
GroupOptions GroupOptionsOf(const WorkerGroup& workers);

}  // namespace telegrad
