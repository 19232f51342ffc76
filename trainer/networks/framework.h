#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/networks/network.h"

namespace telegrad {

// What computes networks. It is a library of its own, libtelegrad-networks.so:
// libtorch takes half a second to load, which a wrong flag, a server and a
// gradient profile need not wait for.
struct Framework {
  const char* telegrad;  // the version of the program that it belongs to
  // Fixes the number of threads and makes it deterministic. `allows_tf32`: GPUs
  // may round factors to TF32. Call before make_network. ResourceExhausted
  // where the limit of address space leaves the BLAS no room.
  absl::Status (*configure)(int num_threads, bool allows_tf32);
  // NotFound lists the networks; InvalidArgument when the input does not fit.
  absl::StatusOr<std::unique_ptr<Network>> (*make_network)(
      const NetworkSpec& spec);
  absl::StatusOr<int> (*load_gpus)();  // LoadGpus of trainer/networks/gpus.h
  std::string (*version)();            // libtorch's, "2.11.0"
  std::string (*blas)();  // "OpenBLAS, SkylakeX"; "" where it does not tell
};

// Sets variables of the environment, which OpenBLAS reads when it is loaded:
// call while there is one thread.
void ChooseBlasKernels();

// Opens it, the first time: before processes are forked, which then have it.
// FailedPrecondition names what the loader misses, or the other version.
absl::StatusOr<const Framework*> LoadFramework();

// Null as long as nobody has loaded it.
const Framework* LoadedFramework();

}  // namespace telegrad
