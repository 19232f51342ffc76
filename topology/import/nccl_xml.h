#pragma once

#include "absl/status/statusor.h"
#include "topology/import/xml.h"
#include "topology/machine.h"

namespace telegrad::topology_import {

// The machine of NCCL's topology XML, version 1 (NCCL_TOPO_FILE and
// NCCL_TOPO_DUMP_FILE). Each pci element above a device is a switch; devices of
// one cpu element share a host bridge. The file names neither link layers nor
// states: fabrics are inferred. Source: NCCL src/graph/{xml,topo}.cc.
absl::StatusOr<Machine> MachineFromNcclXml(const XmlElement& root);

}  // namespace telegrad::topology_import
