#pragma once

#include <map>
#include <string>

#include "topology/import/xml.h"
#include "topology/machine.h"

namespace telegrad::topology_import {

// What a gp_index of the file stands for: a GPU of Machine::gpus, or another
// PCI device, which in a table of NVLinks can only be an NVSwitch.
struct GpObject {
  std::string name;
  int gpu = -1;
};
using GpObjects = std::map<std::string, GpObject>;

// Reads the NVLinkBandwidth distances (MB/s between each two of some objects)
// into the machine's links; a table that is not as long as it says is skipped
// with a note.
void AddNvlinks(const XmlElement& root, const GpObjects& objects,
                Machine& machine);

}  // namespace telegrad::topology_import
