#pragma once

#include <string>

#include "topology/machine.h"

namespace telegrad {

// A picture of a machine as SVG: packages, host bridges and PCIe switches as
// nested boxes, GPUs and NICs in them, NVLinks as lines, and the matrices of
// paths coloured by class. Complete in itself: no script, no file besides.
std::string ToSvg(const Machine& machine);

}  // namespace telegrad
