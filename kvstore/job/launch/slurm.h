#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// The first host of a Slurm node list: "node[03-07,9],login1" -> "node03".
// InvalidArgument for what is none.
absl::StatusOr<std::string> FirstSlurmHost(absl::string_view node_list);

}  // namespace telegrad
