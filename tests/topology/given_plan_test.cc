// A plan that a user gives is obeyed, or refused by the name of what does not
// fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/testing/status_matchers.h"
#include "tests/topology/plan_machines.h"
#include "topology/apply.h"

namespace telegrad {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using Json = nlohmann::json;

// Two hosts of two cards each, "a" and "b".
std::vector<Machine> TwoHosts(Fabric fabric) {
  std::vector<Machine> machines = {TestMachine("a", 0, 2, fabric, 100),
                                   TestMachine("b", 0, 2, fabric, 100)};
  for (Machine& machine : machines) {
    for (Nic& nic : machine.nics) {
      if (fabric != Fabric::kRoceV2) continue;
      nic.ports[0].gids = {{.index = 1, .type = GidType::kRoceV1},
                           {.index = 3, .type = GidType::kRoceV2},
                           {.index = 5, .type = GidType::kRoceV2}};
    }
  }
  return machines;
}

std::shared_ptr<const GivenPlan> Given(const Plan& plan) {
  // As it comes from a file: without what its digest is not of.
  auto read = PlanFromJson(PlanToJson(plan));
  EXPECT_THAT(read, IsOk());
  return std::make_shared<const GivenPlan>(
      GivenPlan{"--plan p.json", read.ok() ? *std::move(read) : Plan()});
}

// What a run asks for: members on these hosts, and the given plan.
PlanRequest RunWith(std::shared_ptr<const GivenPlan> given) {
  PlanRequest request = Request("vgg16", given->plan.workers);
  request.host_memory = {true, "frames of this job are in host memory"};
  request.given = std::move(given);
  request.bound = {{"a", ""}, {"b", ""}};
  return request;
}

absl::Status Refusal(const std::vector<Machine>& machines,
                     const PlanRequest& request) {
  return PlanPath(machines, request).status();
}

TEST(GivenPlan, IsObeyedWhereItIsAnotherThanThePlanners) {
  std::vector<Machine> machines = TwoHosts(Fabric::kRoceV2);
  PlanRequest request = Request("vgg16");
  request.connections = {3, "--connections 3"};
  machines[0].nics[1].ports[0].state.value = 1;  // for the planner alone
  machines[1].nics[0].ports[0].chosen_gid.value = 5;
  const auto given = Given(MustPlan(machines, AssumedCalibration(), request));
  machines = TwoHosts(Fabric::kRoceV2);
  const auto plan = PlanPath(machines, RunWith(given));
  ASSERT_THAT(plan, IsOk());
  const HostSettings a = Apply(*plan, "a");
  EXPECT_THAT(a.rdma_ports, ElementsAre("mlx5_0:1"));       // of two
  EXPECT_EQ(plan->connections, 3);                          // not 1
  EXPECT_EQ(Apply(*plan, "b").gid_rows.at("mlx5_0:1"), 5);  // not 3
  for (const Decision& each : plan->decisions) {
    EXPECT_THAT(each.why, HasSubstr("--plan p.json")) << ToText(each);
  }
}

TEST(GivenPlan, IsRefusedOnOtherMachines) {
  const std::vector<Machine> machines = TwoHosts(Fabric::kEthernet);
  const auto given =
      Given(MustPlan(machines, AssumedCalibration(), Request("vgg16")));
  PlanRequest request = RunWith(given);
  EXPECT_THAT(PlanPath(machines, request), IsOk());
  request.bound = {{"a", ""}, {"c", ""}};
  EXPECT_THAT(Refusal(machines, request),
              StatusIs(StatusCode::kFailedPrecondition,
                       "--plan p.json has no machine c; it is for a, b"));
  request.bound = {{"a", ""}};
  EXPECT_THAT(Refusal(machines, request),
              StatusIs(StatusCode::kFailedPrecondition,
                       "is for the machine b, which has no member"));
  request.workers = 1;
  EXPECT_THAT(Refusal(machines, request),
              StatusIs(StatusCode::kFailedPrecondition,
                       "is for 2 machines with workers, this job has 1"));
}

TEST(GivenPlan, IsRefusedWhereANetworkACardOrARowIsNotThere) {
  std::vector<Machine> machines = TwoHosts(Fabric::kRoceV2);
  const auto given =
      Given(MustPlan(machines, AssumedCalibration(), Request("vgg16")));
  const PlanRequest request = RunWith(given);
  EXPECT_THAT(PlanPath(machines, request), IsOk());
  const auto refused = [&](const char* why) {
    EXPECT_THAT(Refusal(machines, request),
                StatusIs(StatusCode::kFailedPrecondition, why));
    machines = TwoHosts(Fabric::kRoceV2);
  };
  machines[1] = TestMachine("b", 0, 2, Fabric::kEthernet, 100);
  refused("has network RoCEv2, but b cannot use it: it has no RoCEv2 port");
  machines[1].nics[1].name = "mlx5_7";
  refused("has the card mlx5_1 of b, which has mlx5_0, mlx5_7");
  machines[0].nics[1].ports[0].number = 2;
  refused("has port 1 of mlx5_1 on a, which is no RoCEv2 port there");
  machines[0].nics[0].ports[0].state.value = 1;
  refused("has port 1 of mlx5_0 on a, which is not active");
  machines[0].nics[0].ports[0].gids[1].type = GidType::kRoceV1;
  refused("has row 3 of the GID table of mlx5_0:1 on a");
  machines[0].nics[0].ports[0].gids.clear();
  machines[0].nics[0].ports[0].chosen_gid.value = 7;
  refused("has row 3 of the GID table of mlx5_0:1 on a");
  PlanRequest loopback = request;
  loopback.bound["a"] = "lo";
  EXPECT_THAT(Refusal(machines, loopback),
              StatusIs(StatusCode::kFailedPrecondition, "loopback address"));
  // A network without cards of the machines says nothing to open.
  const auto blind = [&] {
    PlanRequest ib = Request("vgg16", 2);
    ib.network = {"RoCEv2", "--transport RoCEv2"};
    return Given(MustPlan({}, AssumedCalibration(), ib));
  }();
  EXPECT_THAT(Refusal(machines, RunWith(blind)),
              StatusIs(StatusCode::kFailedPrecondition, "no card of a"));
}

TEST(GivenPlan, OfTcpHasTheCardsOfTheBoundAddress) {
  std::vector<Machine> machines = TwoHosts(Fabric::kEthernet);
  for (Machine& machine : machines) {
    for (Nic& nic : machine.nics) nic.net_interfaces = {nic.name};
  }
  PlanRequest plan = Request("vgg16");
  plan.bound = {{"a", "eth1"}, {"b", "eth1"}};
  const auto given = Given(MustPlan(machines, AssumedCalibration(), plan));
  PlanRequest request = RunWith(given);
  request.bound = plan.bound;
  EXPECT_THAT(PlanPath(machines, request), IsOk());
  request.bound["b"] = "eth0";
  EXPECT_THAT(Refusal(machines, request),
              StatusIs(StatusCode::kFailedPrecondition,
                       "has the cards eth1 of b, but TCP goes where its "
                       "address is (--bind, eth0): eth0"));
}

TEST(GivenPlan, IsRefusedWhereAFlagSaysOtherwise) {
  const std::vector<Machine> machines = TwoHosts(Fabric::kEthernet);
  const auto given =
      Given(MustPlan(machines, AssumedCalibration(), Request("vgg16")));
  ASSERT_EQ(given->plan.connections, 4);
  PlanRequest request = RunWith(given);
  const auto refused = [&](const char* why) {
    EXPECT_THAT(Refusal(machines, request),
                StatusIs(StatusCode::kFailedPrecondition, why));
    request = RunWith(given);
  };
  for (const char* same : {"tcp", "TCP", "auto"}) {
    request.network = {same, "--transport"};
    EXPECT_THAT(PlanPath(machines, request), IsOk()) << same;
  }
  request.network = {"ucx", "--transport ucx"};
  refused("has transport tcp, but --transport ucx means ucx; leave one");
  request.network = {"pigeon", "--transport pigeon"};
  request.transports = {"pigeon"};
  refused("has transport tcp, but --transport pigeon means pigeon");
  request.network = {"IB", "--transport IB"};
  refused("has network TCP, but --transport IB means IB; leave one");
  request.tls = {"tcp", "--tls tcp"};
  refused("has tls '', but --tls tcp means tcp");
  request.connections = {2, "--connections 2"};
  refused("has connections 4, but --connections 2 means 2");
  request.transports = {"ucx"};
  refused("has transport tcp, which is not in every build");
}

TEST(GivenPlan, OfGpuMemoryIsRefusedInARunOfHostMemory) {
  std::vector<Machine> machines = {
      TestMachine("a", 2, 2, Fabric::kInfiniBand, 100),
      TestMachine("b", 2, 2, Fabric::kInfiniBand, 100)};
  PlanRequest request = Request("vgg16");
  EXPECT_THAT(Refusal(machines, RunWith(Given(MustPlan(
                                    machines, AssumedCalibration(), request)))),
              StatusIs(StatusCode::kFailedPrecondition,
                       "has memory staging for cuda0 of a, but frames of this "
                       "job are in host memory; plan with --memory host"));
  request.host_memory = {true, "--memory host"};
  EXPECT_THAT(
      PlanPath(machines, RunWith(Given(MustPlan(machines, AssumedCalibration(),
                                                request)))),
      IsOk());
}

TEST(GivenPlan, HasTheTensorsCodecsAndChunksOfTheRun) {
  PlanRequest request = Request("vgg16", 2, 1);
  request.gc_type = "2bit:reencode";
  request.chunk_bytes = {4 << 17, "--chunk-elements"};
  const auto given = Given(MustPlan({}, Measured(), request));
  PlanRequest run = RunWith(given);
  const auto exchange = [&run, &given] {
    return PlanExchange(given->plan, AssumedCalibration(), run);
  };
  const auto plan = exchange();
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->digest, given->plan.digest);
  for (const TensorPlan& each : plan->tensors) {
    EXPECT_EQ(each.chunk_bytes, 4 << 17);
    EXPECT_EQ(each.codec, "2bit:reencode");
  }
  const auto refused = [&](const char* why) {
    EXPECT_THAT(exchange(), StatusIs(StatusCode::kFailedPrecondition, why));
    run = RunWith(given);
  };
  run.profile.tensors.pop_back();
  refused("has 32 tensors, vgg16 31");
  run.profile.tensors[2].num_elems += 1;
  refused("where vgg16 has ");
  run.chunk_bytes = {4 << 16, "--chunk-elems 65536"};
  refused("has chunk 131072 elements, but --chunk-elems 65536 means 65536");
  run.tensor_codecs.assign(run.profile.tensors.size(), "");
  run.tensor_codecs[1] = "none";
  refused("has codec 2bit:reencode for ");
  run.servers = 3;
  refused("is for 0 machines with servers only, this job has 3");
  run.aggregation = {Aggregation::kDedicatedServers, "--servers 3"};
  refused(
      "has aggregation co-located-servers, but --servers 3 means "
      "dedicated-servers");
}

class PlanFile : public ::testing::Test {
 protected:
  PlanFile()
      : folder_(
            std::filesystem::path(::testing::TempDir()) /
            ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::create_directories(folder_);
  }
  ~PlanFile() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& text) const {
    const std::string path = folder_ / "plan.json";
    std::ofstream(path) << text;
    return path;
  }
  absl::Status Load(const std::string& text) const {
    return LoadPlan(Write(text)).status();
  }

  const Plan plan_ =
      MustPlan({}, AssumedCalibration(), Request("vgg16", 2, 10));

 private:
  std::filesystem::path folder_;
};

TEST_F(PlanFile, ComesBackWithItsName) {
  const std::string path = Write(PlanToJson(plan_));
  const auto given = LoadPlan(path);
  ASSERT_THAT(given, IsOk());
  EXPECT_EQ((*given)->plan.digest, plan_.digest);
  EXPECT_EQ((*given)->by, "--plan " + path);
  EXPECT_THAT(LoadPlan("/none"), StatusIs(StatusCode::kNotFound,
                                          "--plan /none: it cannot be read"));
}

TEST_F(PlanFile, IsRefusedWhereItIsDamagedOrOfAnotherVersion) {
  Json json = Json::parse(PlanToJson(plan_));
  const auto with = [&](const char* name, const Json& value) {
    Json changed = json;
    changed[name] = value;
    return Load(changed.dump());
  };
  EXPECT_THAT(with("schema", "telegrad-plan-9"),
              StatusIs(StatusCode::kInvalidArgument,
                       "'schema' is 'telegrad-plan-9', this version reads "
                       "telegrad-plan-2"));
  EXPECT_THAT(with("connections", 7),
              StatusIs(StatusCode::kInvalidArgument, "it was changed"));
  EXPECT_THAT(with("tensors", "none"),
              StatusIs(StatusCode::kInvalidArgument, "'tensors'"));
  EXPECT_THAT(with("network", "pigeon"),
              StatusIs(StatusCode::kInvalidArgument, "'network' is 'pigeon'"));
  const std::string text = PlanToJson(plan_);
  for (const std::string& bad :
       {std::string("[]"), std::string("7"), std::string("{}"),
        std::string(100000, '['), text.substr(0, text.size() / 2),
        std::string("[{\"plan\":7},8]")}) {
    EXPECT_FALSE(Load(bad).ok()) << bad.substr(0, 20);
  }
}

TEST_F(PlanFile, MayBeARunsSummary) {
  const Json one = {{"setting", "2bit"},
                    {"plan", {{"file", Json::parse(PlanToJson(plan_))}}}};
  const Json same = {{"setting", "fp16"}, {"plan", one["plan"]}};
  const Plan second =
      MustPlan({}, AssumedCalibration(), Request("alexnet", 2, 10));
  const Json more = {{"setting", "none"},
                     {"plan", {{"file", Json::parse(PlanToJson(second))}}}};
  EXPECT_THAT(Load(Json({one, same}).dump()), IsOk());
  const std::string path = Write(Json({one, more}).dump());
  EXPECT_THAT(LoadPlan(path), StatusIs(StatusCode::kInvalidArgument,
                                       "it has the plans of \"2bit\", "
                                       "\"none\"; FILE#SETTING"));
  const auto chosen = LoadPlan(path + "#none");
  ASSERT_THAT(chosen, IsOk());
  EXPECT_EQ((*chosen)->plan.digest, second.digest);
  EXPECT_THAT(LoadPlan(path + "#int8"),
              StatusIs(StatusCode::kInvalidArgument, "no run in it"));
}

TEST(PlanText, MayNotBeNestedWithoutEnd) {
  constexpr int kDeep = 1'000'000;
  const Plan plan = MustPlan({}, AssumedCalibration(), Request("vgg16", 2, 10));
  std::string text = PlanToJson(plan);
  ASSERT_EQ(text[0], '{');
  text.insert(1, absl::StrCat("\"pushers\":", std::string(kDeep, '['),
                              std::string(kDeep, ']'), ","));
  EXPECT_THAT(PlanFromJson(text),
              StatusIs(StatusCode::kInvalidArgument, "it is no plan"));
}

TEST(PlanText, LosesEvidenceBeforeItIsTooLong) {
  Plan plan = MustPlan({}, AssumedCalibration(), Request("vgg16", 2, 10));
  plan.decisions[0].evidence.assign(1000, {.what = "x", .raw = "y"});
  const size_t whole = PlanToJson(plan).size();
  EXPECT_EQ(PlanToJson(plan, whole)->size(), whole);
  EXPECT_EQ(PlanFromJson(PlanToJson(plan))->link_bytes_per_s, 10e9 / 8);
  const auto less = PlanToJson(plan, whole - 1);
  ASSERT_THAT(less, IsOk());
  EXPECT_EQ(PlanFromJson(*less)->digest, plan.digest);
  EXPECT_THAT(PlanToJson(plan, 100),
              StatusIs(StatusCode::kResourceExhausted, "a plan of"));
}

}  // namespace
}  // namespace telegrad
