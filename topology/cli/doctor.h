#pragma once

#include "topology/cli/command.h"

namespace telegrad::topo {

void AddDoctor(CLI::App& app, int& exit_code);

}  // namespace telegrad::topo
