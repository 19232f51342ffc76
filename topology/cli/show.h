#pragma once

#include <string>

#include "topology/cli/command.h"
#include "topology/machine.h"

namespace telegrad::topo {

void AddShow(CLI::App& app, int& exit_code);

// A machine for people: its tree of devices, the matrices of paths, what it can
// do; with `why` the evidence of every fact.
std::string ShowText(const Machine& machine, bool why);

}  // namespace telegrad::topo
