#include "kvstore/tuning/job_plan.h"

#include <gmock/gmock.h>

#include "base/exit_code.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/tuning/scripted_store.h"
#include "tests/topology/plan_machines.h"
#include "topology/apply.h"

namespace telegrad {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::ScriptedGroup;
using testing::Soon;
using testing::StatusIs;

PlanRequest Request() {
  PlanRequest request;
  request.profile.tensors = {{.name = "a", .num_elems = 33}};
  request.gc_type = "none";
  return request;
}

MachineReport Report(const std::string& host) {
  return {.host = host,
          .boot_id = "1",
          .machine = TestMachine(host, 0, 1, Fabric::kEthernet, 10)};
}

MachineReport Unknown(const std::string& host) {
  return {.host = host,
          .boot_id = "1",
          .machine = absl::UnavailableError("no /sys")};
}

// What each worker of a real job gets, whose members say that they are on these
// machines; the server's is the last.
std::vector<absl::StatusOr<ExchangePlan>> Agree(
    const std::vector<MachineReport>& reports, const PlanRequest& request,
    const std::shared_ptr<const GivenPlan>& given = nullptr,
    bool is_used = true) {
  const size_t num_workers = reports.size() - 1;
  testing::Cluster cluster(testing::Job(static_cast<int>(num_workers)));
  const auto options = [&](size_t i) {
    DistOptions each = cluster.Options();
    each.path.transport.tls.clear();
    each.path.transport.bind_address = "192.0.2.1";  // inproc has no use for it
    each.path.look = [&reports, i] { return reports[i]; };
    each.path.given = given;
    each.wanted_rank = i < num_workers ? static_cast<int>(i) : 0;
    return each;
  };
  auto server = std::async(std::launch::async, [&] {
    return RunServer({.job = options(num_workers)});
  });
  std::vector<absl::StatusOr<ExchangePlan>> plans(num_workers);
  std::vector<std::thread> workers;
  for (size_t rank = 0; rank < num_workers; ++rank) {
    workers.emplace_back([&, rank] {
      testing::Worker worker(options(rank));
      ASSERT_THAT(worker.Join(), IsOk());
      plans[rank] = AgreeOnExchange(worker->group(), AssumedCalibration(),
                                    request, is_used);
      worker->Close();
    });
  }
  for (std::thread& each : workers) each.join();
  EXPECT_THAT(server.get(), IsOk());
  return plans;
}

TEST(ExchangePlan, OfWorkerZeroIsThatOfAll) {
  const auto plans = Agree({Report("b"), Report("a"), Report("b")}, Request());
  PlanRequest request = Request();
  request.workers = 2;
  request.network = {"inproc", "--transport inproc"};
  request.connections = {1, "the default of --connections"};
  request.bound = {{"a", ""}, {"b", ""}};
  request.host_memory = {true, "frames of this job are in host memory"};
  const std::vector<Machine> machines = {*Report("a").machine,
                                         *Report("b").machine};
  const auto expected = MakePlan(machines, AssumedCalibration(), request);
  ASSERT_THAT(expected, IsOk());
  for (const auto& plan : plans) {
    ASSERT_THAT(plan, IsOk());
    EXPECT_EQ(plan->plan.workers, 2);
    EXPECT_EQ(plan->plan.digest, expected->digest);
    EXPECT_EQ(Lines(plan->plan), Lines(*expected));
    EXPECT_EQ(plan->plan.machines[0].gpus[0].rails[0].nic, "eth0");
    EXPECT_THAT(plan->notes, IsEmpty());
  }
}

TEST(ExchangePlan, ThatDecidesNothingIsWorkerZerosAlone) {
  const auto plans = Agree({Report("a"), Report("b"), Report("a")}, Request(),
                           nullptr, /*is_used=*/false);
  ASSERT_THAT(plans[0], IsOk());
  ASSERT_THAT(plans[1], IsOk());
  EXPECT_EQ(plans[0]->plan.tensors.size(), 1u);
  EXPECT_TRUE(plans[1]->plan.digest.empty());
  // Nobody is asked.
  ScriptedGroup group({});
  EXPECT_THAT(AgreeOnExchange(group, AssumedCalibration(), Request(),
                              /*is_used=*/false),
              IsOk());
}

TEST(ExchangePlan, GoesOnWithoutAMachineAndSaysSo) {
  const auto plans =
      Agree({Report("a"), Unknown("b\n"), Report("a")}, Request());
  for (const auto& plan : plans) {
    ASSERT_THAT(plan, IsOk());
    EXPECT_FALSE(plan->plan.digest.empty());
  }
  EXPECT_THAT(plans[0]->notes,
              ElementsAre(HasSubstr("worker/1 (b\\n), it is taken to be like "
                                    "the others: ")));
}

// The plan of a job whose members are on these hosts, by rank.
Plan SummedBy(const std::vector<std::string>& workers,
              const std::vector<std::string>& servers,
              const std::shared_ptr<const GivenPlan>& given = nullptr) {
  Membership membership;
  std::vector<MemberFacts> facts;
  const auto add = [&](Role role, const std::vector<std::string>& hosts,
                       std::vector<Member>& members) {
    for (size_t i = 0; i < hosts.size(); ++i) {
      const NodeId id{role, static_cast<int>(i)};
      members.push_back({.id = id, .host = hosts[i]});
      facts.push_back({.name = ToString(id),
                       .host = hosts[i],
                       .transports = {"tcp"},
                       .transport = "tcp",
                       .connections = 1,
                       .tier_one = std::nullopt,
                       .machine = *Report(hosts[i]).machine});
    }
  };
  add(Role::kWorker, workers, membership.workers);
  add(Role::kServer, servers, membership.servers);
  ScriptedGroup group({});
  group.set_membership(membership);
  DataPath path;
  path.basis = *RequestPath(facts);
  path.basis.request.given = given;
  path.plan = *PlanPath(path.basis.machines, path.basis.request);
  group.set_data_path(path);
  PlanRequest request = Request();
  request.aggregation.by = "fixed by the store";
  const auto job =
      AgreeOnExchange(group, AssumedCalibration(), request, /*is_used=*/true);
  EXPECT_THAT(job, IsOk());
  return job.ok() ? job->plan : Plan{};
}

TEST(ExchangePlan, OfARunSumsWhereItsServersAre) {
  EXPECT_EQ(SummedBy({"a", "a"}, {"a"}).aggregation, Aggregation::kLocal);
  EXPECT_EQ(SummedBy({"a", "b"}, {"a", "b"}).aggregation,
            Aggregation::kColocatedServers);
  EXPECT_EQ(SummedBy({"a", "b"}, {"s"}).aggregation,
            Aggregation::kDedicatedServers);
  // Half of the tensors leave the only machine that has workers.
  const Plan half = SummedBy({"a", "a"}, {"a", "s"});
  EXPECT_EQ(half.aggregation, Aggregation::kDedicatedServers);
  EXPECT_EQ(half.servers, 2);
  // The server stands beside one of two workers.
  const Plan beside = SummedBy({"a", "b"}, {"a"});
  EXPECT_EQ(beside.aggregation, Aggregation::kDedicatedServers);
  EXPECT_EQ(beside.servers, 1);
  EXPECT_THAT(Lines(beside), Contains("aggregation dedicated-servers: fixed "
                                      "by the store"));
}

TEST(ExchangePlan, OfARunsSummaryHasTheTierOneOfTheRunThatObeysIt) {
  const Plan first = SummedBy({"a", "a"}, {"a"});
  ASSERT_NE(FindDecision(first, Decision::Kind::kTierOne), nullptr);
  const Plan again =
      SummedBy({"a", "a"}, {"a"},
               std::make_shared<const GivenPlan>(GivenPlan{
                   "--plan p.json", *PlanFromJson(PlanToJson(first))}));
  std::vector<std::string> decisions;
  for (const Decision& each : again.decisions) {
    if (each.what == Decision::Kind::kTierOne) {
      decisions.push_back(ToText(each));
    }
  }
  EXPECT_THAT(decisions, ElementsAre("tier1 off: 2 workers on 1 host, which "
                                     "gradients do not leave"));
}

TEST(ExchangePlan, IsANoteWhereNobodyCanPlan) {
  PlanRequest request = Request();
  request.profile.tensors.clear();
  const auto plans = Agree({Report("a"), Report("b"), Report("a")}, request);
  for (const auto& plan : plans) {
    ASSERT_THAT(plan, IsOk());
    EXPECT_TRUE(plan->plan.digest.empty());
    EXPECT_THAT(plan->notes, ElementsAre(HasSubstr("none: a plan needs")));
  }
}

// A plan of a file, for two workers' machines and a server's.
Plan GivenFor(const std::vector<std::string>& hosts, int64_t elems) {
  std::vector<Machine> machines;
  PlanRequest request = Request();
  request.profile.tensors[0].num_elems = elems;
  for (const std::string& host : hosts) {
    machines.push_back(*Report(host).machine);
    request.bound[host] = "";
  }
  request.host_memory = {true, "--memory host"};
  request.network = {"inproc", "--transport inproc"};
  request.chunk_bytes = {4 * 64, "--chunk-elements 64"};
  request.connections = {1, "--connections 1"};
  request.aggregation = {Aggregation::kColocatedServers, "--aggregation"};
  return *MakePlan(machines, AssumedCalibration(), request);
}

TEST(ExchangePlan, ThatIsGivenIsThatOfAllOrEndsTheJob) {
  const auto agree = [](const Plan& plan, const PlanRequest& request) {
    return Agree(
        {Report("a"), Report("b"), Report("a")}, request,
        std::make_shared<const GivenPlan>(GivenPlan{"--plan p.json", plan}));
  };
  const Plan given = GivenFor({"a", "b"}, 33);
  for (const auto& job : agree(given, Request())) {
    ASSERT_THAT(job, IsOk());
    EXPECT_EQ(job->plan.digest, given.digest);
    EXPECT_EQ(job->plan.tensors[0].chunk_bytes, 4 * 64);
    EXPECT_THAT(job->notes, IsEmpty());
  }
  const auto refused = [&](const Plan& plan, const PlanRequest& request,
                           const char* why) {
    for (const auto& job : agree(plan, request)) {
      EXPECT_THAT(job, StatusIs(absl::StatusCode::kFailedPrecondition, why));
      EXPECT_EQ(ExitCodeOf(job.status()), ExitCode::kMismatch);
    }
  };
  refused(GivenFor({"a", "b"}, 34), Request(), "has the tensor a of 34");
  PlanRequest request = Request();
  request.aggregation.by = "--servers 1";  // beside one of two workers
  refused(given, request,
          "has aggregation co-located-servers, but --servers 1 means "
          "dedicated-servers");
}

TEST(ExchangePlan, GivesTensorsWhatItDecides) {
  std::vector<TensorSpec> tensors = {{"a", 33}};
  Plan plan = GivenFor({"a", "b"}, 33);
  plan.tensors[0].codec = "2bit";
  GiveTensors(plan, /*is_given=*/false, tensors);
  EXPECT_EQ(tensors[0].chunk_elems, 64u);
  EXPECT_EQ(tensors[0].codec, "");
  GiveTensors(plan, /*is_given=*/true, tensors);
  EXPECT_EQ(tensors[0].codec, "2bit");
  const GivenPlan given{"--plan p.json", plan};
  EXPECT_THAT(CheckPlanFor(given, "net", tensors), IsOk());
  tensors[0].name = "b";
  EXPECT_THAT(
      CheckPlanFor(given, "net", tensors),
      StatusIs(absl::StatusCode::kFailedPrecondition, "where net has b of 33"));
  GivenPlan strange = given;
  strange.plan.tensors[0].codec = "3bit";
  tensors[0].name = "a";
  EXPECT_THAT(CheckPlanFor(strange, "net", tensors),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "--plan p.json has codec '3bit' for a"));
}

TEST(ExchangePlan, RefusesWhatIsNoPlan) {
  for (const std::string& text :
       {std::string(), std::string(100000, '['), std::string("{}"),
        std::string(R"({"schema":"telegrad-plan-2"})")}) {
    ScriptedGroup group({{"plan", text}});
    group.set_rank(1);
    const auto plan = AgreeOnExchange(group, AssumedCalibration(), Request(),
                                      /*is_used=*/true);
    EXPECT_THAT(
        plan, StatusIs(absl::StatusCode::kFailedPrecondition, "of worker/0: "));
    EXPECT_EQ(ExitCodeOf(plan.status()), ExitCode::kMismatch);
  }
}

}  // namespace
}  // namespace telegrad
