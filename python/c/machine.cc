#include "base/status_macros.h"
#include "python/c/status.h"
#include "topology/detect.h"
#include "topology/doctor.h"
#include "topology/machine_json.h"
#include "topology/options.h"

using telegrad::c::Give;
using telegrad::c::GiveText;

namespace {

absl::StatusOr<telegrad::Machine> OwnMachine() {
  ASSIGN_OR_RETURN(const telegrad::TopologyOptions options,
                   telegrad::TopologyOptionsFromEnvironment());
  return telegrad::DetectMachine(telegrad::SysRoot::Live(), options);
}

}  // namespace

extern "C" {

int32_t telegrad_topology(char* text, uint64_t text_bytes, uint64_t* needed,
                          telegrad_status* status) {
  const absl::StatusOr<telegrad::Machine> machine = OwnMachine();
  if (!machine.ok()) return Give(machine.status(), status);
  return GiveText(telegrad::ToJson(*machine), text, text_bytes, needed, status);
}

int32_t telegrad_doctor(char* text, uint64_t text_bytes, uint64_t* needed,
                        telegrad_status* status) {
  const absl::StatusOr<telegrad::Machine> machine = OwnMachine();
  if (!machine.ok()) return Give(machine.status(), status);
  return GiveText(telegrad::ToJson(telegrad::Examine(*machine, {})), text,
                  text_bytes, needed, status);
}

}  // extern "C"
