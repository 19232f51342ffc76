#include "kvstore/job/launch/placement.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/job/launch/host_list.h"
#include "kvstore/job/launch/slurm.h"

namespace telegrad {
namespace {

using Found = absl::StatusOr<std::optional<Placement>>;

constexpr int kMaxWorld = 65536;  // ranks are u16 in frame headers
constexpr int kSlurmFirstPort = 20000;
constexpr int kSlurmPorts = 20000;
constexpr int kSeveralHosts = 2;

// The launcher's variables; an empty one counts as not set.
class Environment {
 public:
  explicit Environment(const GetEnv& getenv) : getenv_(getenv) {}

  std::string Text(const char* name) const {
    const char* value = getenv_(name);
    return value == nullptr ? "" : value;
  }
  bool Has(const char* name) const { return !Text(name).empty(); }
  const GetEnv& getenv() const { return getenv_; }

  absl::StatusOr<std::string> Needed(const char* name) const {
    std::string text = Text(name);
    if (text.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is not set"));
    }
    return text;
  }

  absl::StatusOr<int> Integer(const char* name, int low, int high) const {
    ASSIGN_OR_RETURN(const std::string text, Needed(name));
    int value = 0;
    if (!absl::SimpleAtoi(text, &value) || value < low || value > high) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, "=", text, " is not a number in ", low, "..", high));
    }
    return value;
  }
  absl::StatusOr<int> IntegerOr(const char* name, int otherwise, int low,
                                int high) const {
    if (!Has(name)) return otherwise;
    return Integer(name, low, high);
  }

  std::string JobId(const char* name) const {
    const std::string text = Text(name);
    return text.empty() ? "local" : text.substr(0, 255);
  }

  // Fills rank, world_size and local_rank.
  absl::Status ReadRank(const char* rank, const char* size,
                        const char* local_rank, Placement* to) const {
    ASSIGN_OR_RETURN(to->world_size, Integer(size, 1, kMaxWorld));
    ASSIGN_OR_RETURN(to->rank, Integer(rank, 0, kMaxWorld - 1));
    ASSIGN_OR_RETURN(to->local_rank,
                     IntegerOr(local_rank, 0, 0, kMaxWorld - 1));
    if (to->rank < to->world_size) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        rank, "=", to->rank, " is not below ", size, "=", to->world_size));
  }

 private:
  const GetEnv& getenv_;
};

absl::StatusOr<Role> DmlcRole(const Environment& env) {
  const std::string role = env.Text("DMLC_ROLE");
  if (role == "worker") return Role::kWorker;
  if (role == "server") return Role::kServer;
  if (role == "scheduler") return Role::kScheduler;
  return absl::InvalidArgumentError(absl::StrCat(
      "DMLC_ROLE=", role, " is none of worker, server, scheduler"));
}

Found DetectDmlc(const Environment& env) {
  if (!env.Has("DMLC_ROLE")) return std::nullopt;
  Placement placement;
  placement.launcher = "dmlc";
  ASSIGN_OR_RETURN(placement.role, DmlcRole(env));
  ASSIGN_OR_RETURN(placement.num_workers,
                   env.Integer("DMLC_NUM_WORKER", 1, kMaxWorld));
  ASSIGN_OR_RETURN(placement.num_servers,
                   env.Integer("DMLC_NUM_SERVER", 0, kMaxWorld));
  ASSIGN_OR_RETURN(placement.scheduler_host, env.Needed("DMLC_PS_ROOT_URI"));
  ASSIGN_OR_RETURN(placement.scheduler_port,
                   env.Integer("DMLC_PS_ROOT_PORT", 1, 65535));
  const int size = *placement.role == Role::kServer ? placement.num_servers
                                                    : placement.num_workers;
  const bool is_worker = *placement.role == Role::kWorker;
  const char* variable =
      is_worker && env.Has("DMLC_WORKER_ID") ? "DMLC_WORKER_ID" : "DMLC_RANK";
  if (*placement.role != Role::kScheduler) {
    ASSIGN_OR_RETURN(placement.rank, env.IntegerOr(variable, -1, -1, size - 1));
  }
  return placement;
}

Found DetectTorchrun(const Environment& env) {
  // RANK alone is too common a name to mean a launcher.
  if (!env.Has("RANK") || !env.Has("WORLD_SIZE")) return std::nullopt;
  Placement placement;
  placement.launcher = "torchrun";
  RETURN_IF_ERROR(env.ReadRank("RANK", "WORLD_SIZE", "LOCAL_RANK", &placement));
  ASSIGN_OR_RETURN(placement.scheduler_host, env.Needed("MASTER_ADDR"));
  ASSIGN_OR_RETURN(placement.scheduler_port,
                   env.Integer("MASTER_PORT", 1, 65534));
  // torchrun's own store listens on MASTER_PORT then.
  if (env.Text("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    ++placement.scheduler_port;
  }
  placement.job_id = env.JobId("TORCHELASTIC_RUN_ID");
  if (env.Has("LOCAL_WORLD_SIZE") &&
      env.Text("LOCAL_WORLD_SIZE") == env.Text("WORLD_SIZE")) {
    placement.num_hosts = 1;
  }
  return placement;
}

Found DetectOpenMpi(const Environment& env) {
  if (!env.Has("OMPI_COMM_WORLD_RANK")) return std::nullopt;
  Placement placement;
  placement.launcher = "openmpi";
  RETURN_IF_ERROR(env.ReadRank("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                               "OMPI_COMM_WORLD_LOCAL_RANK", &placement));
  placement.job_id = env.JobId("PMIX_NAMESPACE");
  if (env.Has("OMPI_COMM_WORLD_LOCAL_SIZE")) {
    ASSIGN_OR_RETURN(const int here,
                     env.Integer("OMPI_COMM_WORLD_LOCAL_SIZE", 1, kMaxWorld));
    placement.num_hosts = here == placement.world_size ? 1 : kSeveralHosts;
  }
  return placement;
}

const char* FirstSet(const Environment& env, const char* first,
                     const char* second) {
  return env.Has(first) ? first : second;
}

Found DetectSlurm(const Environment& env) {
  // An sbatch shell has SLURM_PROCID=0, too, but is no rank of a step.
  if (!env.Has("SLURM_PROCID") || !env.Has("SLURM_STEP_ID")) {
    return std::nullopt;
  }
  const char* size = FirstSet(env, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS");
  if (!env.Has(size)) return std::nullopt;
  ASSIGN_OR_RETURN(const int world, env.Integer(size, 1, kMaxWorld));
  if (world == 1) return std::nullopt;
  Placement placement;
  placement.launcher = "slurm";
  RETURN_IF_ERROR(
      env.ReadRank("SLURM_PROCID", size, "SLURM_LOCALID", &placement));
  placement.job_id = env.JobId("SLURM_JOB_ID");
  const char* hosts = FirstSet(env, "SLURM_STEP_NUM_NODES", "SLURM_NNODES");
  ASSIGN_OR_RETURN(placement.num_hosts, env.IntegerOr(hosts, 0, 1, kMaxWorld));
  if (env.Has("PMIX_RANK")) return placement;  // the address is exchanged
  const char* nodes =
      FirstSet(env, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
  ASSIGN_OR_RETURN(const std::string list, env.Needed(nodes));
  const absl::StatusOr<std::string> host = FirstSlurmHost(list);
  if (!host.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(nodes, ": ", host.status().message()));
  }
  if (placement.num_hosts != 1) placement.scheduler_host = *host;
  ASSIGN_OR_RETURN(const int job,
                   env.Integer("SLURM_JOB_ID", 0, 2'147'483'647));
  placement.scheduler_port = kSlurmFirstPort + job % kSlurmPorts;
  return placement;
}

// Launchers that give a rank and a size, but no address. Empty: has none.
struct RankVariables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* num_hosts = "";
  // Whether rank 0 runs on the first host that a batch system tells.
  bool is_first_on_first_host = false;
};
constexpr RankVariables kRankVariables[] = {
    {"mvapich", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_LOCAL_RANK", "", true},
    {"mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "", true},
    {"flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID",
     "FLUX_JOB_NNODES"},
    {"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE",
     "JSM_NAMESPACE_LOCAL_RANK"},
    {"skypilot", "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES", "",
     "SKYPILOT_NUM_NODES", true},
    // An Indexed Job, whose size Kubernetes itself does not tell.
    {"kubernetes", "JOB_COMPLETION_INDEX", "WORLD_SIZE", "LOCAL_RANK"},
};

absl::Status LacksAddress(const RankVariables& its, const Environment& env) {
  return absl::InvalidArgumentError(absl::StrCat(
      its.rank, "=", env.Text(its.rank), " of ", its.size, "=",
      env.Text(its.size),
      " is a rank of a job whose launcher gives no address: give all ranks "
      "MASTER_ADDR and MASTER_PORT, rank 0's host and a free port of it (to "
      "run alone, unset ",
      its.size, ")"));
}

// What the launcher says, else the batch system around it.
absl::Status FindMeeting(const RankVariables& its, const Environment& env,
                         Placement* to) {
  if (env.Has("MASTER_ADDR") && env.Has("MASTER_PORT")) {
    to->scheduler_host = env.Text("MASTER_ADDR");
    ASSIGN_OR_RETURN(to->scheduler_port, env.Integer("MASTER_PORT", 1, 65535));
    return absl::OkStatus();
  }
  if (!its.is_first_on_first_host) return LacksAddress(its, env);
  ASSIGN_OR_RETURN(const auto meeting, MeetingOfBatchSystem(env.getenv()));
  if (!meeting.has_value()) return LacksAddress(its, env);
  to->scheduler_host = meeting->host;
  to->scheduler_port = meeting->port;
  return absl::OkStatus();
}

Found DetectRanks(const Environment& env) {
  for (const RankVariables& its : kRankVariables) {
    // A job of one is none; srun's own ranks are DetectSlurm's.
    const std::string size = env.Text(its.size);
    const bool is_sruns = env.Text(FirstSet(env, "SLURM_STEP_NUM_TASKS",
                                            "SLURM_NTASKS")) == size &&
                          env.Text("SLURM_PROCID") == env.Text(its.rank);
    if (size.empty() || size == "1" || is_sruns || !env.Has(its.rank)) continue;
    Placement placement;
    placement.launcher = its.launcher;
    RETURN_IF_ERROR(
        env.ReadRank(its.rank, its.size, its.local_rank, &placement));
    ASSIGN_OR_RETURN(placement.num_hosts,
                     env.IntegerOr(its.num_hosts, 0, 1, kMaxWorld));
    RETURN_IF_ERROR(FindMeeting(its, env, &placement));
    return placement;
  }
  return std::nullopt;
}

// PMIX_RANK says a rank but never of how many.
Found DetectPmix(const Environment& env) {
  // A shell of Slurm's has it, too.
  const bool is_step =
      env.Has("SLURM_STEP_ID") &&
      env.Text(FirstSet(env, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")) != "1";
  if (!env.Has("PMIX_RANK") || (env.Has("SLURM_JOB_ID") && !is_step)) {
    return std::nullopt;
  }
  ASSIGN_OR_RETURN(const int rank, env.Integer("PMIX_RANK", 0, kMaxWorld - 1));
  return absl::InvalidArgumentError(absl::StrCat(
      "PMIX_RANK=", rank,
      " is a rank of a job, but nothing says of how many: "
      "give all ranks RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (to run "
      "alone, unset PMIX_RANK)"));
}

}  // namespace

absl::StatusOr<std::optional<Placement>> DetectPlacement(const GetEnv& getenv) {
  const Environment env(getenv);
  for (const auto detect : {DetectDmlc, DetectTorchrun, DetectOpenMpi,
                            DetectRanks, DetectSlurm, DetectPmix}) {
    ASSIGN_OR_RETURN(std::optional<Placement> placement, detect(env));
    if (placement.has_value()) return placement;
  }
  return std::nullopt;
}

}  // namespace telegrad
