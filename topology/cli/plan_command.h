#pragma once

#include "topology/cli/command.h"

namespace telegrad::topo {

// telegrad-topo plan: decides how a job exchanges gradients, and says why.
void AddPlanCommand(CLI::App& app, int& exit_code);

}  // namespace telegrad::topo
