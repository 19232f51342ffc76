#pragma once

#include "absl/status/status.h"
#include "python/telegrad.h"

namespace telegrad::c {

// Whether it is of a known type and size; with `has_data` of some memory.
absl::Status CheckTensor(const telegrad_tensor& tensor, bool has_data);

}  // namespace telegrad::c
