#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// Whether MakeTransport takes `name`: one of this build's, or "auto". NotFound
// names those that there are.
absl::Status CheckTransportName(absl::string_view name);

}  // namespace telegrad
