#pragma once

#include <atomic>
#include <vector>

#include "kvstore/collective/nccl/library.h"

// NCCL and CUDA of which ranks are threads and devices' memory is the host's:
// groups run without a GPU. All collectives wait for every rank, and are done
// by the last one to come.
namespace telegrad::testing {

struct FakeFaults {
  std::atomic<int> num_devices{8};
  std::atomic<int> version{22809};
  std::atomic<bool> never_connects{false};
  std::atomic<bool> never_finishes{false};
  std::atomic<bool> has_only_host_memory{false};
  // Of one rank; -1: of none.
  std::atomic<int> refuses_calls{-1};
  std::atomic<int> loses_a_peer{-1};
  // What was called.
  std::atomic<int> num_aborted{0};
  std::atomic<int> num_destroyed{0};
  std::atomic<int> num_streams{0};  // that are open
};

// As it is after a reset: no faults, nothing counted.
FakeFaults& Faults();
void ResetFaults();

collective::Library FakeNccl();

}  // namespace telegrad::testing
