// The guard through a whole cluster.
#include "kvstore/dist/guard.h"

#include "tests/kvstore/cluster.h"
#include "tests/kvstore/oracle.h"

namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::GradOf;
using testing::IsOk;
using testing::Soon;

constexpr int kWorkers = 3;
constexpr size_t kElems = 1003;

ClusterConfig OneTensor(const std::string& type, float threshold) {
  ClusterConfig config;
  config.workers = kWorkers;
  config.tensors = {{"only", kElems}};
  config.chunk_elems = 2 * kElems;
  config.compression.type = type;
  config.compression.threshold = {ThresholdSpec::Kind::kAbsolute, threshold};
  config.has_values = false;
  return config;
}

std::vector<float> PushPull(KVStore& store, std::vector<float> grad) {
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
      std::vector<double> difference(kElems);
      int dense_from = -1;
      for (int step = 0; step < 100; ++step) {
        const std::vector<float> sum =
            PushPull(store, std::vector<float>(kElems, 0x1p-6f));
        for (size_t i = 0; i < kElems; ++i) {
          difference[i] += double{sum[i]} - kWorkers * 0x1p-6;
        }
        const std::vector<TensorReport> reports = store.Report();
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
    const std::vector<float> grad(kElems, 0x1p-6f);
    const auto report_after = [&](int codec, int num_steps) {
      EXPECT_THAT(store.SetCodec(0, codec), IsOk());
      for (int step = 0; step < num_steps; ++step) PushPull(store, grad);
      return store.Report()[0];
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
    const std::vector<float> grad(kElems,
                                  store.rank() == 1 ? 0x1p-6f : 0x1p-21f);
    for (const int codec : {0, 1, 0}) {
      EXPECT_THAT(store.SetCodec(0, codec), IsOk());
      for (int step = 0; step < 90; ++step) PushPull(store, grad);
      EXPECT_EQ(store.Report()[0].is_dense, codec == 0);
      EXPECT_EQ(store.Report()[0].gave_up, codec == 0);
    }
  });
}

TEST(Guard, IsSilentWhenSwitchedOffAndWhenAllIsWell) {
  for (const bool has_guard : {false, true}) {
    ClusterConfig config = OneTensor("2bit", has_guard ? 0x1p-7f : 0x1p-20f);
    config.compression.has_guard = has_guard;
    Cluster cluster(config);
    cluster.Run([&](KVStore& store) {
      for (int step = 0; step < 90; ++step) {
        std::vector<float> grad(kElems);
        for (size_t i = 0; i < kElems; ++i) {
          grad[i] = GradOf(store.rank(), step, i);
        }
        PushPull(store, grad);
      }
      EXPECT_FALSE(store.Report()[0].is_dense);
      EXPECT_TRUE(store.Report()[0].has_sample);
    });
  }
}

}  // namespace
}  // namespace telegrad
