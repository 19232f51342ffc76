#include "kvstore/job/launch/placement.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "kvstore/job/launch/slurm.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::StatusIs;

using Variables = std::map<std::string, std::string>;

absl::StatusOr<std::optional<Placement>> Detect(const Variables& variables) {
  return DetectPlacement([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Variables With(Variables base, const Variables& changes) {
  for (const auto& [name, value] : changes) base[name] = value;
  return base;
}

const Variables kDmlc = {{"DMLC_ROLE", "server"},
                         {"DMLC_NUM_WORKER", "4"},
                         {"DMLC_NUM_SERVER", "2"},
                         {"DMLC_PS_ROOT_URI", "10.0.0.1"},
                         {"DMLC_PS_ROOT_PORT", "9091"}};
const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "run7"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "3"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                            {"PMIX_NAMESPACE", "prte.1"},
                            {"PMIX_RANK", "2"}};
const Variables kSlurm = {
    {"SLURM_PROCID", "5"},  {"SLURM_NTASKS", "8"},
    {"SLURM_LOCALID", "1"}, {"SLURM_JOB_ID", "123456"},
    {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", "gpu[07-10,12]"}};

TEST(Placement, WithoutALauncherIsNone) {
  const auto found = Detect({{"RANK", "1"}, {"HOME", "/root"}});
  ASSERT_THAT(found, testing::IsOk());
  EXPECT_FALSE(found->has_value());
}

TEST(Placement, ReadsDmlc) {
  const auto found = Detect(kDmlc);
  ASSERT_THAT(found, testing::IsOk());
  const Placement& p = **found;
  EXPECT_EQ(p.launcher, "dmlc");
  EXPECT_EQ(p.role, Role::kServer);
  EXPECT_EQ(p.rank, -1);
  EXPECT_EQ(p.num_workers, 4);
  EXPECT_EQ(p.num_servers, 2);
  EXPECT_EQ(p.scheduler_host, "10.0.0.1");
  EXPECT_EQ(p.scheduler_port, 9091);
  EXPECT_EQ((**Detect(With(kDmlc,
                           {{"DMLC_ROLE", "worker"}, {"DMLC_WORKER_ID", "3"}})))
                .rank,
            3);
}

TEST(Placement, ReadsTorchrun) {
  const auto found = Detect(kTorchrun);
  ASSERT_THAT(found, testing::IsOk());
  const Placement& p = **found;
  EXPECT_EQ(p.launcher, "torchrun");
  EXPECT_EQ(p.rank, 3);
  EXPECT_EQ(p.world_size, 4);
  EXPECT_EQ(p.local_rank, 1);
  EXPECT_EQ(p.scheduler_host, "node0");
  EXPECT_EQ(p.scheduler_port, 29500);
  EXPECT_EQ(p.job_id, "run7");
}

TEST(Placement, LeavesMasterPortToTorchrunsStore) {
  const auto found =
      Detect(With(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  ASSERT_THAT(found, testing::IsOk());
  EXPECT_EQ((*found)->scheduler_port, 29501);
  const auto without =
      Detect(With(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}));
  ASSERT_THAT(without, testing::IsOk());
  EXPECT_EQ((*without)->scheduler_port, 29500);
}

TEST(Placement, ReadsOpenMpi) {
  const auto found = Detect(kOpenMpi);
  ASSERT_THAT(found, testing::IsOk());
  const Placement& p = **found;
  EXPECT_EQ(p.launcher, "openmpi");
  EXPECT_EQ(p.rank, 2);
  EXPECT_EQ(p.world_size, 3);
  EXPECT_EQ(p.scheduler_host, "");
  EXPECT_EQ(p.job_id, "prte.1");
}

TEST(Placement, ReadsSlurm) {
  const auto found = Detect(kSlurm);
  ASSERT_THAT(found, testing::IsOk());
  const Placement& p = **found;
  EXPECT_EQ(p.launcher, "slurm");
  EXPECT_EQ(p.rank, 5);
  EXPECT_EQ(p.world_size, 8);
  EXPECT_EQ(p.scheduler_host, "gpu07");
  EXPECT_EQ(p.scheduler_port, 20000 + 123456 % 20000);
  EXPECT_EQ((**Detect(With(kSlurm, {{"PMIX_RANK", "5"}}))).scheduler_host, "");
}

TEST(Placement, OneHostOfSlurmMeetsAtItsOwnAddress) {
  const auto one = Detect(With(kSlurm, {{"SLURM_STEP_NUM_NODES", "1"}}));
  ASSERT_THAT(one, testing::IsOk());
  EXPECT_EQ((*one)->num_hosts, 1);
  const auto meeting = FindScheduler(**one, "127.0.0.1", 1, 1);
  ASSERT_THAT(meeting, testing::IsOk());
  EXPECT_EQ(meeting->host, "127.0.0.1");
  EXPECT_EQ(meeting->port, 20000 + 123456 % 20000);
}

// The port was once cut where the host's name was short.
TEST(Placement, ShortHostNamesKeepTheirPort) {
  const auto found = Detect(With(kTorchrun, {{"MASTER_ADDR", "n1"}}));
  ASSERT_THAT(found, testing::IsOk());
  const auto meeting = FindScheduler(**found, "127.0.0.1", 1, 1);
  ASSERT_THAT(meeting, testing::IsOk());
  EXPECT_EQ(meeting->host, "n1");
  EXPECT_EQ(meeting->port, 29500);
}

std::string PartsText(int rank, int dedicated, bool workers_serve) {
  const auto parts =
      PartsOf({.launcher = "openmpi", .rank = rank, .world_size = 4}, dedicated,
              workers_serve);
  return absl::StrCat(TitleOf(*parts), " of ", parts->num_workers, " and ",
                      parts->num_servers);
}

TEST(Parts, OfServersBesideWorkersOfTheirOwnAndBoth) {
  EXPECT_EQ(PartsText(0, 0, false), "worker 0, server 0, scheduler of 4 and 4");
  EXPECT_EQ(PartsText(3, 0, true), "worker 3, server 3 of 4 and 4");
  EXPECT_EQ(PartsText(0, 1, false), "worker 0, scheduler of 3 and 1");
  EXPECT_EQ(PartsText(3, 1, false), "server 0 of 3 and 1");
  EXPECT_EQ(PartsText(2, 1, true), "worker 2, server 2 of 3 and 4");
  EXPECT_EQ(PartsText(3, 1, true), "server 3 of 3 and 4");
  const Placement given{.launcher = "dmlc", .role = Role::kWorker};
  EXPECT_THAT(PartsOf(given, 0, true),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "--workers-serve is for launchers that start ranks: "
                       "with dmlc"));
}

TEST(BindAddress, IsWrongBeforeAnybodyJoins) {
  const Placement placement{
      .launcher = "dmlc", .scheduler_host = "127.0.0.1", .scheduler_port = 1};
  for (const char* bind : {"203.0.113.77", "203.0.113.0/24", "ib99"}) {
    for (const Placement* given :
         {static_cast<const Placement*>(nullptr), &placement}) {
      const auto address = BindAddress(bind, given);
      EXPECT_THAT(address,
                  testing::StatusIs(absl::StatusCode::kInvalidArgument, bind));
      EXPECT_EQ(ExitCodeOf(address.status()), ExitCode::kUsage);
    }
  }
  EXPECT_EQ(*BindAddress("auto", &placement), "127.0.0.1");
  EXPECT_EQ(*BindAddress("auto", nullptr), "127.0.0.1");
  EXPECT_EQ(*BindAddress("lo", nullptr), "127.0.0.1");
}

TEST(BindAddress, OfLoopbackIsNothingForSeveralHosts) {
  Placement placement{.launcher = "openmpi", .num_hosts = 2};
  EXPECT_THAT(
      BindAddress("127.0.0.1", &placement),
      testing::StatusIs(absl::StatusCode::kInvalidArgument, "--bind auto"));
  placement.num_hosts = 1;
  EXPECT_THAT(BindAddress("127.0.0.1", &placement), testing::IsOk());
  const Placement far{.launcher = "dmlc",
                      .scheduler_host = "203.0.113.77",
                      .scheduler_port = 9091};
  const auto address = BindAddress("127.0.0.1", &far);
  EXPECT_THAT(address, testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                         "--secret-file"));
  EXPECT_THAT(address, testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                         "the scheduler is at 203.0.113.77"));
}

TEST(Placement, AnSbatchShellIsNoRank) {
  Variables shell = kSlurm;
  shell.erase("SLURM_STEP_ID");
  EXPECT_FALSE(Detect(shell)->has_value());
  EXPECT_FALSE(
      Detect(With(kSlurm, {{"SLURM_NTASKS", "1"}, {"SLURM_PROCID", "0"}}))
          ->has_value());
}

TEST(Placement, ABarePmixRankHasNoSize) {
  EXPECT_THAT(Detect({{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "n"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "PMIX_RANK=1"));
  // A shell of salloc's has it, too.
  const Variables shell = With(kSlurm, {{"PMIX_RANK", "0"},
                                        {"SLURM_PROCID", "0"},
                                        {"SLURM_STEP_NUM_TASKS", "1"}});
  const auto found = Detect(shell);
  ASSERT_THAT(found, testing::IsOk());
  EXPECT_FALSE(found->has_value());
}

TEST(Placement, ARankWithoutAnAddressIsNoJobOfItsOwn) {
  const Variables mpich = {
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}};
  const Variables where = {{"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}};
  for (const std::string prefix : {"PMI", "MV2_COMM_WORLD", "JSM_NAMESPACE"}) {
    const Variables its = {{prefix + "_RANK", "1"}, {prefix + "_SIZE", "2"}};
    EXPECT_THAT(Detect(its), StatusIs(absl::StatusCode::kInvalidArgument,
                                      prefix + "_RANK=1 of " + prefix));
    const auto found = Detect(With(its, where));
    ASSERT_THAT(found, testing::IsOk());
    EXPECT_EQ((**found).rank, 1);
    EXPECT_EQ((**found).world_size, 2);
    EXPECT_EQ((**found).scheduler_host, "n1");
    EXPECT_EQ((**found).scheduler_port, 29500);
  }
  EXPECT_EQ((**Detect(With(mpich, where))).local_rank, 1);
  EXPECT_FALSE(Detect({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}})->has_value());
  // mpiexec's ranks beside one srun task per host; srun's own of PMI2.
  const Variables beside = With(With(kSlurm, mpich), where);
  EXPECT_EQ((**Detect(beside)).launcher, "mpich");
  const Variables sruns = With(beside, {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}});
  EXPECT_EQ((**Detect(sruns)).launcher, "slurm");
}

TEST(Placement, ABatchSystemsHostsAreWhereRanksMeet) {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/hosts-", getpid());
  std::ofstream(path) << "n7\nn7\nn8\n";
  const Variables mpich = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  for (const Variables& batch :
       {Variables{{"PBS_NODEFILE", path}, {"PBS_JOBID", "120345[7].head"}},
        Variables{{"LSB_DJOB_HOSTFILE", path}, {"LSB_JOBID", "120345"}},
        Variables{{"LSB_HOSTS", "n7 n7 n8"}, {"LSB_JOBID", "120345"}}}) {
    const auto found = Detect(With(mpich, batch));
    ASSERT_THAT(found, testing::IsOk());
    EXPECT_EQ((**found).scheduler_host, "n7");
    EXPECT_EQ((**found).scheduler_port, 20345);
    // jsrun's first rank is not on the first host, which is where it was asked.
    const Variables jsrun = {{"JSM_NAMESPACE_RANK", "1"},
                             {"JSM_NAMESPACE_SIZE", "2"}};
    EXPECT_THAT(Detect(With(jsrun, batch)),
                StatusIs(absl::StatusCode::kInvalidArgument, "MASTER_ADDR"));
  }
  std::ofstream(path) << "n7;x\n";
  for (const std::string& bad : {path, path + ".none"}) {
    EXPECT_THAT(Detect(With(mpich, {{"PBS_NODEFILE", bad}})),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         absl::StrCat("PBS_NODEFILE=", bad)));
  }
}

TEST(Placement, ReadsSkyPilotFluxAndIndexedJobs) {
  const Variables sky = {{"SKYPILOT_NODE_RANK", "1"},
                         {"SKYPILOT_NUM_NODES", "2"},
                         {"SKYPILOT_NODE_IPS", "10.0.0.7\n10.0.0.8\n"}};
  const auto node = Detect(sky);
  ASSERT_THAT(node, testing::IsOk());
  EXPECT_EQ((**node).launcher, "skypilot");
  EXPECT_EQ((**node).rank, 1);
  EXPECT_EQ((**node).num_hosts, 2);
  EXPECT_EQ((**node).scheduler_host, "10.0.0.7");
  EXPECT_EQ((**node).scheduler_port, 20000);
  EXPECT_FALSE(Detect(With(sky, {{"SKYPILOT_NUM_NODES", "1"}}))->has_value());

  const Variables where = {{"MASTER_ADDR", "job-0.job"},
                           {"MASTER_PORT", "29500"}};
  const auto task = Detect(With(where, {{"FLUX_TASK_RANK", "3"},
                                        {"FLUX_JOB_SIZE", "4"},
                                        {"FLUX_TASK_LOCAL_ID", "1"},
                                        {"FLUX_JOB_NNODES", "2"}}));
  ASSERT_THAT(task, testing::IsOk());
  EXPECT_EQ((**task).rank, 3);
  EXPECT_EQ((**task).local_rank, 1);
  EXPECT_EQ((**task).num_hosts, 2);

  const Variables indexed =
      With(where, {{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "3"}});
  const auto pod = Detect(indexed);
  ASSERT_THAT(pod, testing::IsOk());
  EXPECT_EQ((**pod).launcher, "kubernetes");
  EXPECT_EQ((**pod).rank, 2);
  EXPECT_EQ((**pod).world_size, 3);
  EXPECT_EQ((**pod).scheduler_host, "job-0.job");
  // An Indexed Job of Pods that have nothing to do with one another.
  EXPECT_FALSE(Detect({{"JOB_COMPLETION_INDEX", "2"}})->has_value());
}

TEST(Placement, BadValuesAreNamed) {
  const struct {
    Variables variables;
    std::string named;
  } cases[] = {
      {With(kDmlc, {{"DMLC_ROLE", "boss"}}), "DMLC_ROLE=boss"},
      {With(kDmlc, {{"DMLC_NUM_WORKER", ""}}), "DMLC_NUM_WORKER"},
      {With(kDmlc, {{"DMLC_NUM_WORKER", "0"}}), "DMLC_NUM_WORKER=0"},
      {With(kDmlc, {{"DMLC_NUM_SERVER", "-1"}}), "DMLC_NUM_SERVER=-1"},
      {With(kDmlc, {{"DMLC_PS_ROOT_URI", ""}}), "DMLC_PS_ROOT_URI"},
      {With(kDmlc, {{"DMLC_PS_ROOT_PORT", "70000"}}), "DMLC_PS_ROOT_PORT"},
      {With(kDmlc, {{"DMLC_RANK", "2"}}), "DMLC_RANK=2"},
      {With(kTorchrun, {{"RANK", "4"}}), "RANK=4"},
      {With(kTorchrun, {{"RANK", "x"}}), "RANK=x"},
      {With(kTorchrun, {{"WORLD_SIZE", "99999999999"}}), "WORLD_SIZE"},
      {With(kTorchrun, {{"MASTER_ADDR", ""}}), "MASTER_ADDR"},
      {With(kTorchrun, {{"MASTER_PORT", "0"}}), "MASTER_PORT=0"},
      {With(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", ""}}), "OMPI_COMM_WORLD_SIZE"},
      {With(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "3"}}), "WORLD_RANK=3"},
      {With(kSlurm, {{"SLURM_STEP_NODELIST", "gpu["}}), "SLURM_STEP_NODELIST"},
      {With(kSlurm, {{"SLURM_JOB_ID", "j"}}), "SLURM_JOB_ID=j"},
      {With(kSlurm, {{"SLURM_PROCID", "8"}}), "SLURM_PROCID=8"},
      {{{"PMIX_RANK", "-2"}}, "PMIX_RANK=-2"},
  };
  for (const auto& one : cases) {
    EXPECT_THAT(
        Detect(one.variables),
        testing::StatusIs(absl::StatusCode::kInvalidArgument, one.named));
  }
}

TEST(SlurmNodeList, GivesItsFirstHost) {
  EXPECT_EQ(*FirstSlurmHost("node7"), "node7");
  EXPECT_EQ(*FirstSlurmHost("a,b"), "a");
  EXPECT_EQ(*FirstSlurmHost("node[003-007,9],login1"), "node003");
  EXPECT_EQ(*FirstSlurmHost("node[3,5]-ib.x"), "node3-ib.x");
  EXPECT_EQ(*FirstSlurmHost("r[1-2]n[01-16]"), "r1n01");
  for (const char* bad : {"", ",a", "n[", "n[]", "n[a-b]", "n 1", "-x", "n]"}) {
    EXPECT_FALSE(FirstSlurmHost(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace telegrad
