#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/topology/plan_machines.h"
#include "topology/cost_model.h"
#include "topology/plan.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

TEST(Plan, CompressesSlowLinksAndSaysWhy) {
  PlanRequest request = Request("vgg16", 2, 1);
  request.gc_allow = {"2bit:reencode"};
  const std::vector<Machine> machines = Cluster(2, Fabric::kInfiniBand, 200);
  const Plan slow = MustPlan(machines, Measured(), request);
  EXPECT_EQ(slow.codec, "2bit:reencode");
  EXPECT_EQ(slow.aggregation, Aggregation::kColocatedServers);
  EXPECT_THAT(Lines(slow),
              Contains(AllOf(HasSubstr("compression 2bit:reencode: link 1 Gb/s "
                                       "< break-even"),
                             HasSubstr("Gb/s"))));
  EXPECT_LT(slow.comm_s, slow.comm_dense_s / 10);
  // The large matrices are compressed, the vectors are not worth a call.
  EXPECT_EQ(slow.tensors[26].codec, "2bit:reencode");

  request.link_gbps = 0;  // by the ports
  const Plan fast = MustPlan(machines, Measured(), request);
  EXPECT_EQ(fast.codec, "none");
  EXPECT_EQ(fast.aggregation, Aggregation::kRing);
  EXPECT_THAT(
      Lines(fast),
      Contains(HasSubstr("compression off: link 200 Gb/s > break-even")));
  EXPECT_EQ(fast.comm_s, fast.comm_dense_s);
}

TEST(Plan, UnmeasuredSpeedsNeverJustifyALossyCodec) {
  PlanRequest request = Request("vgg16", 2, 0.1);
  EXPECT_EQ(MustPlan({}, AssumedCalibration(), request).codec, "none");
  Calibration calibration = Measured();
  EXPECT_NE(MustPlan({}, calibration, request).codec, "none");
  request.link_gbps = 0;  // then nobody knows the link
  const Plan plan = MustPlan({}, calibration, request);
  EXPECT_EQ(plan.codec, "none");
  EXPECT_THAT(Lines(plan), Contains(HasSubstr("the link's rate is not known")));
}

TEST(Plan, AForcedCodecIsUsedAndAForbiddenOneIsNot) {
  PlanRequest request = Request("vgg16", 2, 200);
  request.gc_type = "1bit";
  const Plan forced = MustPlan({}, AssumedCalibration(), request);
  for (const TensorPlan& each : forced.tensors) EXPECT_EQ(each.codec, "1bit");
  request.gc_type = "none";
  request.link_gbps = 0.1;
  EXPECT_EQ(MustPlan({}, Measured(), request).codec, "none");
  request.gc_type = "3bit";
  EXPECT_THAT(MakePlan({}, Measured(), request).status().message(),
              HasSubstr("no codec '3bit'; it has none, 2bit"));
}

TEST(Plan, EachTensorGetsTheCodecThatItWasGiven) {
  PlanRequest request = Request("vgg16", 2, 1);
  request.servers = 1;
  request.chunk_bytes = {1 << 20, "--chunk-elems 262144"};
  const size_t count = request.profile.tensors.size();
  request.tensor_codecs.assign(count, "none");
  request.tensor_codecs[26] = "2bit";
  request.tensor_codecs[28] = "fp16";
  const Plan plan = MustPlan({}, Measured(), request);
  EXPECT_EQ(plan.codec, "2bit,fp16");
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(plan.tensors[i].codec, request.tensor_codecs[i]);
    EXPECT_EQ(plan.tensors[i].chunk_bytes, 1 << 20);
  }
  EXPECT_LT(plan.comm_s, plan.comm_dense_s);
  EXPECT_THAT(
      Lines(plan),
      Contains(AllOf(HasSubstr("compression 2bit for 1 of 32 tensors "
                               "(pays at any rate: "),
                     HasSubstr("fp16 for 1 of 32"),
                     HasSubstr("the job's codec and its rules; link 1 Gb/s"))));
  request.tensor_codecs.pop_back();
  EXPECT_THAT(MakePlan({}, Measured(), request).status().message(),
              HasSubstr("codecs of 31 tensors for a profile of 32"));
}

TEST(Plan, AChoiceLeavesOutWhatMayNotBeCompressed) {
  PlanRequest request = Request("vgg16", 2, 1);
  request.gc_allow = {"2bit:reencode"};
  request.tensor_codecs.assign(request.profile.tensors.size(), "");
  ASSERT_EQ(MustPlan({}, Measured(), request).tensors[26].codec,
            "2bit:reencode");
  request.tensor_codecs[26] = "none";
  const Plan plan = MustPlan({}, Measured(), request);
  EXPECT_EQ(plan.codec, "2bit:reencode");
  EXPECT_EQ(plan.tensors[26].codec, "none");
}

TEST(Plan, AChoiceReckonsWithWhatOthersWereGiven) {
  PlanRequest request = Request("vgg16", 2, 1);
  request.gc_allow = {"2bit:reencode"};
  request.tensor_codecs.assign(request.profile.tensors.size(), "");
  request.tensor_codecs[26] = "none";
  const Plan dense = MustPlan({}, Measured(), request);
  request.tensor_codecs[26] = "fp16";
  const Plan given = MustPlan({}, Measured(), request);
  EXPECT_EQ(given.tensors[26].codec, "fp16");
  EXPECT_EQ(given.tensors[28].codec, "2bit:reencode");
  EXPECT_EQ(given.codec, "2bit:reencode,fp16");
  EXPECT_LT(given.comm_s, 0.7 * dense.comm_s);  // most elements are its
  EXPECT_EQ(given.comm_dense_s, dense.comm_dense_s);
  EXPECT_THAT(Lines(given),
              Contains(AllOf(HasSubstr("compression fp16 for 1 of 32 tensors"),
                             HasSubstr("by rule"))));
  request.gc_type = "none";
  EXPECT_EQ(MustPlan({}, Measured(), request).codec, "fp16");
}

// Two workers share a server's link unless their rate was seen with it so.
TEST(Plan, ARateThatWasSeenWithBusyServersIsNotSharedOutAgain) {
  PlanRequest request = Request("vgg16", 2, 1);
  request.servers = 1;
  request.gc_type = "none";
  const double shared = MustPlan({}, Measured(), request).comm_s;
  request.is_link_of_busy_servers = true;
  const double seen = MustPlan({}, Measured(), request).comm_s;
  EXPECT_NEAR(shared / seen, 2, 0.1);
}

TEST(Plan, DoesNotCompressWhatHidesBehindBackward) {
  PlanRequest request = Request("resnet50", 2, 10);
  request.gc_allow = {"2bit:reencode"};
  EXPECT_EQ(MustPlan({}, Measured(), request).codec, "2bit:reencode");
  request.compute_s = 0.5;
  const Plan plan = MustPlan({}, Measured(), request);
  EXPECT_EQ(plan.codec, "none");
  EXPECT_THAT(Lines(plan), Contains(HasSubstr("hide behind backward")));
}

// Where gradients lie on a GPU, codes are sooner over a slow bus, too.
TEST(Plan, ASlowBusIsAReasonToCompress) {
  PlanRequest request = Request("vgg16", 2, 400);
  request.servers = 2;
  request.aggregation = {Aggregation::kDedicatedServers, "--kv-store"};
  request.gc_allow = {"2bit:reencode"};
  Calibration calibration = Measured();
  for (CodecFigures& codec : calibration.codecs) {
    codec.on_gpu = true;
    codec.encode.value = codec.decode.value = 100e9;
    codec.sum.value = 0.2e9;  // servers take long to sum
  }
  const Figure fast = {.value = 100e9, .confidence = Confidence::kMeasured};
  calibration.links.push_back(
      {.name = kBusLink, .send = fast, .receive = fast});
  EXPECT_EQ(MustPlan({}, calibration, request).codec, "none");
  LinkFigures& bus = calibration.links.back();
  bus.send.value = bus.receive.value = 0.2e9;
  const Plan plan = MustPlan({}, calibration, request);
  EXPECT_EQ(plan.codec, "2bit:reencode");
  EXPECT_LT(plan.comm_s, plan.comm_dense_s / 2);
}

TEST(Plan, AUncertainGainIsNoGain) {
  // Near the break-even a wide spread must turn compression off.
  PlanRequest request = Request("vgg16", 2);
  request.gc_allow = {"2bit:reencode"};
  Calibration sure = Measured();
  for (CodecFigures& codec : sure.codecs) {
    codec.encode.spread = codec.decode.spread = codec.sum.spread =
        codec.reply_encode.spread = 0;
  }
  Calibration unsure = sure;
  for (CodecFigures& codec : unsure.codecs) {
    codec.encode.spread = codec.decode.spread = codec.sum.spread =
        codec.reply_encode.spread = 0.6;
  }
  int differ = 0;
  for (double gbps = 1; gbps < 400; gbps *= 1.3) {
    request.link_gbps = gbps;
    const bool on = MustPlan({}, sure, request).codec != "none";
    const bool on_unsure = MustPlan({}, unsure, request).codec != "none";
    EXPECT_TRUE(on || !on_unsure) << gbps;
    differ += on != on_unsure ? 1 : 0;
  }
  EXPECT_GT(differ, 0);
}

TEST(PlanProperty, MoreBandwidthNeverTurnsCompressionOn) {
  const std::vector<Machine> machines = Cluster(1, Fabric::kInfiniBand, 200);
  for (const std::string profile : {"vgg16", "resnet50", "alexnet"}) {
    for (const int workers : {2, 4, 16}) {
      PlanRequest request = Request(profile, workers);
      bool was_on = true;
      for (double gbps = 0.1; gbps < 1000; gbps *= 1.6) {
        request.link_gbps = gbps;
        const bool on = MustPlan(machines, Measured(), request).codec != "none";
        EXPECT_TRUE(was_on || !on) << profile << workers << " at " << gbps;
        was_on = on;
      }
      EXPECT_FALSE(was_on);
    }
  }
}

}  // namespace
}  // namespace telegrad
