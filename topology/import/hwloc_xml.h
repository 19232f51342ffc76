#pragma once

#include "absl/status/statusor.h"
#include "topology/import/xml.h"
#include "topology/machine.h"

namespace telegrad::topology_import {

// The machine of an XML file of hwloc 1.x or 2.x (lstopo FILE.xml), without
// hwloc: the text shows all that is read. Above a device, a downstream and an
// upstream port make one switch; a port left over is the root port. The file
// has neither link layers nor rates: fabrics are inferred from PCI class, LID
// and GIDs. InvalidArgument for hwloc 3. Source: hwloc's doc/hwloc2.dtd,
// topology-linux.c (OpenFabrics) and topology-nvml.c (NVLinkBandwidth).
absl::StatusOr<Machine> MachineFromHwlocXml(const XmlElement& root);

}  // namespace telegrad::topology_import
