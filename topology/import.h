#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "topology/machine.h"
#include "topology/options.h"

namespace telegrad {

// The machine that a file or folder describes, recognised by what it holds, not
// by its name: our JSON (machine_json.h), NCCL's topology XML, hwloc's XML of
// versions 1 and 2, a recorded /sys (system_root.h; a folder or an archive,
// "ARCHIVE!FOLDER" for one in it). ApplyOverrides for `options`. `source`
// becomes the path. NotFound for a path that cannot be opened, InvalidArgument
// for anything else and for a text of more than 16 MiB.
absl::StatusOr<Machine> MachineFromFile(const std::string& path,
                                        const TopologyOptions& options = {});

// Reads a machine from a text of JSON or XML; `source` stays empty.
absl::StatusOr<Machine> MachineFromText(absl::string_view text);

// This machine as libhwloc sees it, in a build with it, and nothing else; else
// Unimplemented. Unavailable: libhwloc fails.
absl::StatusOr<Machine> MachineFromHwloc();

}  // namespace telegrad
