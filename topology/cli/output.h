#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace telegrad::topo {

// Writes `text` to standard output, or into the file `path`, and sees that it
// arrived. Unavailable names what cannot be written.
absl::Status Print(const std::string& text);
absl::Status WriteFile(const std::string& path, const std::string& text);

// The exit code of the command `name`: 0, or kUsage after a sentence on
// standard error. What was asked for cannot be read, written or done.
int Finish(absl::string_view name, const absl::Status& status);

}  // namespace telegrad::topo
