#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "topology/system_root.h"

namespace telegrad {

// The files of a (compressed) tar archive, by libarchive: at most 200000
// entries and 256 MiB, each file cut off after 1 MiB. Errors: NotFound,
// InvalidArgument (no tar archive, damaged), ResourceExhausted.
absl::StatusOr<std::unique_ptr<FileTree>> ReadArchive(const std::string& path);

}  // namespace telegrad
