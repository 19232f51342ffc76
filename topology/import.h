#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "topology/machine.h"

namespace telegrad {

// The machine that a file describes, recognised by what it holds, not by its
// name: our JSON (machine_json.h), NCCL's topology XML, hwloc's XML of versions
// 1 and 2. `source` becomes the path. NotFound for a path that cannot be
// opened, InvalidArgument for anything else and for more than 16 MiB.
absl::StatusOr<Machine> MachineFromFile(const std::string& path);

// The same for a text; `source` stays empty.
absl::StatusOr<Machine> MachineFromText(absl::string_view text);

}  // namespace telegrad
