#pragma once

#include "absl/status/status.h"
#include "python/telegrad.h"

namespace telegrad::c {

// Whether it is of a known type and size; with `has_data` of some memory.
absl::Status CheckTensor(const telegrad_tensor& tensor, bool has_data);
// Whether it has memory of the host's, aligned to its type; `what` works on it.
absl::Status CheckHostTensor(const telegrad_tensor& tensor, const char* what);

}  // namespace telegrad::c
