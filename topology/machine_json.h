#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "topology/machine.h"

namespace telegrad {

// A machine as JSON, schema "1" (docs/topology_json.md). One text is both the
// dump that MachineFromJson reads back to an equal Machine and the view that
// people and scripts read; the view is derived, and reading ignores it:
// `gpu_nic` {GPU bus id: {NIC bus id, or name without one: class}}, `gpu_gpu`,
// `gdr`, `digest`, and in each of `nics` `transport`, `state`, `gbps` and
// `gid_index` (of the first active port, else of the first). indent < 0: one
// line. Bytes that are not UTF-8 become U+FFFD.
std::string ToJson(const Machine& machine, int indent = 2);

// Reads what ToJson writes. A member that is absent keeps its default; without
// `paths`, the paths are computed from positions and links. InvalidArgument,
// with the member's path, for a wrong type, word or range, an unknown member, a
// list of more than 4096 items, a text of more than 8 MiB or another schema.
absl::StatusOr<Machine> MachineFromJson(absl::string_view text);

// 32 hexadecimal digits that are equal for machines with the same counts,
// models, rates, fabrics and path classes, whatever their names, addresses and
// the order of their devices. Source: SHA-256 of a canonical text, cut.
std::string TopologyDigest(const Machine& machine);

}  // namespace telegrad
