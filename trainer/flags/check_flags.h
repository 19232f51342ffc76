#pragma once

#include "absl/status/status.h"
#include "trainer/flags/options.h"

namespace telegrad {

// Flags that would have no effect beside the others, or cannot go together.
// InvalidArgument names the flag and the way out.
absl::Status CheckFlags(const TrainOptions& options);

}  // namespace telegrad
