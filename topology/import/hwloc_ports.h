#pragma once

#include "topology/import/pci.h"
#include "topology/import/xml.h"
#include "topology/machine.h"

namespace telegrad::topology_import {

// The value of <info name="..." value="..."/>; empty when it is not there.
absl::string_view Info(const XmlElement& object, absl::string_view name);

// Fills `nic` from an OpenFabrics object: name, ports with states, LIDs and
// GIDs, and what they speak.
void FillFromOpenFabrics(const XmlElement& object, const PciIds& ids, Nic& nic);

}  // namespace telegrad::topology_import
