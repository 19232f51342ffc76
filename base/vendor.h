#pragma once

#include "absl/status/status.h"

// UCX and libfabric are opened when they are needed, so that one binary runs
// with and without them. Neither is closed again. Callable from any thread.
namespace telegrad::vendor {

// OK: its functions can be called, which is undefined before. Unavailable says
// what is missing and which package brings it.
absl::Status OpenUcx();
absl::Status OpenOfi();

}  // namespace telegrad::vendor
