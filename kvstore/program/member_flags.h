#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.h"
#include "kvstore/dist_options.h"
#include "kvstore/job/launch/placement.h"

namespace CLI {
class App;
}

namespace telegrad {

// The flags of every program that takes part in a job; docs/user_guide.md.
struct MemberFlags {
  int workers = 2;
  int servers = 1;
  int threads = 1;  // threads for codecs, per process
  std::string transport = "auto";
  std::string tls;
  std::string tcp_congestion = "auto";
  std::string connections = "1";  // to each peer; ParseConnections
  std::vector<std::string> rails;
  bool resend = false;  // what a network loses or corrupts
  std::string link = "none";
  std::string bind = "127.0.0.1";
  std::string secret_file;
  bool insecure = false;
  std::string job_id;
  std::string scheduler;  // "host:port" of one started by hand
  std::string plan;       // file; empty: none
  double join_timeout_s = 60;
  double dead_timeout_s = 10;
  double operation_timeout_s = 300;
  bool workers_serve = false;  // beside servers of their own
  bool has_servers = false;    // --servers was given
  LinkSpec link_spec;
  std::shared_ptr<const GivenPlan> given_plan;  // the content of `plan`
};

void AddMemberFlags(CLI::App& app, MemberFlags& flags);

// What a process is in the job of a launcher, as flags and placement say.
absl::StatusOr<Parts> PartsOf(const Placement& placement,
                              const MemberFlags& flags);

// After parsing: fills the last three fields.
absl::Status FinishMemberFlags(const CLI::App& app, MemberFlags& flags);

// Whether the data path that flags and a given plan describe can be there, on
// this machine at least. `look`: as in PathOptions.
absl::Status CheckMemberPath(const MemberFlags& flags,
                             std::function<MachineReport()> look);

ControlTiming TimingOf(const MemberFlags& flags);
TransportOptions TransportOptionsOf(const MemberFlags& flags);
// Without the part that looks at the machine.
PathOptions PathOptionsOf(const MemberFlags& flags);

// Options of a member's store or server, without address and rank.
absl::StatusOr<DistOptions> DistOptionsOf(const MemberFlags& flags,
                                          const std::string& job_id);

}  // namespace telegrad
