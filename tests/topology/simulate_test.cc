#include "topology/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "topology/simulation/engine.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Pipeline OneStage(Resource resource, double seconds_per_elem) {
  Pipeline pipeline;
  pipeline.stages.push_back(
      {.uses = {{.resource = resource, .per_elem_s = seconds_per_elem}}});
  return pipeline;
}

// Two layers of one tensor each; forward takes 2 s, backward 4 s.
Play TwoLayers(const Pipeline& pipeline) {
  Play play{.layers = {0.5, 0.5}, .forward_s = 2, .backward_s = 4};
  play.tensors = {{&pipeline, 1, 1, 0}, {&pipeline, 1, 1, 1}};
  return play;
}

TEST(Engine, HandValuesOfOverlap) {
  const Pipeline link = OneStage(Resource::kSend, 1.5);
  Play play = TwoLayers(link);
  // Layer 1's gradient leaves 2 s before layer 0's; full overlap exposes what
  // layer 0 takes, as layer 1's hid behind backward.
  EXPECT_DOUBLE_EQ(PlaySteps(play).step_s, 6 + 1.5);
  play.overlap = Overlap::kBackward;
  EXPECT_DOUBLE_EQ(PlaySteps(play).step_s, 6 + 1.5);
  play.overlap = Overlap::kNone;
  EXPECT_DOUBLE_EQ(PlaySteps(play).step_s, 6 + 3);
  EXPECT_DOUBLE_EQ(PlaySteps(play).busy_s[3], 3);  // send
}

TEST(Engine, LayersTakeTheirShares) {
  const Pipeline link = OneStage(Resource::kSend, 1.5);
  Play play = TwoLayers(link);
  // Layer 1's gradient leaves after 1 s of backward; forward takes 1.5 s of
  // layer 0 and 0.5 s of layer 1, which is back long before.
  play.layers = {0.75, 0.25};
  EXPECT_DOUBLE_EQ(PlaySteps(play).step_s, 6 + 1.5);
  // Layer 1's is ready 1 s before layer 0's, which waits 0.5 s for the link.
  play.layers = {0.25, 0.75};
  EXPECT_DOUBLE_EQ(PlaySteps(play).step_s, 6 + 2);
}

TEST(Engine, PrioritiesLetTheFirstLayerPass) {
  // Layer 1's tensor has three chunks of 1.5 s, layer 0's one. At the end of
  // backward one of layer 1's was sent and half a second of the next.
  const Pipeline link = OneStage(Resource::kSend, 1.5);
  Play play = TwoLayers(link);
  play.tensors[1].elems = 3;
  // 0: ready at 6, sent from 7 to 8.5, forward 8.5 to 9.5; the rest of 1 until
  // 10, its forward to 11; backward as from 2 on.
  EXPECT_DOUBLE_EQ(PlaySteps(play).step_s, 8.5 + 0.5);
  play.first_layers_first = false;
  // 1 is back at 8.5, 0 at 10.
  EXPECT_DOUBLE_EQ(PlaySteps(play).step_s, 10);
}

TEST(Engine, StagesOfOneResourceTakeTurns) {
  Pipeline pipeline = OneStage(Resource::kCore, 1);
  pipeline.stages.push_back(
      {.uses = {{.resource = Resource::kSend, .per_elem_s = 1}},
       .delay_s = 0.25});
  pipeline.stages.push_back(
      {.uses = {{.resource = Resource::kCore, .per_elem_s = 1}}});
  Play play{.layers = {1}};
  play.tensors = {{&pipeline, 1, 1, 0}};
  EXPECT_DOUBLE_EQ(PlaySteps(play).step_s, 3.25);
  play.tensors = {{&pipeline, 2, 1, 0}};
  EXPECT_DOUBLE_EQ(PlaySteps(play).step_s, 4.25);
  // What the last stage sends has to arrive, too.
  pipeline.stages[2].delay_s = 0.5;
  EXPECT_DOUBLE_EQ(PlaySteps(play).step_s, 4.75);
}

Scenario Base(const std::string& profile) {
  Scenario scenario{.profile = *LoadGradientProfile(profile)};
  scenario.workers = 4;
  scenario.compute_s = 0.2;
  scenario.link_gbps = 10;
  return scenario;
}

Prediction Must(const Scenario& scenario) {
  const auto prediction = Simulate(scenario, AssumedCalibration());
  EXPECT_TRUE(prediction.ok()) << prediction.status();
  return prediction.ok() ? *prediction : Prediction{};
}

TEST(Simulate, OneWorkerNeedsNoNetwork) {
  Scenario scenario = Base("resnet50");
  scenario.workers = 1;
  scenario.dollars_per_hour = 3.6;
  const Prediction alone = Must(scenario);
  EXPECT_NEAR(alone.step_s, 0.2, 1e-9);
  EXPECT_NEAR(alone.samples_per_s, 320, 1e-6);
  EXPECT_NEAR(alone.efficiency, 1, 1e-9);
  EXPECT_NEAR(alone.epoch_s, 1'281'167 / 320.0, 1e-3);
  EXPECT_NEAR(alone.epoch_dollars, alone.epoch_s / 1000, 1e-6);
}

TEST(Simulate, AgreesWithTheFormulas) {
  // Communication alone, of one tensor: T = sum t + (k - 1) max t.
  Random random(5);
  const Calibration calibration = AssumedCalibration();
  for (int i = 0; i < 50; ++i) {
    Scenario scenario = Base("vgg16");
    scenario.profile.tensors = {
        {.name = "w", .num_elems = 1 << 26, .is_matrix = true}};
    scenario.compute_s = 0;
    scenario.workers = 2 + static_cast<int>(random.NextBelow(63));
    scenario.link_gbps = 0.1 + 100 * static_cast<double>(random.NextUniform());
    scenario.codec = random.NextBelow(2) == 0 ? "none" : "2bit:reencode";
    scenario.aggregation = "co-located-servers";
    scenario.chunk_elems = 1 << 20;
    const LinkFigures& tcp = *calibration.FindLink("TCP");
    const ClusterCost cluster{.workers = scenario.workers,
                              .reduce_elems_per_s = calibration.reduce.value,
                              .bytes_per_s = scenario.link_gbps * 1e9 / 8,
                              .latency_s = tcp.latency_s.value,
                              .message_cpu_s = tcp.message_cpu_s.value,
                              .cpu_s_per_byte = tcp.cpu_s_per_byte.value};
    const CodecCost codec =
        scenario.codec == "none"
            ? DenseCost(cluster)
            : *CostOf(*calibration.FindCodec(scenario.codec), cluster);
    const double formula = PipelineSeconds(
        MakePipeline(Aggregation::kColocatedServers, cluster, codec), 1 << 26,
        1 << 20);
    // 64 chunks; turns on the core cost at most a few of them.
    EXPECT_NEAR(Must(scenario).step_s, formula, 0.06 * formula)
        << scenario.codec << " " << scenario.workers;
  }
}

TEST(SimulateProperty, MoreIsNeverFaster) {
  Random random(6);
  for (int i = 0; i < 12; ++i) {
    Scenario scenario = Base(i % 2 == 0 ? "alexnet" : "resnet50");
    scenario.workers = 2 + static_cast<int>(random.NextBelow(30));
    scenario.link_gbps = 0.5 + 40 * static_cast<double>(random.NextUniform());
    scenario.codec = random.NextBelow(2) == 0 ? "none" : "2bit";
    scenario.aggregation = "co-located-servers";
    // Smaller than the parts of however many servers, which overlap more the
    // more there are.
    scenario.chunk_elems = kMinPartElems;
    const double before = Must(scenario).step_s;
    EXPECT_GE(before, scenario.compute_s);
    // Turns may change, by far less than what is asked for here.
    Scenario more = scenario;
    more.link_gbps *= 2;
    EXPECT_LE(Must(more).step_s, before * 1.01);
    more = scenario;
    more.workers += 8;
    EXPECT_GE(Must(more).step_s, before * 0.99);
    more = scenario;
    more.overlap = Overlap::kNone;
    EXPECT_GE(Must(more).step_s, before * 0.99);
  }
}

TEST(Simulate, TenThousandWorkersAreAsEasyAsTwo) {
  Scenario scenario = Base("resnet152");
  scenario.workers = 10'000;
  scenario.codec = "1bit";
  const Prediction many = Must(scenario);
  EXPECT_GT(many.samples_per_s, 0);
  EXPECT_NEAR(many.bytes_per_worker, 2 * 60'194'857 * 1.0625 / 8 * 0.9999, 1);
}

// A million elements each; `ready` are milliseconds of a backward pass.
Prediction OfReadyTimes(const std::array<const char*, 2>& ready) {
  const std::string csv =
      absl::StrCat("name,shape,elements,ready_ms\na,1000x1000,1000000,",
                   ready[0], "\nb,1000x1000,1000000,", ready[1], "\n");
  Scenario scenario = Base("vgg16");
  scenario.profile = *ParseGradientProfile("p", csv);
  scenario.compute_s = 0.005;
  scenario.link_gbps = 10;
  return Must(scenario);
}

TEST(Simulate, TakesTheTimesOfTheProfile) {
  const double even = OfReadyTimes({"10", "5"}).step_s;
  const double late = OfReadyTimes({"10", "9.5"}).step_s;
  EXPECT_LT(even, late);
  // Only the shares of the pass count.
  EXPECT_DOUBLE_EQ(OfReadyTimes({"20", "10"}).step_s, even);
  Scenario untimed = Base("vgg16");
  untimed.profile = *ParseGradientProfile(
      "p", "name,shape,elements\na,1000x1000,1000000\nb,1000x1000,1000000\n");
  untimed.compute_s = 0.005;
  EXPECT_DOUBLE_EQ(Must(untimed).step_s, even);
}

// A tensor on all of a million servers would be 33 million chunks a step.
TEST(Simulate, AMillionWorkersShareATensorInBounds) {
  Scenario scenario = Base("vgg16");
  scenario.workers = 1'000'000;
  scenario.aggregation = Name(Aggregation::kColocatedServers);
  scenario.profile = *ParseGradientProfile(
      "p", "name,shape,elements\nw,1048576x1048576,1099511627776\n");
  EXPECT_GT(Must(scenario).step_s, 0);
}

TEST(Simulate, RefusesWhatMakesNoSense) {
  const auto why = [](const auto& change) {
    Scenario scenario = Base("alexnet");
    change(scenario);
    return std::string(
        Simulate(scenario, AssumedCalibration()).status().message());
  };
  EXPECT_THAT(why([](Scenario& s) { s.workers = 0; }),
              HasSubstr("workers is 0"));
  EXPECT_THAT(why([](Scenario& s) { s.link_gbps = 0; }),
              HasSubstr("link-gbps is 0"));
  EXPECT_THAT(why([](Scenario& s) { s.compute_s = -5e-3; }),
              HasSubstr("compute-ms is -5"));
  EXPECT_THAT(why([](Scenario& s) { s.chunk_elems = -1; }),
              HasSubstr("chunk-elements is -1"));
  EXPECT_THAT(why([](Scenario& s) { s.min_codec_elems = -1; }),
              HasSubstr("min-codec-elements is -1"));
  EXPECT_THAT(why([](Scenario& s) { s.codec = "zip"; }),
              HasSubstr("no codec 'zip'; it has none, 2bit"));
  EXPECT_THAT(why([](Scenario& s) { s.aggregation = "star"; }),
              HasSubstr("no aggregation 'star'"));
  EXPECT_THAT(why([](Scenario& s) { s.profile = {}; }), HasSubstr("profile"));
  EXPECT_THAT(why([](Scenario& s) {
                s.codec = "2bit";
                s.workers = 100'000;
              }),
              HasSubstr("no width"));
}

TEST(Simulate, TransportsAreNamedInAnyCaseOrRefused) {
  Scenario scenario = Base("resnet50");
  scenario.workers = 2;
  const double tcp_s = Must(scenario).step_s;
  for (const char* name : {"tcp", "auto", "ucx", "ofi", "inproc"}) {
    scenario.transport = name;
    EXPECT_EQ(Must(scenario).step_s, tcp_s) << name;
  }
  scenario.transport = "RoCEv2";
  const double roce_s = Must(scenario).step_s;
  EXPECT_LT(roce_s, tcp_s);
  scenario.transport = "rocev2";
  EXPECT_EQ(Must(scenario).step_s, roce_s);
  const auto why = [&](const char* name, const Calibration& calibration) {
    scenario.transport = name;
    return Simulate(scenario, calibration).status();
  };
  Calibration calibration = AssumedCalibration();
  for (const char* name : {"pigeon", "", "intra", "local"}) {
    const absl::Status status = why(name, calibration);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(status.message(), HasSubstr("TCP, IB, RoCEv2 and EFA"));
  }
  calibration.links.erase(calibration.links.begin() + 1);
  EXPECT_THAT(why("ib", calibration).message(),
              HasSubstr("no link 'IB'; it has TCP, RoCEv2, EFA, intra"));
}

absl::StatusOr<SweepResult> Try(const std::string& sweep) {
  return Sweep(Base("alexnet"), AssumedCalibration(), sweep);
}

TEST(Sweep, TakesAllCombinations) {
  const auto sweep = Try("workers=1:8:x2,codec=none|2bit,link-gbps=10:30:+10");
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  EXPECT_THAT(sweep->fields, ElementsAre("workers", "codec", "link-gbps"));
  ASSERT_EQ(sweep->points.size(), 4u * 2 * 3);
  EXPECT_THAT(sweep->points[0].values, ElementsAre("1", "none", "10"));
  EXPECT_THAT(sweep->points[1].values, ElementsAre("1", "none", "20"));
  EXPECT_THAT(sweep->points[23].values, ElementsAre("8", "2bit", "30"));
  Scenario last = Base("alexnet");
  last.workers = 8;
  last.codec = "2bit";
  last.link_gbps = 30;
  EXPECT_EQ(sweep->points[23].prediction.step_s, Must(last).step_s);
}

TEST(Sweep, ABatchTakesTheTimeOfItsImages) {
  Scenario scenario = Base("alexnet");
  scenario.images_per_s = 100;
  const auto times = [&](const char* sweep) {
    const auto done = Sweep(scenario, AssumedCalibration(), sweep);
    EXPECT_TRUE(done.ok()) << done.status();
    return std::pair(done->points[0].prediction.step_s,
                     done->points[1].prediction.step_s);
  };
  const auto [small, large] = times("batch=64|1280");
  scenario.batch = 1280;
  scenario.compute_s = 12.8;
  EXPECT_EQ(large, Must(scenario).step_s);
  const auto [given, same] = times("compute-ms=200,batch=64|1280");
  EXPECT_EQ(given, same);
}

TEST(Sweep, RefusesBadOnes) {
  const auto why = [](const std::string& sweep) {
    return std::string(Try(sweep).status().message());
  };
  EXPECT_THAT(why(""), HasSubstr("no values"));
  EXPECT_THAT(why("workers"), HasSubstr("no values"));
  EXPECT_THAT(why("colour=red"), HasSubstr("no field 'colour'"));
  EXPECT_THAT(why("workers=1:8"), HasSubstr("FIRST:LAST"));
  EXPECT_THAT(why("workers=1:8:x1"), HasSubstr("does not grow"));
  EXPECT_THAT(why("workers=1:8:*2"), HasSubstr("does not grow"));
  EXPECT_THAT(why("workers=1:1e9:+1"), HasSubstr("too many"));
  EXPECT_THAT(why("workers=8:1:x2"), HasSubstr("no values"));
  EXPECT_THAT(why("workers=many"), HasSubstr("not a number"));
  EXPECT_THAT(why("workers=1e30"), HasSubstr("not a number"));
  for (const char* field : {"workers", "servers", "gpus-per-node"}) {
    EXPECT_THAT(why(std::string(field) + "=1.5:3:x2"),
                HasSubstr("'1.5' is not a whole number"));
  }
  EXPECT_THAT(why("workers=1:1000:+1,batch=1:1000:+1"),
              HasSubstr("at most 10000"));
}

TEST(Sweep, Reports) {
  const auto sweep = Try("workers=1:8:x2,codec=none|2bit");
  ASSERT_TRUE(sweep.ok());
  EXPECT_THAT(SweepToCsv(*sweep), StartsWith("workers,codec,step_ms,"));
  const auto json = nlohmann::json::parse(SweepToJson(*sweep));
  ASSERT_EQ(json.size(), 8u);
  EXPECT_EQ(json[7]["workers"], "8");
  EXPECT_GT(json[7]["samples_per_s"], json[0]["samples_per_s"]);
  const std::string html = SweepToHtml(*sweep, "a <b> title");
  EXPECT_THAT(html, AllOf(HasSubstr("a &lt;b&gt; title"), HasSubstr("<svg"),
                          HasSubstr("codec=2bit"), HasSubstr("</html>")));
  EXPECT_EQ(html.find("http"), std::string::npos);  // self-contained
  EXPECT_EQ(html.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace telegrad
