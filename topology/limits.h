#pragma once

namespace telegrad {

// CPUs that this process can keep busy: those that it may run on, and no more
// than its control groups (a container, a job of a scheduler) give it time
// for; at least 1.
int UsableCpus();

}  // namespace telegrad
