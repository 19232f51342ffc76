// The guard alone, and through a whole cluster.
#include "kvstore/engine/codec/guard.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "compression/codec_spec.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/oracle.h"

namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::GradOf;
using testing::IsOk;
using testing::Soon;

constexpr int kGuardWorkers = 3;
constexpr size_t kGuardElems = 1003;

ClusterConfig OneTensor(const std::string& type, float threshold) {
  ClusterConfig config;
  config.workers = kGuardWorkers;
  config.tensors = {{"only", kGuardElems}};
  config.chunk_elems = 2 * kGuardElems;
  config.compression.type = type;
  config.compression.threshold = {ThresholdSpec::Kind::kAbsolute, threshold};
  config.has_values = false;
  return config;
}

std::vector<float> RunRound(KVStore& store, std::vector<float> grad) {
  const Bytes view(grad.data(), 4 * grad.size());
  EXPECT_THAT(store.PushPull(0, view, view, 0).Wait(Soon()), IsOk());
  return grad;
}

// A threshold far too small: residuals grow without bound until the guard
// acts; then everything that was held back arrives, and sums are exact.
TEST(Guard, MakesAHarmfulCodecDenseAndLosesNothing) {
  for (const ReplyMode reply : {ReplyMode::kSum, ReplyMode::kReencode}) {
    ClusterConfig config = OneTensor("2bit", 0x1p-20f);
    config.compression.reply = reply;
    Cluster cluster(config);
    cluster.Run([&](KVStore& store) {
      std::vector<double> difference(kGuardElems);
      int dense_from = -1;
      for (int step = 0; step < 100; ++step) {
        const std::vector<float> sum =
            RunRound(store, std::vector<float>(kGuardElems, 0x1p-6f));
        for (size_t i = 0; i < kGuardElems; ++i) {
          difference[i] += double{sum[i]} - kGuardWorkers * 0x1p-6;
        }
        const std::vector<TensorReport> reports = store.codecs().Report();
        EXPECT_EQ(reports.size(), 1u);
        if (reports[0].is_dense && dense_from < 0) dense_from = step + 1;
        if (step == 30) {
          EXPECT_LT(difference[0], -0.1);
        }
      }
      EXPECT_GT(dense_from, static_cast<int>(kGuardPeriod) * 3);
      EXPECT_LT(dense_from, 70);
      for (const double rest : difference) EXPECT_EQ(rest, 0);
    });
  }
}

// What one codec did is not held against another, nor forgotten.
TEST(Guard, HoldsItsVetoAgainstTheCodecThatHarmedAlone) {
  ClusterConfig config = OneTensor("2bit", 1e-6f);
  config.compression.alternatives = {"2bit:0.015625", "fp16"};
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    const std::vector<float> grad(kGuardElems, 0x1p-6f);
    const auto report_after = [&](int codec, int num_steps) {
      EXPECT_THAT(store.codecs().SetCodec(0, codec), IsOk());
      for (int step = 0; step < num_steps; ++step) RunRound(store, grad);
      return store.codecs().Report()[0];
    };
    const int enough = static_cast<int>(kGuardPeriod) * (kGuardPatience + 1);
    EXPECT_TRUE(report_after(0, enough).gave_up);
    for (const int other : {1, 2, 1}) {
      const TensorReport report = report_after(other, enough);
      EXPECT_FALSE(report.gave_up) << other;
      EXPECT_FALSE(report.is_dense) << other;
    }
    const TensorReport again = report_after(0, 4);
    EXPECT_TRUE(again.gave_up);
    EXPECT_TRUE(again.is_dense);
    EXPECT_FALSE(report_after(2, 4).is_dense);
  });
  EXPECT_THAT(cluster.ServerStatus(0), IsOk());
}

// Also the veto of one worker alone.
TEST(Guard, MakesItDenseForAllWhenItHarmsOneWorker) {
  ClusterConfig config = OneTensor("2bit", 1e-6f);
  config.compression.alternatives = {"fp16"};
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    const std::vector<float> grad(
        kGuardElems, store.group().rank() == 1 ? 0x1p-6f : 0x1p-21f);
    for (const int codec : {0, 1, 0}) {
      EXPECT_THAT(store.codecs().SetCodec(0, codec), IsOk());
      for (int step = 0; step < 90; ++step) RunRound(store, grad);
      EXPECT_EQ(store.codecs().Report()[0].is_dense, codec == 0);
      EXPECT_EQ(store.codecs().Report()[0].gave_up, codec == 0);
    }
  });
}

// Steps until one worker's tensor is dense with gradients of these sizes: the
// first before the guard looks at it, after `more` of the last size; -1: not.
int DenseAfter(const std::string& type, float threshold, int num_ones,
               int num_more) {
  ClusterConfig config = OneTensor(type, threshold);
  config.workers = 1;
  int dense_after = -1;
  Cluster(config).Run([&](KVStore& store) {
    for (int step = 0; step < num_ones + num_more; ++step) {
      const float size = step < num_ones ? 1 : 0x1p-20f;
      RunRound(store, std::vector<float>(kGuardElems, size));
      if (!store.codecs().Report()[0].is_dense) continue;
      dense_after = step + 1;
      return;
    }
  });
  return dense_after;
}

// A threshold that nothing reaches: in step n the residual is n + 1 gradients,
// too many from step 256 on, in samples at 256, 272, 288 and 304. The tensor is
// dense two rounds later.
TEST(Guard, CatchesAResidualThatGrowsWithoutEnd) {
  EXPECT_EQ(DenseAfter("threshold", 0x1p20f, 400, 0), 306);
}

// Each element waits for 91 steps: beside a gradient of nearly nothing that is
// a residual of millions, but not of more gradients than came of late.
TEST(Guard, KeepsACodecThroughGradientsThatAreNearlyNothing) {
  constexpr int kFew = static_cast<int>(kGuardPeriod) * kGuardPatience * 2;
  EXPECT_EQ(DenseAfter("topk:0.01", 0, 200, kFew), -1);
}

// The large gradients of the first 256 steps are left out from step 512 on.
TEST(Guard, GivesUpWhereGradientsStayFarBelowTheThreshold) {
  EXPECT_EQ(DenseAfter("threshold", 0x1p20f, 100, 600), 562);
}

TEST(Guard, IsSilentWhenSwitchedOffAndWhenAllIsWell) {
  for (const bool has_guard : {false, true}) {
    ClusterConfig config = OneTensor("2bit", has_guard ? 0x1p-7f : 0x1p-20f);
    config.compression.has_guard = has_guard;
    Cluster cluster(config);
    cluster.Run([&](KVStore& store) {
      for (int step = 0; step < 90; ++step) {
        std::vector<float> grad(kGuardElems);
        for (size_t i = 0; i < kGuardElems; ++i) {
          grad[i] = GradOf(store.group().rank(), step, i);
        }
        RunRound(store, grad);
      }
      EXPECT_FALSE(store.codecs().Report()[0].is_dense);
      EXPECT_TRUE(store.codecs().Report()[0].has_sample);
    });
  }
}

TensorReport AfterSteps(const std::string& type, int num_steps) {
  TensorReport report;
  Cluster cluster(OneTensor(type, 0x1p-7f));
  cluster.Run([&](KVStore& store) {
    for (int step = 0; step < num_steps; ++step) {
      std::vector<float> grad(kGuardElems);
      for (size_t i = 0; i < kGuardElems; ++i) {
        grad[i] = GradOf(store.group().rank(), step, i);
      }
      RunRound(store, grad);
    }
    if (store.group().rank() == 0) report = store.codecs().Report()[0];
    EXPECT_FALSE(store.codecs().Report()[0].is_dense) << type;
  });
  EXPECT_TRUE(report.has_sample) << type;
  return report;
}

// Step 16 is in the sample, the last step of these.
constexpr int kOneSample = static_cast<int>(kGuardPeriod) + 1;

TEST(Guard, WatchesCodecsWithoutAResidual) {
  for (const char* type :
       {"fp16:0", "bf16:0", "int8:residual=0", "qsgd", "terngrad"}) {
    const TensorReport report = AfterSteps(type, kOneSample);
    EXPECT_TRUE(std::isnan(report.residual_ratio)) << type;
    EXPECT_TRUE(std::isnan(report.saturated_share)) << type;
    EXPECT_GT(report.cosine, type == std::string("terngrad") ? 0.5 : 0.999);
    EXPECT_LE(report.cosine, 1 + 1e-9) << type;
  }
  // Both have all values of the grid: nothing is lost.
  const TensorReport exact = AfterSteps("fp16:0", kOneSample);
  EXPECT_EQ(exact.relative_error, 0);
  size_t num_zeros = 0;
  for (size_t i = 0; i < kGuardElems; ++i) {
    num_zeros += GradOf(0, kOneSample - 1, i) == 0;
  }
  EXPECT_EQ(exact.zero_share,
            static_cast<double>(num_zeros) / double{kGuardElems});
  // A level of 1/127 of a block's largest element, which is at most 15 / 1024.
  const TensorReport rounded = AfterSteps("qsgd", kOneSample);
  EXPECT_GT(rounded.relative_error, 0);
  EXPECT_LT(rounded.relative_error, 0.02);
  // 0 or the largest: the error of each is the geometric mean of |g| and what
  // is missing to it.
  EXPECT_GT(AfterSteps("terngrad", kOneSample).relative_error, 0.3);
}

int64_t FaultsOfThisThread() {
  rusage usage{};
  EXPECT_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_minflt;
}

// Memory for what is decoded is kept: 1 MiB of fresh pages would be 256 faults
// in each sample.
TEST(Guard, TakesNoFreshMemoryInTheSteadyState) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "ASan's allocator sets freed memory aside";
#endif
  constexpr size_t kMany = size_t{1} << 18;
  ClusterConfig config = OneTensor("terngrad", 0);
  config.tensors = {{"only", kMany}};
  config.chunk_elems = kMany;
  config.workers = 1;
  config.num_threads = 0;  // this thread encodes
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    std::vector<float> grad(kMany, 0x1p-6f);
    const Bytes view(grad.data(), 4 * kMany);
    int64_t least = std::numeric_limits<int64_t>::max();
    for (uint64_t step = 0; step <= 4 * kGuardPeriod; ++step) {
      const int64_t before = FaultsOfThisThread();
      EXPECT_THAT(store.Push(0, view, 0).Wait(Soon()), IsOk());
      if (step == 0 || step % kGuardPeriod != 0) continue;
      least = std::min(least, FaultsOfThisThread() - before);
    }
    EXPECT_TRUE(store.codecs().Report()[0].has_sample);
    EXPECT_LT(least, 16);
  });
}

// No step looks at all chunks of a tensor.
TEST(Guard, LooksAtNeighbouringChunksInDifferentSteps) {
  constexpr size_t kChunk = 1 << 10;
  ClusterConfig config = OneTensor("fp16:0", 0);
  config.tensors = {{"only", 2 * kChunk}};
  config.chunk_elems = kChunk;
  config.workers = 1;
  Cluster(config).Run([](KVStore& store) {
    std::vector<float> grad(2 * kChunk, 1.0f);
    std::fill(grad.begin() + kChunk, grad.end(), 0x1p-40f);  // sent as 0
    for (uint64_t step = 0; step < kGuardPeriod; ++step) {
      RunRound(store, grad);
      const TensorReport report = store.codecs().Report()[0];
      EXPECT_EQ(report.zero_share, step + 1 < kGuardPeriod ? 0 : 0.5) << step;
    }
  });
}

TEST(Guard, LooksAtTensorsInDifferentSteps) {
  ClusterConfig config = OneTensor("fp16:0", 0);
  config.tensors = {{"first", kGuardElems}, {"second", kGuardElems}};
  config.workers = 1;
  Cluster(config).Run([](KVStore& store) {
    std::vector<float> grad(kGuardElems, 1.0f);
    const Bytes view(grad.data(), 4 * kGuardElems);
    for (uint64_t step = 0; step < kGuardPeriod; ++step) {
      RunRound(store, grad);
      EXPECT_THAT(store.PushPull(1, view, view, 0).Wait(Soon()), IsOk());
      const std::vector<TensorReport> reports = store.codecs().Report();
      EXPECT_TRUE(reports[0].has_sample);
      EXPECT_EQ(reports[1].has_sample, step + 1 == kGuardPeriod) << step;
    }
  });
}

// Its residual is no account of what was sent: momentum is added to it.
TEST(Guard, SeesWhatDgcSends) {
  const TensorReport report = AfterSteps("dgc:0.01:sampled=0", kOneSample);
  EXPECT_GT(report.residual_ratio, 1);
  // 11 of 1003 are sent.
  EXPECT_EQ(report.zero_share, 992.0 / 1003);
}

// Far below the smallest number of fp16.
TEST(Guard, MakesACastDenseThatSendsNothing) {
  Cluster cluster(OneTensor("fp16:0", 0));
  cluster.Run([&](KVStore& store) {
    std::vector<float> sum;
    for (int step = 0; step < 70; ++step) {
      sum = RunRound(store, std::vector<float>(kGuardElems, 0x1p-40f));
      if (step == 30) {
        EXPECT_EQ(sum[0], 0);
      }
    }
    const TensorReport report = store.codecs().Report()[0];
    EXPECT_TRUE(report.is_dense);
    EXPECT_TRUE(report.gave_up);
    EXPECT_EQ(report.cosine, 0);
    EXPECT_EQ(report.zero_share, 1);
    EXPECT_EQ(sum, std::vector<float>(kGuardElems, kGuardWorkers * 0x1p-40f));
  });
}

// One element in so many decodes to so much that all are right on average.
bool GivesUpOnNoise(size_t one_in) {
  constexpr size_t kMany = 1 << 10;
  const CodecSpec spec = *ParseCodecSpec("terngrad");
  Guard guard(kMany, spec.codec->traits(), spec.options);
  const std::vector<float> grad(kMany, 1.0f);
  std::vector<float> decoded(kMany);
  for (size_t i = 0; i < kMany; i += one_in) {
    decoded[i] = static_cast<float>(one_in);
  }
  for (uint64_t sample = 0; sample < kGuardPatience; ++sample) {
    EXPECT_FALSE(guard.gave_up());
    EXPECT_TRUE(guard.Begin(sample * kGuardPeriod));
    guard.Before(grad.data(), nullptr, Guard::Reads::kWhole);
    EXPECT_TRUE(guard.needs_decoded());
    guard.After(grad.data(), nullptr, 0, decoded.data(), Guard::Reads::kWhole);
    EXPECT_FALSE(guard.Begin(sample * kGuardPeriod + 1));
    EXPECT_FALSE(guard.needs_decoded());
  }
  return guard.gave_up();
}

TEST(Guard, GivesUpOnCodesThatAreMostlyNoise) {
  EXPECT_FALSE(GivesUpOnNoise(16));  // as terngrad has where all is well
  EXPECT_FALSE(GivesUpOnNoise(128));
  EXPECT_TRUE(GivesUpOnNoise(256));
}

// What is not finite is left out of the sample, as of the codes.
TEST(Guard, LeavesOutWhatIsNotFinite) {
  const CodecSpec spec = *ParseCodecSpec("fp16:0");
  Guard guard(4, spec.codec->traits(), spec.options);
  const std::vector<float> grad = {1, NAN, INFINITY, 2};
  const std::vector<float> residual(4);
  const std::vector<float> decoded = {1, 0, 0, 2};
  EXPECT_TRUE(guard.Begin(0));
  guard.Before(grad.data(), residual.data(), Guard::Reads::kWhole);
  guard.After(grad.data(), residual.data(), 0, decoded.data(),
              Guard::Reads::kWhole);
  TensorReport report;
  Fill(guard.sums(), report);
  EXPECT_EQ(guard.sums().count, 2u);
  EXPECT_EQ(report.cosine, 1);
  EXPECT_EQ(report.zero_share, 0);
}

}  // namespace
}  // namespace telegrad
