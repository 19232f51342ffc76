#include "topology/cli/show.h"

#include <memory>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "topology/cli/load.h"
#include "topology/cli/output.h"
#include "topology/import.h"
#include "topology/machine_json.h"
#include "topology/picture.h"

namespace telegrad::topo {
namespace {

struct ShowFlags {
  std::string root = {};
  std::string dump = {};
  std::string svg = {};
  bool json = false;
  bool why = false;
  bool probe = false;
  bool hwloc = false;
};

absl::Status Show(const ShowFlags& flags) {
  ASSIGN_OR_RETURN(
      const Machine machine,
      flags.hwloc ? MachineFromHwloc() : LoadMachine(flags.root, flags.probe));
  if (!flags.dump.empty()) {
    RETURN_IF_ERROR(WriteFile(flags.dump, ToJson(machine) + "\n"));
  }
  if (!flags.svg.empty()) {
    RETURN_IF_ERROR(WriteFile(flags.svg, ToSvg(machine)));
  }
  return Print(flags.json ? ToJson(machine) + "\n"
                          : ShowText(machine, flags.why));
}

}  // namespace

void AddShow(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<ShowFlags>();
  CLI::Option* from = app.add_option(
      "--from,--root", flags->root,
      "Instead of this machine: a dump, NCCL's or hwloc's XML, or a "
      "recorded /sys (folder or tar archive)");
  app.add_flag("--json", flags->json, "As JSON (docs/topology_json.md)");
  app.add_option("--dump", flags->dump, "Write the JSON into this file too");
  app.add_option("--svg", flags->svg, "Draw the machine into this file too");
  CLI::Option* probe =
      app.add_flag("--probe", flags->probe, "Try what files alone cannot tell");
  app.add_flag("--hwloc", flags->hwloc,
               "This machine as libhwloc alone sees it")
      ->excludes(from)
      ->excludes(probe);
  app.add_flag("--why", flags->why, "With the evidence of every fact");
  app.callback(
      [flags, &exit_code] { exit_code = Finish("show", Show(*flags)); });
}

}  // namespace telegrad::topo
