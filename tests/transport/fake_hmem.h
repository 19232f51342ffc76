#pragma once

#include <rdma/fi_domain.h>

#include <atomic>
#include <cstddef>
#include <vector>

#include "base/mutex.h"

namespace telegrad::testing {

// libfabric as it would be with CUDA, in tests that link fake_hmem.cc: its
// providers offer FI_HMEM and demand that memory of devices is registered,
// which registers as the host's, for that is what it is. Asked for by contexts
// on several threads.
struct FakeHmem {
  std::atomic<bool> offers{false};
  std::atomic<int> error{0};  // of libfabric, to register; FI_ENOSYS: no CUDA
  std::atomic<size_t> num_asked{0};  // for FI_HMEM
  std::atomic<size_t> num_held{0};   // registrations of devices
  Mutex mutex;
  std::vector<fi_mr_attr> of_devices ABSL_GUARDED_BY(mutex);  // asked for
};
FakeHmem& GetFakeHmem();

}  // namespace telegrad::testing
