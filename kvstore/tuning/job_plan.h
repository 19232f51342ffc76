#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/kvstore.h"
#include "topology/calibration.h"
#include "topology/machine.h"
#include "topology/plan.h"

// One plan for all workers of a job, made from what each sees of its machine.
namespace telegrad {

// What one member knows of the machine that it runs on.
struct MachineReport {
  std::string host = {};
  std::string boot_id = {};  // tells machines of one name apart; may be empty
  absl::StatusOr<Machine> machine = absl::NotFoundError("not looked at");
};

struct JobPlan {
  Plan plan = {};    // without a digest: there is none
  int machines = 0;  // with workers
  // What was missing: "nothing is known of the machine of worker/1 (b): ...".
  std::vector<std::string> notes = {};
};

// What a server says of its machine, for ServerOptions::about.
std::string AboutMachine(const MachineReport& mine);

// Tells the other workers of this machine (evidence, environment and addresses
// left out), plans for all machines, those of servers among them, and compares
// the plans. All workers call it after Init. `request.workers` is the number of
// machines with workers, whatever it was, and `request.servers` that of the
// store's machines with servers only. With a constraint on
// PlanRequest::aggregation it is what the servers do: fewer servers than
// machines count as machines of their own. Machines that nobody can describe
// are taken to be like the others; a plan that cannot be made is a note. Errors
// carry exit code 31 and name the members: plans that differ, with the first
// line that does; what is no machine. Other errors are the store's.
absl::StatusOr<JobPlan> AgreeOnPlan(KVStore& store, const MachineReport& mine,
                                    const Calibration& calibration,
                                    PlanRequest request);

}  // namespace telegrad
