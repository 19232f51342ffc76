#include "kvstore/tuning/job_plan.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/exit_code.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/scripted_store.h"
#include "tests/topology/plan_machines.h"
#include "topology/machine_json.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using testing::Cluster;
using testing::ClusterConfig;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::ScriptedStore;
using testing::StatusIs;

PlanRequest Request() {
  PlanRequest request;
  request.profile.tensors = {{.name = "a", .num_elems = 33}};
  request.gc_type = "none";
  return request;
}

MachineReport Report(const std::string& host, const std::string& boot_id) {
  return {.host = host,
          .boot_id = boot_id,
          .machine = TestMachine(host, 0, 1, Fabric::kEthernet, 10)};
}

MachineReport Unknown(const std::string& host, const std::string& boot_id) {
  return {.host = host,
          .boot_id = boot_id,
          .machine = absl::UnavailableError("no /sys")};
}

// What each worker of a real job gets.
std::vector<absl::StatusOr<JobPlan>> Agree(
    const std::vector<MachineReport>& reports,
    const std::vector<PlanRequest>& requests) {
  ClusterConfig config;
  config.workers = static_cast<int>(reports.size());
  std::vector<absl::StatusOr<JobPlan>> plans(reports.size());
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    const auto rank = static_cast<size_t>(store.group().rank());
    plans[rank] =
        AgreeOnPlan(store, reports[rank], AssumedCalibration(), requests[rank]);
  });
  return plans;
}

TEST(JobPlan, IsTheSameOnAllWorkersAndThatOfTheirMachines) {
  const std::vector<MachineReport> reports = {Report("b", "1"),
                                              Report("a", "2")};
  const auto plans = Agree(reports, {Request(), Request()});
  PlanRequest request = Request();
  request.workers = 2;
  const std::vector<Machine> machines = {*reports[1].machine,
                                         *reports[0].machine};
  const auto expected = MakePlan(machines, AssumedCalibration(), request);
  ASSERT_THAT(expected, IsOk());
  for (const auto& plan : plans) {
    ASSERT_THAT(plan, IsOk());
    EXPECT_EQ(plan->machines, 2);
    EXPECT_EQ(plan->plan.digest, expected->digest);
    EXPECT_EQ(plan->plan.aggregation, Aggregation::kRing);
    EXPECT_EQ(plan->plan.machines[0].gpus[0].rails[0].nic, "eth0");
    EXPECT_THAT(plan->notes, IsEmpty());
  }
}

TEST(JobPlan, KnowsServersOnMachinesOfTheirOwn) {
  for (const int servers : {0, 2}) {
    const std::map<std::string, std::string> script = {
        {"plan-machines", R"({"host":"b","boot_id":"2","error":"no /sys"})"}};
    ScriptedStore store(script);
    store.set_server_machines({.all = 2, .without_worker = servers});
    const auto plan =
        AgreeOnPlan(store, Report("a", "1"), AssumedCalibration(), Request());
    ASSERT_THAT(plan, IsOk());
    EXPECT_EQ(plan->plan.servers, servers);
    EXPECT_EQ(plan->plan.aggregation, servers == 0
                                          ? Aggregation::kRing
                                          : Aggregation::kDedicatedServers);
  }
}

TEST(JobPlan, OfARunSumsWhereItsServersAre) {
  const auto agree = [](const std::string& other, ServerMachines servers) {
    ScriptedStore store(
        {{"plan-machines",
          absl::StrCat(R"({"host":")", other,
                       R"(","boot_id":"1","error":"no /sys"})")}});
    store.set_server_machines(servers);
    PlanRequest request = Request();
    request.aggregation.by = "fixed by the store";
    const auto job =
        AgreeOnPlan(store, Report("a", "1"), AssumedCalibration(), request);
    EXPECT_THAT(job, IsOk());
    return job.ok() ? job->plan : Plan{};
  };
  EXPECT_EQ(agree("a", {1, 0}).aggregation, Aggregation::kLocal);
  EXPECT_EQ(agree("b", {2, 0}).aggregation, Aggregation::kColocatedServers);
  EXPECT_EQ(agree("b", {1, 1}).aggregation, Aggregation::kDedicatedServers);
  // Half of the tensors leave the only machine that has workers.
  const Plan half = agree("a", {2, 1});
  EXPECT_EQ(half.aggregation, Aggregation::kDedicatedServers);
  EXPECT_EQ(half.servers, 2);
  // Both servers stand beside one of two workers.
  const Plan beside = agree("b", {1, 0});
  EXPECT_EQ(beside.aggregation, Aggregation::kDedicatedServers);
  EXPECT_EQ(beside.servers, 1);
  EXPECT_THAT(Lines(beside), Contains("aggregation dedicated-servers: fixed "
                                      "by the store"));
}

// The plan of two workers on InfiniBand and of the server that says this.
absl::StatusOr<JobPlan> AgreeBesideServer(const std::string& about) {
  MachineReport mine = Report("a", "1");
  mine.machine = TestMachine("a", 0, 1, Fabric::kInfiniBand, 100);
  const MachineReport other{
      .host = "b",
      .boot_id = "2",
      .machine = TestMachine("b", 0, 1, Fabric::kInfiniBand, 100)};
  const std::vector<std::string> theirs =
      absl::StrSplit(AboutMachine(other), absl::MaxSplits('\n', 1));
  ScriptedStore store(
      {{"plan-machines", theirs[0]}, {"plan-machine", theirs[1]}});
  store.set_server_machines({.all = 1, .without_worker = 1});
  store.set_servers({{.rank = 3, .host = "s", .text = about}});
  return AgreeOnPlan(store, mine, Calibration(), Request());
}

TEST(JobPlan, IsBoundByTheMachineOfAServer) {
  MachineReport server = Report("s", "3");
  server.machine = TestMachine("s", 0, 1, Fabric::kInfiniBand, 100);
  auto job = AgreeBesideServer(AboutMachine(server));
  ASSERT_THAT(job, IsOk());
  EXPECT_EQ(job->plan.network, NetworkKind::kInfiniBand);
  EXPECT_EQ(job->plan.link_bytes_per_s, 100e9 / 8);
  EXPECT_EQ(job->plan.machines.size(), 3u);
  EXPECT_EQ(job->machines, 2);
  EXPECT_THAT(job->plan.warnings, IsEmpty());

  server.machine = TestMachine("s", 0, 1, Fabric::kInfiniBand, 25);
  job = AgreeBesideServer(AboutMachine(server));
  ASSERT_THAT(job, IsOk());
  EXPECT_EQ(job->plan.link_bytes_per_s, 25e9 / 8);
  EXPECT_THAT(Lines(job->plan), Contains(HasSubstr("ports of s, the slowest")));
  EXPECT_THAT(job->plan.warnings,
              Contains(HasSubstr("s has cards of 25 Gb/s, others of up to")));

  server.machine = TestMachine("s", 0, 1, Fabric::kEthernet, 100);
  job = AgreeBesideServer(AboutMachine(server));
  ASSERT_THAT(job, IsOk());
  EXPECT_EQ(job->plan.network, NetworkKind::kTcp);
  EXPECT_THAT(job->plan.warnings,
              Contains(HasSubstr("IB is on 2 of 3 machines only, so none uses "
                                 "it: not on s")));
}

TEST(JobPlan, NamesAServerWhoseMachineIsNotKnown) {
  for (const auto& [about, why] :
       {std::pair<std::string, const char*>{"", "it says nothing"},
        {AboutMachine(Unknown("s", "3")), "no /sys"}}) {
    const auto job = AgreeBesideServer(about);
    ASSERT_THAT(job, IsOk());
    EXPECT_EQ(job->plan.network, NetworkKind::kInfiniBand);
    EXPECT_THAT(job->notes,
                ElementsAre(AllOf(HasSubstr("server/3 (s)"), HasSubstr(why))));
  }
  for (const char* text : {"7", "{}\n",
                           R"({"host":"s","boot_id":"","error":""})"
                           "\n{}"}) {
    EXPECT_THAT(AgreeBesideServer(text),
                StatusIs(absl::StatusCode::kFailedPrecondition, "server/3"));
  }
}

TEST(JobPlan, TakesAMachineOfWorkersAndServersOnce) {
  const auto job = AgreeBesideServer(AboutMachine(Report("b", "2")));
  ASSERT_THAT(job, IsOk());
  EXPECT_EQ(job->plan.machines.size(), 2u);
}

TEST(JobPlan, KnowsWorkersOfOneMachineByNameAndBoot) {
  const auto plans =
      Agree({Report("a", "1"), Report("a", "1"), Report("a", "2")},
            {Request(), Request(), Request()});
  for (const auto& plan : plans) {
    ASSERT_THAT(plan, IsOk());
    EXPECT_EQ(plan->machines, 2);
    EXPECT_EQ(plan->plan.workers, 2);
  }
}

TEST(JobPlan, GoesOnWithoutAMachineAndSaysSo) {
  const auto plans =
      Agree({Report("a", "1"), Unknown("b\n", "2")}, {Request(), Request()});
  for (const auto& plan : plans) {
    ASSERT_THAT(plan, IsOk());
    EXPECT_FALSE(plan->plan.digest.empty());
    EXPECT_THAT(plan->notes,
                ElementsAre(HasSubstr("worker/1 (b\\n), it is taken to be like "
                                      "the others: no /sys")));
  }
}

TEST(JobPlan, AsksAnotherWorkerOfAMachine) {
  const auto plans =
      Agree({Unknown("a", "1"), Report("a", "1")}, {Request(), Request()});
  for (const auto& plan : plans) {
    ASSERT_THAT(plan, IsOk());
    EXPECT_EQ(plan->machines, 1);
    EXPECT_THAT(plan->notes, IsEmpty());
    EXPECT_EQ(plan->plan.machines.size(), 1u);
  }
}

TEST(JobPlan, NamesWorkersAndLineOfPlansThatDiffer) {
  PlanRequest other = Request();
  other.profile.tensors[0].num_elems = 34;
  const auto plans =
      Agree({Report("a", "1"), Report("b", "2"), Report("c", "3")},
            {Request(), Request(), other});
  for (const auto& plan : plans) {
    EXPECT_THAT(plan, StatusIs(absl::StatusCode::kFailedPrecondition,
                               "plans of worker/0 and worker/2 differ in line "
                               "2: 'a 33 none"));
    EXPECT_EQ(ExitCodeOf(plan.status()), ExitCode::kMismatch);
  }
}

TEST(JobPlan, NamesAWorkerWithoutAPlan) {
  PlanRequest other = Request();
  other.profile.tensors.clear();
  for (const auto& plan :
       Agree({Report("a", "1"), Report("b", "2")}, {Request(), other})) {
    EXPECT_THAT(plan, StatusIs(absl::StatusCode::kFailedPrecondition,
                               "against 'a plan needs a profile"));
  }
}

TEST(JobPlan, IsANoteWhereNobodyCanPlan) {
  PlanRequest request = Request();
  request.gdr = GdrWish::kOn;
  MachineReport report = Report("a", "1");
  report.machine = TestMachine("a", 1, 1, Fabric::kEthernet, 10);
  for (const auto& plan : Agree({report, report}, {request, request})) {
    ASSERT_THAT(plan, IsOk());
    EXPECT_TRUE(plan->plan.digest.empty());
    EXPECT_THAT(plan->notes, ElementsAre(HasSubstr("none: GPUDirect RDMA")));
  }
}

absl::Status AgreeWith(const std::map<std::string, std::string>& script) {
  ScriptedStore store(script);
  return AgreeOnPlan(store, Report("a", "1"), AssumedCalibration(), Request())
      .status();
}

constexpr char kOther[] = R"({"host":"b","boot_id":"2","error":""})";

TEST(JobPlan, RefusesWhatIsNoMachine) {
  const std::string deep(100000, '[');
  for (const std::string& text :
       {std::string(), deep, std::string("{}"), std::string("7"),
        std::string(R"({"host":1,"boot_id":"","error":""})")}) {
    const absl::Status status = AgreeWith({{"plan-machines", text}});
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 "worker/1 does not say what machine"));
    EXPECT_LT(status.message().size(), 600u);
  }
  for (const std::string& text : {std::string(), deep, std::string("{}"),
                                  std::string(R"({"schema":"9"})")}) {
    const absl::Status status =
        AgreeWith({{"plan-machines", kOther}, {"plan-machine", text}});
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 "the machine of worker/1 (b) cannot be read"));
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kMismatch);
  }
}

TEST(JobPlan, KeepsTheEnvironmentToItself) {
  MachineReport report = Report("a", "1");
  report.machine->environment["NCCL_DEBUG"] = "private";
  report.machine->interfaces = {{.name = "eth0", .addresses = {"192.0.2.7"}}};
  ScriptedStore store({});
  ASSERT_THAT(AgreeOnPlan(store, report, AssumedCalibration(), Request()),
              IsOk());
  const std::string said = store.scripted_group().said();
  EXPECT_THAT(said, HasSubstr("eth0"));
  EXPECT_THAT(said, Not(HasSubstr("private")));
  EXPECT_THAT(said, Not(HasSubstr("192.0.2.7")));
}

}  // namespace
}  // namespace telegrad
