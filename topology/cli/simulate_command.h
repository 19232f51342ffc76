#pragma once

#include "topology/cli/command.h"

namespace telegrad::topo {

// telegrad-topo simulate: predicts steps without running any.
void AddSimulateCommand(CLI::App& app, int& exit_code);

}  // namespace telegrad::topo
