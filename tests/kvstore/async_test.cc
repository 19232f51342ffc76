#include <algorithm>
#include <cstring>

#include "base/exit_code.h"
#include "kvstore/optimizer.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/oracle.h"

// Asynchronous stores over a whole cluster.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::GradOf;
using testing::IsOk;
using testing::Soon;
using testing::StatusIs;

ClusterConfig Async(int workers, int servers = 1) {
  ClusterConfig config = testing::Job(workers, servers);
  config.store = "dist_async";
  config.tensors = {{.name = "a", .num_elems = 100},
                    {.name = "b", .num_elems = 33, .rates = {.lr = 0.5f}},
                    {.name = "c", .num_elems = 1}};
  config.optimizer = {
      .update_on = UpdateOn::kServer,
      .sgd = {
          .learning_rate = 0.1f, .momentum_rate = 0.9f, .weight_decay = 0.01f}};
  return config;
}

Buffer Gradient(int worker, int step, size_t n) {
  Buffer grad(4 * n);
  for (size_t i = 0; i < n; ++i) grad.as<float>()[i] = GradOf(worker, step, i);
  return grad;
}

// The weights after some steps of one worker, in halves or not.
std::vector<std::vector<float>> Train(const ClusterConfig& config) {
  std::vector<std::vector<float>> weights;
  Cluster(config).Run([&](KVStore& store) {
    for (int step = 0; step < 9; ++step) {
      for (size_t key = 0; key < config.tensors.size(); ++key) {
        const size_t n = config.tensors[key].num_elems;
        const Buffer grad = Gradient(0, step, n);
        const Buffer out(4 * n);
        if (step % 2 == 0) {
          ASSERT_THAT(
              store.PushPull(static_cast<Key>(key), grad.view(), out.view(), 0)
                  .Wait(Soon()),
              IsOk());
        } else {
          ASSERT_THAT(
              store.Push(static_cast<Key>(key), grad.view(), 0).Wait(Soon()),
              IsOk());
          ASSERT_THAT(
              store.Pull(static_cast<Key>(key), out.view(), 0).Wait(Soon()),
              IsOk());
        }
        weights.emplace_back(out.as<float>(), out.as<float>() + n);
      }
    }
    EXPECT_EQ(store.stats().max_staleness, 0);
  });
  return weights;
}

TEST(AsyncStore, OfOneWorkerIsTheSynchronousOneBitForBit) {
  for (const char* type : {"none", "2bit", "1bit", "topk:0.1", "int8"}) {
    for (const OptimizerKind kind :
         {OptimizerKind::kSgd, OptimizerKind::kAdam}) {
      ClusterConfig config = Async(1, 2);
      config.compression.type = type;
      config.optimizer.kind = kind;
      const auto async = Train(config);
      config.store = "dist_sync";
      const auto sync = Train(config);
      ASSERT_EQ(async.size(), sync.size());
      for (size_t i = 0; i < async.size(); ++i) {
        ASSERT_EQ(
            std::memcmp(async[i].data(), sync[i].data(), 4 * sync[i].size()), 0)
            << type << " " << ToString(kind) << " " << i;
      }
    }
  }
}

// Weights that grow by all that is pushed, on the gradients' grid: whatever the
// order, the end is the same.
TEST(AsyncStore, EveryPushCountsOnce) {
  constexpr int kWorkers = 3;
  constexpr int kSteps = 20;
  for (const int64_t bound : {kAnyStaleness, int64_t{0}, int64_t{2}}) {
    ClusterConfig config = Async(kWorkers, 2);
    config.optimizer.sgd = {.learning_rate = 1, .rescale = -1};
    config.max_staleness = bound;
    config.tensors = {{"a", 70}};
    Cluster(config).Run([&](KVStore& store) {
      const int rank = store.group().rank();
      const Buffer out(4 * 70);
      for (int step = 0; step < kSteps; ++step) {
        const Buffer grad = Gradient(rank, step, 70);
        ASSERT_THAT(store.PushPull(0, grad.view(), out.view(), 0).Wait(Soon()),
                    IsOk());
      }
      ASSERT_THAT(store.group().Gather("pushed", "").status(), IsOk());
      ASSERT_THAT(store.Pull(0, out.view(), 0).Wait(Soon()), IsOk());
      for (size_t i = 0; i < 70; ++i) {
        double sum = 1 + 0.125 * static_cast<double>(i % 64);
        for (int w = 0; w < kWorkers; ++w) {
          for (int step = 0; step < kSteps; ++step) {
            sum += static_cast<double>(GradOf(w, step, i));
          }
        }
        ASSERT_EQ(static_cast<double>(out.as<float>()[i]), sum) << i;
      }
      const StoreStats stats = store.stats();
      EXPECT_LE(stats.mean_staleness, static_cast<double>(stats.max_staleness));
      if (bound != kAnyStaleness) {
        EXPECT_LE(stats.max_staleness, bound);
      }
    });
  }
}

// What agrees on a scale says nothing of who is ahead.
TEST(AsyncStore, AgreesOnScalesWhereNobodyMayBeAhead) {
  ClusterConfig config = Async(2, 2);
  config.compression.type = "2bit";
  config.max_staleness = 0;
  Cluster(config).Run([&](KVStore& store) {
    const Buffer out(400);
    for (int step = 0; step < 3; ++step) {
      const Buffer grad = Gradient(store.group().rank(), step, 100);
      ASSERT_THAT(store.PushPull(0, grad.view(), out.view(), 0).Wait(Soon()),
                  IsOk());
    }
    EXPECT_EQ(store.stats().max_staleness, 0);
  });
}

struct Numbers {
  Dtype dtype;
  uint16_t start, more, less, half, end;
};
// 2048, +-1024, 0.5 and 2050; 256, +-128, 0.5 and 258.
constexpr Numbers kNumbers[] = {
    {Dtype::kFloat16, 0x6800, 0x6400, 0xE400, 0x3800, 0x6801},
    {Dtype::kBfloat16, 0x4380, 0x4300, 0xC300, 0x3F00, 0x4381}};

// Each worker adds 1 in two steps, of which 16 bits would lose half in the sum
// of its devices, and all in the weights.
void PushHalves(testing::Worker& worker, const Numbers& numbers, int devices) {
  std::vector<Buffer> memory;
  std::vector<TensorView> views;
  const auto fill = [&](size_t device, uint16_t bits) {
    std::fill_n(memory[device].as<uint16_t>(), 70, bits);
  };
  for (int i = 0; i < devices; ++i) {
    views.push_back({.bytes = memory.emplace_back(140).view(),
                     .dtype = numbers.dtype,
                     .num_elems = 70});
    fill(memory.size() - 1, numbers.start);
  }
  const std::vector<TensorSpec> tensors = {{"a", 70, numbers.dtype}};
  ASSERT_THAT(worker.Init(tensors, views), IsOk());
  for (const uint16_t large : {numbers.more, numbers.less}) {
    fill(0, large);
    fill(memory.size() - 1, numbers.half);
    ASSERT_THAT(worker->PushPull(0, views, views, 0).Wait(Soon()), IsOk());
  }
  ASSERT_THAT(worker->group().Gather("pushed", "").status(), IsOk());
  ASSERT_THAT(worker->Pull(0, views, 0).Wait(Soon()), IsOk());
  for (const Buffer& each : memory) {
    const auto* const got = each.as<uint16_t>();
    EXPECT_EQ(std::count(got, got + 70, numbers.end), 70) << got[0];
  }
  worker->Close();
}

TEST(AsyncStore, RoundsNothingButAnswersTo16Bits) {
  for (const int devices : {1, 2}) {
    for (const Numbers& numbers : kNumbers) {
      SCOPED_TRACE(::testing::Message()
                   << ToString(numbers.dtype) << " " << devices);
      ClusterConfig config = Async(2, 2);
      config.optimizer.sgd = {.learning_rate = 1, .rescale = -1};
      Cluster cluster(config);
      cluster.StartServers();
      std::vector<std::thread> threads;
      for (int rank = 0; rank < config.workers; ++rank) {
        threads.emplace_back([&, rank] {
          DistOptions options = cluster.Options();
          options.wanted_rank = rank;
          options.num_devices = devices;
          testing::Worker worker(options, {}, config.optimizer, config.store);
          PushHalves(worker, numbers, devices);
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
  }
}

// The next root gives its value while others still ask for the one before.
TEST(AsyncStore, BroadcastsFollowEachOtherAtOnce) {
  constexpr int kWorkers = 3;
  Cluster(Async(kWorkers, 2)).Run([&](KVStore& store) {
    const int rank = store.group().rank();
    const Buffer value(400);
    for (int i = 0; i < 60; ++i) {
      const int root = i % kWorkers;
      const float given = root == rank ? static_cast<float>(i) : -1;
      std::fill_n(value.as<float>(), 100, given);
      const TensorView view = FloatTensor(value.view());
      ASSERT_THAT(store.Broadcast(0, root, {&view, 1}, 0).Wait(Soon()), IsOk());
      for (size_t n = 0; n < 100; ++n) {
        ASSERT_EQ(value.as<float>()[n], static_cast<float>(i)) << n;
      }
    }
  });
}

TEST(AsyncStore, DoesNotWaitForAWorkerThatDoesNothing) {
  Cluster(Async(2)).Run([&](KVStore& store) {
    if (store.group().rank() == 0) {
      const Buffer out(400);
      for (int step = 0; step < 5; ++step) {
        const Buffer grad = Gradient(0, step, 100);
        ASSERT_THAT(store.PushPull(0, grad.view(), out.view(), 0).Wait(Soon()),
                    IsOk());
      }
      EXPECT_EQ(store.stats().max_staleness, 5);
    }
    ASSERT_THAT(store.group().Gather("end", "").status(), IsOk());
  });
}

// The rate of all chunks is the new one from the same round on, for all
// workers, in every store with an optimizer.
TEST(SetOptimizer, BetweenRoundsChangesTheRate) {
  for (const char* type : {"dist_sync", "dist_async"}) {
    ClusterConfig config = Async(2, 2);
    config.store = type;
    config.optimizer.sgd = {.learning_rate = 1, .rescale = -1};
    config.tensors = {{"a", 100}};
    Cluster(config).Run([&](KVStore& store) {
      OptimizerConfig next = config.optimizer;
      next.sgd.learning_rate = 0.25f;
      const Buffer out(400);
      const Buffer grad(400);
      for (size_t i = 0; i < 100; ++i) grad.as<float>()[i] = 4;
      const auto round = [&] {
        ASSERT_THAT(store.PushPull(0, grad.view(), out.view(), 0).Wait(Soon()),
                    IsOk());
        ASSERT_THAT(store.group().Gather("round", "").status(), IsOk());
      };
      round();
      ASSERT_THAT(store.SetOptimizer(next), IsOk());
      round();
      ASSERT_THAT(store.Pull(0, out.view(), 0).Wait(Soon()), IsOk());
      for (size_t i = 0; i < 100; ++i) {
        const float value = 1 + 0.125f * static_cast<float>(i % 64);
        ASSERT_EQ(out.as<float>()[i], value + 2 * 4 + 2 * 1) << type << i;
      }
      const auto too_soon = absl::StatusCode::kFailedPrecondition;
      next.kind = OptimizerKind::kAdam;
      EXPECT_THAT(store.SetOptimizer(next), StatusIs(too_soon, "only rates"));
      // Later tensors come with the new rates.
      const std::vector<TensorSpec> late = {{"late", 5}};
      const Buffer values(20);
      const TensorView view = FloatTensor(values.view());
      EXPECT_THAT(store.Init(late, {&view, 1}).status(), IsOk());
    });
  }
}

TEST(SetOptimizer, ThatDiffersBetweenWorkersEndsTheJob) {
  Cluster cluster(Async(2));
  cluster.Run([&](KVStore& store) {
    OptimizerConfig next = Async(2).optimizer;
    next.sgd.learning_rate = 0.5f * static_cast<float>(store.group().rank());
    const absl::Status status = store.SetOptimizer(next);
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kMismatch) << status;
  });
}

absl::Status InitOf(const ClusterConfig& config) {
  Cluster cluster(config);
  cluster.StartServers();
  testing::Worker worker = cluster.MakeWorker(0);
  const absl::Status status = cluster.Init(worker, cluster.MakeValues(0));
  worker->Close();
  return status;
}

TEST(AsyncStore, RefusesWhatItCannotDo) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  ClusterConfig config = Async(1);
  config.optimizer.update_on = UpdateOn::kWorker;
  EXPECT_THAT(InitOf(config), StatusIs(invalid, "--update-on server"));
  config = Async(1);
  config.compression.type = "2bit";
  config.compression.reply = ReplyMode::kSum;
  EXPECT_THAT(InitOf(config), StatusIs(invalid, "reply mode sum"));
  config = Async(1);
  config.max_staleness = -2;
  EXPECT_THAT(InitOf(config), StatusIs(invalid, "staleness"));
}

}  // namespace
}  // namespace telegrad
