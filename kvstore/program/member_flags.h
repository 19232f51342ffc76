#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.h"
#include "kvstore/dist_options.h"
#include "kvstore/job/launch/placement.h"
#include "kvstore/program/program_metrics.h"

namespace CLI {
class App;
}

namespace telegrad {

// The flags of how data goes and who may listen, of every program that sends
// any; docs/user_guide.md.
struct PathFlags {
  PathFlags() { path.transport.name = "auto"; }

  PathOptions path;           // without the part that looks at the machine
  std::string link = "none";  // as written
  LinkSpec link_spec;
  std::string secret_file;
  bool insecure = false;        // beyond loopback without a secret
  std::string plan;             // file; empty: none
  std::string flight_recorder;  // folder; empty: none
  MetricsFlags metrics;
};

void AddPathFlags(CLI::App& app, PathFlags& flags);

// After parsing: reads the plan and what else texts name.
absl::Status FinishPathFlags(const CLI::App& app, PathFlags& flags);

// The job's; none without --secret-file.
absl::StatusOr<Secret> SecretOf(const PathFlags& flags,
                                const std::string& job_id);

// The flags of every program that takes part in a job beside these.
struct MemberFlags : PathFlags {
  int workers = 2;
  int servers = 1;
  int threads = 1;     // threads for codecs, per process
  std::string ledger;  // folder; empty: none
  std::string job_id;
  std::string scheduler;  // "host:port" of one started by hand
  double join_timeout_s = 60;
  double dead_timeout_s = 10;
  double operation_timeout_s = 300;
  bool workers_serve = false;  // beside servers of their own
  bool has_servers = false;    // --servers was given; FinishMemberFlags sets it
};

void AddMemberFlags(CLI::App& app, MemberFlags& flags);

// After parsing.
absl::Status FinishMemberFlags(const CLI::App& app, MemberFlags& flags);

// What a process is in the job of a launcher, as flags and placement say.
absl::StatusOr<Parts> PartsOf(const Placement& placement,
                              const MemberFlags& flags);

// Whether the data path that flags and a given plan describe can be there, on
// this machine at least. `look`: as in PathOptions.
absl::Status CheckMemberPath(const MemberFlags& flags,
                             std::function<MachineReport()> look);

ControlTiming TimingOf(const MemberFlags& flags);

// Options of a member's store or server, without address and rank.
absl::StatusOr<DistOptions> DistOptionsOf(const MemberFlags& flags,
                                          const std::string& job_id);

}  // namespace telegrad
