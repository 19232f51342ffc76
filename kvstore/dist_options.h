#pragma once

#include "kvstore/job/path/job_options.h"
#include "kvstore/options.h"

namespace telegrad {

// The options of a job and of a store on it, as programs have them.
struct DistOptions : JobOptions, StoreOptions {};

}  // namespace telegrad
