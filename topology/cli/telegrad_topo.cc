#include <CLI/CLI.hpp>
#include <vector>

#include "base/command_line.h"
#include "topology/cli/command.h"
#include "topology/cli/doctor.h"
#include "topology/cli/plan_command.h"
#include "topology/cli/show.h"
#include "topology/cli/simulate_command.h"

namespace telegrad::topo {
namespace {

std::vector<Subcommand> Subcommands() {
  return {
      {"show", "Shows a machine: devices, paths, abilities", &AddShow},
      {"doctor", "Says what is wrong with it, and the way out", &AddDoctor},
      {"plan", "Decides how a job exchanges gradients, and why",
       &AddPlanCommand},
      {"simulate", "Predicts steps without running any", &AddSimulateCommand}};
}

}  // namespace
}  // namespace telegrad::topo

int main(int argc, char** argv) {
  CLI::App app("Shows what a machine has, what is wrong with it, and plans.",
               "telegrad-topo");
  app.set_version_flag("--version", TELEGRAD_VERSION);
  int exit_code = 0;
  for (const telegrad::topo::Subcommand& each : telegrad::topo::Subcommands()) {
    each.add(*app.add_subcommand(each.name, each.help), exit_code);
  }
  return telegrad::RunSubcommand(app, argc, argv).value_or(exit_code);
}
