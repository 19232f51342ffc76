#pragma once

#include "absl/status/status.h"

// UCX and libfabric are opened, not linked, so that one binary runs with and
// without them: UCX when the program or library that calls it is loaded,
// libfabric when it is first asked for. Neither is closed again. Callable from
// any thread.
namespace telegrad::vendor {

// OK: its functions can be called, which is undefined before. Unavailable says
// what is missing and which package brings it.
absl::Status OpenUcx();
absl::Status OpenOfi();

}  // namespace telegrad::vendor
