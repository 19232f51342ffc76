#include "topology/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace telegrad {
namespace {

constexpr int64_t kVgg16 = 138'357'544;
constexpr double kGbit = 1e9 / 8;

ClusterCost Bare(int workers, double bytes_per_s) {
  return {.workers = workers,
          .reduce_elems_per_s = 1e18,
          .bytes_per_s = bytes_per_s};
}

// Seconds of the whole of VGG16 as one tensor.
double Seconds(Aggregation aggregation, const ClusterCost& cluster,
               const CodecCost& codec) {
  const Pipeline pipeline = MakePipeline(aggregation, cluster, codec);
  return PipelineSeconds(pipeline, kVgg16, 1 << 20);
}

TEST(Pipeline, DenseTakesTheBytesOfTheFormulas) {
  const double whole = 4.0 * kVgg16 / kGbit;
  for (const int workers : {2, 3, 4, 8, 64}) {
    const ClusterCost cluster = Bare(workers, kGbit);
    const CodecCost dense = DenseCost(cluster);
    const double f = 2.0 * (workers - 1) / workers;
    EXPECT_NEAR(Seconds(Aggregation::kRing, cluster, dense), f * whole, 1e-6);
    EXPECT_NEAR(Seconds(Aggregation::kColocatedServers, cluster, dense),
                f * whole, 1e-6);
    EXPECT_NEAR(Seconds(Aggregation::kAllGather, cluster, dense),
                (workers - 1) * whole, 1e-6);
  }
  // Push and pull overlap but for the first chunk, W / S of the gradient each.
  ClusterCost cluster = Bare(8, kGbit);
  cluster.servers = 2;
  EXPECT_NEAR(
      Seconds(Aggregation::kDedicatedServers, cluster, DenseCost(cluster)),
      4 * whole, 4 * whole / 131);
  EXPECT_NEAR(
      Seconds(Aggregation::kRecursiveDoubling, cluster, DenseCost(cluster)),
      3 * whole, 1e-6);
  EXPECT_NEAR(
      Seconds(Aggregation::kHalvingDoubling, cluster, DenseCost(cluster)),
      2 * 7.0 / 8 * whole, 1e-6);
  EXPECT_NEAR(Seconds(Aggregation::kTree, cluster, DenseCost(cluster)),
              3 * whole, 1e-6);
  EXPECT_EQ(Seconds(Aggregation::kLocal, cluster, DenseCost(cluster)), 0);
}

TEST(Pipeline, LatencyCountsOnceARound) {
  ClusterCost cluster = Bare(8, 1e18);
  cluster.latency_s = 1e-3;
  const CodecCost dense = DenseCost(cluster);
  const auto seconds = [&](Aggregation aggregation) {
    return PipelineSeconds(MakePipeline(aggregation, cluster, dense), 1, 1);
  };
  EXPECT_NEAR(seconds(Aggregation::kRing), 14e-3, 1e-9);
  EXPECT_NEAR(seconds(Aggregation::kRecursiveDoubling), 3e-3, 1e-9);
  EXPECT_NEAR(seconds(Aggregation::kHalvingDoubling), 6e-3, 1e-9);
  EXPECT_NEAR(seconds(Aggregation::kTree), 6e-3, 1e-9);
  EXPECT_NEAR(seconds(Aggregation::kColocatedServers), 2e-3, 1e-9);
  EXPECT_NEAR(seconds(Aggregation::kAllGather), 7e-3, 1e-9);
  cluster.workers = 6;  // folds to 4 and back
  EXPECT_NEAR(seconds(Aggregation::kHalvingDoubling), 6e-3, 1e-9);
  EXPECT_NEAR(seconds(Aggregation::kTree), 4e-3, 1e-9);
  EXPECT_NEAR(seconds(Aggregation::kRecursiveDoubling), 4e-3, 1e-9);
}

TEST(Pipeline, FramesOfServersHaveCostsOfTheirOwn) {
  ClusterCost cluster = Bare(2, 1e18);
  cluster.latency_s = 1e-6;
  cluster.message_cpu_s = 1e-6;
  cluster.frame_latency_s = 1e-3;
  cluster.frame_cpu_s = 1e-4;
  const CodecCost dense = DenseCost(cluster);
  const auto seconds = [&](Aggregation aggregation) {
    return PipelineSeconds(MakePipeline(aggregation, cluster, dense), 1, 1);
  };
  // Out and back; a machine sends and receives a push and an answer.
  EXPECT_NEAR(seconds(Aggregation::kColocatedServers), 2e-3 + 4e-4, 1e-7);
  EXPECT_NEAR(seconds(Aggregation::kDedicatedServers), 2e-3 + 2 * 2e-4, 1e-7);
  EXPECT_NEAR(seconds(Aggregation::kRing), 6e-6, 1e-7);
  // And per byte: half of eight cross the link, each with two ends.
  cluster.frame_cpu_s_per_byte = 1e-3;
  EXPECT_NEAR(seconds(Aggregation::kColocatedServers), 2.4e-3 + 8e-3, 1e-7);
  EXPECT_NEAR(seconds(Aggregation::kRing), 6e-6, 1e-7);
}

TEST(Pipeline, HierarchicalAddsTheInnerLegs) {
  ClusterCost cluster = Bare(2, kGbit);
  const double outer = Seconds(Aggregation::kRing, cluster, DenseCost(cluster));
  cluster.gpus_per_node = 8;
  cluster.intra_bytes_per_s = 100e9;
  EXPECT_NEAR(Seconds(Aggregation::kRing, cluster, DenseCost(cluster)),
              outer + 2.0 * 7 / 8 * 4 * kVgg16 / 100e9, 1e-6);
}

TEST(Pipeline, StagesOfOneResourceAdd) {
  Pipeline pipeline;
  const auto add = [&](Resource resource, double seconds) {
    pipeline.stages.push_back(
        {.uses = {{.resource = resource, .per_elem_s = seconds}}});
  };
  add(Resource::kCore, 1);
  add(Resource::kSend, 1.5);
  add(Resource::kCore, 1);
  // Four chunks of one: the core is the bottleneck, 2 s each.
  EXPECT_DOUBLE_EQ(PipelineSeconds(pipeline, 4, 1), 3.5 + 3 * 2);
  pipeline.is_chunked = false;
  EXPECT_DOUBLE_EQ(PipelineSeconds(pipeline, 4, 1), 4 * 3.5);
}

// Of 8 bytes per element to and from servers, those for other machines are
// summed over at both ends and the rest is copied; dense pushes are looked
// through. Rings have no frames.
TEST(Pipeline, FramesOfServersAreCheckedAndCopied) {
  constexpr double kElems = 1e6;
  const auto core = [](const ClusterCost& cluster, Aggregation aggregation,
                       const CodecCost& codec) {
    const Pipeline pipeline = MakePipeline(aggregation, cluster, codec);
    return Occupancy(pipeline, kElems,
                     kElems)[static_cast<size_t>(Resource::kCore)];
  };
  ClusterCost cluster = Bare(4, kGbit);
  cluster.cores = 2;
  cluster.check_s_per_byte = 1e-9;
  const CodecCost dense = DenseCost(cluster);
  const CodecCost half{
      .name = "half", .compresses = true, .push_bits = 16, .reply_bits = 16};
  const double look = 4e-9 * kElems / 2;
  EXPECT_NEAR(core(cluster, Aggregation::kColocatedServers, dense),
              look + 2 * 8e-9 * 0.75 * kElems / 2, 1e-8);
  EXPECT_NEAR(core(cluster, Aggregation::kColocatedServers, half),
              2 * 4e-9 * 0.75 * kElems / 2, 1e-8);
  EXPECT_NEAR(core(cluster, Aggregation::kRing, dense), 0, 1e-8);
  cluster.servers = 2;
  EXPECT_NEAR(core(cluster, Aggregation::kDedicatedServers, dense),
              look + 8e-9 * kElems / 2, 1e-8);
  cluster.check_s_per_byte = 0;
  cluster.copy_s_per_byte = 1e-9;
  EXPECT_NEAR(core(cluster, Aggregation::kColocatedServers, dense),
              8e-9 * 0.25 * kElems / 2, 1e-8);
}

// A GPU's codes cross the bus, or floats where a core has the codec; sums are a
// core's.
TEST(Pipeline, GradientsOnAGpuCrossTheBus) {
  constexpr double kElems = 1e6;
  const auto busy = [](const ClusterCost& cluster, const CodecCost& codec,
                       Resource resource) {
    const Pipeline pipeline =
        MakePipeline(Aggregation::kDedicatedServers, cluster, codec);
    return Occupancy(pipeline, kElems, kElems)[static_cast<size_t>(resource)];
  };
  ClusterCost cluster = Bare(2, kGbit);
  cluster.servers = 1;
  CodecCost codec{.name = "2bit",
                  .compresses = true,
                  .encode_s = 1e-9,
                  .merge_s = 2e-9,
                  .decode_s = 3e-9,
                  .push_bits = 2,
                  .reply_bits = 4};
  const CodecCost dense = DenseCost(cluster);
  EXPECT_EQ(busy(cluster, dense, Resource::kToHost), 0);
  cluster.to_host_bytes_per_s = 1e9;
  cluster.to_device_bytes_per_s = 2e9;
  EXPECT_NEAR(busy(cluster, dense, Resource::kToHost), 4e-3, 1e-9);
  EXPECT_NEAR(busy(cluster, dense, Resource::kToDevice), 2e-3, 1e-9);
  EXPECT_NEAR(busy(cluster, codec, Resource::kToHost), 4e-3, 1e-9);
  EXPECT_NEAR(busy(cluster, codec, Resource::kCore), 4e-3, 1e-9);
  codec.on_gpu = true;
  EXPECT_NEAR(busy(cluster, codec, Resource::kToHost), 0.25e-3, 1e-9);
  EXPECT_NEAR(busy(cluster, codec, Resource::kToDevice), 0.25e-3, 1e-9);
  EXPECT_NEAR(busy(cluster, codec, Resource::kGpu), 4e-3, 1e-9);
  EXPECT_NEAR(busy(cluster, codec, Resource::kCore), 0, 1e-9);
  EXPECT_NEAR(busy(cluster, codec, Resource::kServerCore), 4e-3, 1e-9);
}

TEST(Pipeline, TensorsOverlapWhereTheyUseDifferentResources) {
  Pipeline core, link;
  core.stages.push_back(
      {.uses = {{.resource = Resource::kCore, .per_elem_s = 1}}});
  link.stages.push_back(
      {.uses = {{.resource = Resource::kSend, .per_elem_s = 1}}});
  const std::vector<TensorCost> together = {{&core, 5, 0, 0}, {&link, 7, 0, 1}};
  EXPECT_DOUBLE_EQ(FinishSeconds(together), 8);
  const std::vector<TensorCost> behind = {{&core, 5, 0, 0}, {&core, 7, 0, 1}};
  EXPECT_DOUBLE_EQ(FinishSeconds(behind), 12);
  const std::vector<TensorCost> late = {{&core, 5, 0, 0}, {&core, 7, 0, 20}};
  EXPECT_DOUBLE_EQ(FinishSeconds(late), 27);
}

// A random job whose links and codecs are anything plausible.
struct Job {
  ClusterCost cluster;
  CodecCost codec;
  int64_t elems = 0;
};

Job RandomJob(Random& random) {
  const auto log_uniform = [&](double low, double high) {
    return low *
           std::pow(high / low, static_cast<double>(random.NextUniform()));
  };
  Job job;
  job.cluster = {.workers = 2 + static_cast<int>(random.NextBelow(63)),
                 .reduce_elems_per_s = log_uniform(1e8, 1e11),
                 .bytes_per_s = log_uniform(1e7, 1e11),
                 .latency_s = log_uniform(1e-6, 1e-3),
                 .message_cpu_s = log_uniform(1e-7, 1e-4),
                 .cpu_s_per_byte = log_uniform(1e-12, 1e-9)};
  job.codec = {.name = "c",
               .compresses = true,
               .encode_s = 1 / log_uniform(1e8, 1e11),
               .merge_s = 1 / log_uniform(1e8, 1e11),
               .reply_encode_s = 1 / log_uniform(1e8, 1e11),
               .decode_s = 1 / log_uniform(1e8, 1e11),
               .push_bits = log_uniform(0.1, 16),
               .reply_bits = log_uniform(0.1, 32)};
  job.elems = static_cast<int64_t>(log_uniform(1e3, 1e9));
  return job;
}

constexpr Aggregation kAll[] = {Aggregation::kRing,
                                Aggregation::kRecursiveDoubling,
                                Aggregation::kHalvingDoubling,
                                Aggregation::kTree,
                                Aggregation::kColocatedServers,
                                Aggregation::kDedicatedServers,
                                Aggregation::kAllGather};

TEST(PipelineProperty, MoreIsNeverFaster) {
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    Job job = RandomJob(random);
    job.cluster.servers = 3;
    const Aggregation how = kAll[random.NextBelow(std::size(kAll))];
    const auto seconds = [&](const Job& each) {
      // Smaller than the parts of however many servers, which overlap more the
      // more there are.
      return PipelineSeconds(MakePipeline(how, each.cluster, each.codec),
                             each.elems, kMinPartElems);
    };
    const double before = seconds(job);
    Job more = job;
    more.elems += more.elems / 2;
    EXPECT_GT(seconds(more), before) << "elements, " << Name(how);
    more = job;
    more.cluster.bytes_per_s *= 2;
    EXPECT_LE(seconds(more), before * (1 + 1e-12)) << "bandwidth " << Name(how);
    more = job;
    more.codec.push_bits *= 2;
    EXPECT_GE(seconds(more), before * (1 - 1e-12)) << "bits, " << Name(how);
    if (how == Aggregation::kRecursiveDoubling ||
        how == Aggregation::kHalvingDoubling) {
      continue;  // 6 > 8 machines
    }
    // More machines do share the encoding of replies.
    job.codec.reply_encode_s = 0;
    more = job;
    more.cluster.workers += 1;
    EXPECT_GE(seconds(more), seconds(job) * (1 - 1e-12))
        << "workers, " << Name(how);
  }
}

TEST(PipelineProperty, MoreBandwidthNeverTurnsCompressionOn) {
  Random random(2);
  int switches = 0;
  for (int i = 0; i < 500; ++i) {
    Job job = RandomJob(random);
    bool pays = true;
    bool paid_before = true;
    for (double rate = 1e6; rate < 1e12; rate *= 1.5) {
      job.cluster.bytes_per_s = rate;
      const auto seconds = [&](const CodecCost& codec) {
        const Pipeline pipeline =
            MakePipeline(Aggregation::kColocatedServers, job.cluster, codec);
        return FinishSeconds(std::vector<TensorCost>{
            {&pipeline, job.elems, int64_t{1} << 20, 0}});
      };
      pays = seconds(job.codec) < seconds(DenseCost(job.cluster));
      EXPECT_TRUE(paid_before || !pays) << "job " << i << " at " << rate;
      switches += paid_before && !pays ? 1 : 0;
      paid_before = pays;
    }
  }
  EXPECT_GT(switches, 100);  // the property was put to the test
}

TEST(NumChunks, AreOfEachServersPart) {
  Pipeline pipeline{.max_parts = 2};
  EXPECT_EQ(NumChunks(pipeline, 65535, 1 << 19), 1);  // too small for two
  EXPECT_EQ(NumChunks(pipeline, 65536, 1 << 19), 2);
  EXPECT_EQ(NumChunks(pipeline, 65536, 0), 2);
  EXPECT_EQ(NumChunks(pipeline, 1 << 20, 1 << 19), 2);
  EXPECT_EQ(NumChunks(pipeline, (1 << 20) + 2, 1 << 19), 3);
  pipeline.max_parts = 1;
  EXPECT_EQ(NumChunks(pipeline, 1 << 20, 1 << 19), 2);
  pipeline.max_parts = 64;
  EXPECT_EQ(NumChunks(pipeline, 3 * 32768, 1 << 19), 3);
  pipeline.is_chunked = false;
  EXPECT_EQ(NumChunks(pipeline, 1 << 20, 1 << 19), 1);
}

// What a frame costs counts for each server that has a part.
TEST(Pipeline, FramesGoToEveryServer) {
  ClusterCost cluster = Bare(4, 1e18);
  cluster.frame_cpu_s = 1;
  const auto seconds = [&](Aggregation aggregation, int64_t elems) {
    return PipelineSeconds(
        MakePipeline(aggregation, cluster, DenseCost(cluster)), elems, 1 << 20);
  };
  // A push out, one in, an answer out, one in: on average of every machine.
  EXPECT_NEAR(seconds(Aggregation::kColocatedServers, 60'000), 4, 1e-6);
  EXPECT_NEAR(seconds(Aggregation::kColocatedServers, 4 * 32768), 16, 1e-6);
  EXPECT_NEAR(seconds(Aggregation::kColocatedServers, 1 << 22), 16, 1e-6);
  EXPECT_NEAR(seconds(Aggregation::kColocatedServers, 1 << 23), 32, 1e-6);
}

TEST(BestChunk, IsNotBeatenAndInBounds) {
  Random random(3);
  for (int i = 0; i < 200; ++i) {
    const Job job = RandomJob(random);
    const Pipeline pipeline =
        MakePipeline(Aggregation::kColocatedServers, job.cluster, job.codec);
    const int64_t best = BestChunkElems(pipeline, job.elems);
    for (int log = 16; log <= 22; ++log) {
      EXPECT_LE(PipelineSeconds(pipeline, job.elems, best),
                PipelineSeconds(pipeline, job.elems, int64_t{1} << log));
    }
    EXPECT_GE(best, 1 << 16);
    EXPECT_LE(best, 1 << 22);
  }
}

// A worker of two hands a chunk over to be encoded and decoded; its half of a
// server, two contributions and their sum, there and back.
TEST(Pipeline, JobsThatAreNotSmallAreHandedOver) {
  ClusterCost cluster = Bare(2, 1e18);
  CodecCost codec = DenseCost(cluster);
  const auto seconds = [&](Aggregation aggregation, int64_t elems) {
    return PipelineSeconds(MakePipeline(aggregation, cluster, codec), elems,
                           1 << 20);
  };
  const auto handovers = [&](Aggregation aggregation, int64_t elems) {
    cluster.handover_s = 0;
    const double without = seconds(aggregation, elems);
    cluster.handover_s = 1;
    return seconds(aggregation, elems) - without;
  };
  EXPECT_NEAR(handovers(Aggregation::kColocatedServers, 5000), 2 + 3, 1e-6);
  EXPECT_NEAR(handovers(Aggregation::kColocatedServers, 4096), 0, 1e-6);
  EXPECT_NEAR(handovers(Aggregation::kRing, 5000), 0, 1e-6);
  cluster.servers = 1;
  EXPECT_NEAR(handovers(Aggregation::kDedicatedServers, 5000), 2 + 6, 1e-6);
  cluster.servers = 0;
  // Of several chunks on one core nothing runs meanwhile.
  EXPECT_NEAR(handovers(Aggregation::kColocatedServers, 4 << 20), 4 * 5, 1e-6);
  cluster.cores = 4;  // which share them
  EXPECT_NEAR(handovers(Aggregation::kColocatedServers, 5000), 5.0 / 4, 1e-6);
  cluster.cores = 1;
  // What is checked are codes: 65,536 of two bits, a server's part, are a small
  // job.
  codec.push_bits = 2;
  const auto of_a_part = [&](int64_t elems) {
    return handovers(Aggregation::kColocatedServers, 2 * elems) / 2;
  };
  EXPECT_NEAR(of_a_part(65536), 2 + 1, 1e-6);
  EXPECT_NEAR(of_a_part(65540), 2 + 3, 1e-6);
}

}  // namespace
}  // namespace telegrad
