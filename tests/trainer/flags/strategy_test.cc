#include "trainer/flags/strategy.h"

#include <cmath>
#include <thread>
#include <vector>

#include "kernels/dispatch.h"
#include "tests/kvstore/cluster.h"

// TensorFlow's strategies, each against its definition in a few lines.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Soon;
using testing::StatusIs;

constexpr size_t kElems = 40;
constexpr int kSteps = 20;
constexpr double kRate = 0.01;
constexpr double kDecay = 0.02;

using Vector = std::vector<double>;

double WeightAt(size_t i) { return 0.25 * static_cast<double>(i % 9) - 1; }

// Of device `device` (of all) in step `step`, where its weight is w.
double GradAt(int device, int step, size_t i, double w) {
  return w * (device + 1) / 8 +
         0.125 * ((step + device + static_cast<int>(i)) % 5);
}

// What a device adds to a sum: its gradient and its decay, which is in its
// loss.
double TermAt(int device, int step, size_t i, double w) {
  return GradAt(device, step, i, w) + kDecay * w;
}

Vector Start() {
  Vector weights(kElems);
  for (size_t i = 0; i < kElems; ++i) weights[i] = WeightAt(i);
  return weights;
}

// All devices' copies are stepped with the sum over devices; the mean, where
// `divisor` is their number.
Vector StepBySums(int devices, double divisor, double momentum) {
  Vector w = Start();
  Vector velocity(kElems);
  for (int step = 0; step < kSteps; ++step) {
    for (size_t i = 0; i < kElems; ++i) {
      double sum = 0;
      for (int d = 0; d < devices; ++d) sum += TermAt(d, step, i, w[i]);
      velocity[i] = momentum * velocity[i] + sum / divisor;
      w[i] -= kRate * velocity[i];
    }
  }
  return w;
}

// The master copy is stepped by each worker's mean in turn; then all read it.
Vector StepMasterByWorkers(int workers, int devices) {
  Vector w = Start();
  for (int step = 0; step < kSteps; ++step) {
    const Vector read = w;
    for (int worker = 0; worker < workers; ++worker) {
      for (size_t i = 0; i < kElems; ++i) {
        double mean = 0;
        for (int d = 0; d < devices; ++d) {
          mean += TermAt(worker * devices + d, step, i, read[i]) / devices;
        }
        w[i] -= kRate * mean;
      }
    }
  }
  return w;
}

// Each worker reads the servers' copy, which is stepped by its mean at once;
// they take turns.
Vector StepServersInTurns(int workers, int devices, double momentum) {
  Vector w = Start();
  Vector velocity(kElems);
  std::vector<Vector> read(static_cast<size_t>(workers), w);
  for (int step = 0; step < kSteps; ++step) {
    for (int worker = 0; worker < workers; ++worker) {
      Vector& mine = read[static_cast<size_t>(worker)];
      for (size_t i = 0; i < kElems; ++i) {
        double mean = 0;
        for (int d = 0; d < devices; ++d) {
          mean += GradAt(worker * devices + d, step, i, mine[i]) / devices;
        }
        velocity[i] = momentum * velocity[i] + mean + kDecay * w[i];
        w[i] -= kRate * velocity[i];
      }
      mine = w;
    }
  }
  return w;
}

// In turns where each push is a step.
void Exchange(KVStore& store, const std::vector<TensorView>& views) {
  WorkerGroup& group = store.group();
  for (int rank = 0; rank < group.num_workers(); ++rank) {
    if (!store.traits().is_async || rank == group.rank()) {
      ASSERT_THAT(store.PushPull(0, views, views, 0).Wait(Soon()), IsOk());
    }
    if (!store.traits().is_async) return;
    ASSERT_THAT(group.Gather("turn", "").status(), IsOk());
  }
}

void TrainWorker(const Strategy& strategy, const StrategyRequest& request,
                 KVStore& store, Vector& weights) {
  // Of whose gradients a step has the sum.
  const int all =
      request.devices * (store.traits().is_async ? 1 : request.workers);
  const OptimizerConfig optimizer = {
      .update_on = strategy.update_on,
      .sgd = StrategySgd(strategy, all,
                         {.learning_rate = static_cast<float>(kRate),
                          .momentum_rate = request.momentum,
                          .weight_decay = static_cast<float>(kDecay)})};
  ASSERT_THAT(store.SetCompression({}), IsOk());
  ASSERT_THAT(store.SetOptimizer(optimizer), IsOk());
  std::vector<Buffer> copies, grads, momenta;
  std::vector<TensorView> values, views;
  for (int d = 0; d < request.devices; ++d) {
    for (auto* each : {&copies, &grads, &momenta})
      each->emplace_back(4 * kElems);
    values.push_back(FloatTensor(copies.back().view()));
    views.push_back(FloatTensor(grads.back().view()));
    for (size_t i = 0; i < kElems; ++i) {
      copies.back().as<float>()[i] = static_cast<float>(WeightAt(i));
    }
  }
  const std::vector<TensorSpec> tensors = {{"w", kElems}};
  ASSERT_THAT(store.Init(tensors, values).status(), IsOk());
  const int first = store.group().rank() * request.devices;
  for (int step = 0; step < kSteps; ++step) {
    for (int d = 0; d < request.devices; ++d) {
      const auto device = static_cast<size_t>(d);
      for (size_t i = 0; i < kElems; ++i) {
        const double w = static_cast<double>(copies[device].as<float>()[i]);
        grads[device].as<float>()[i] =
            static_cast<float>(GradAt(first + d, step, i, w));
      }
    }
    Exchange(store, views);
    for (size_t d = 0; d < copies.size(); ++d) {
      if (strategy.update_on == UpdateOn::kServer) {
        std::copy_n(grads[d].as<float>(), kElems, copies[d].as<float>());
      } else {
        const SgdParameters& sgd = optimizer.sgd;
        kernels::CpuKernels().sgd_momentum(
            grads[d].as<float>(), kElems,
            {sgd.learning_rate, sgd.momentum_rate, sgd.weight_decay,
             sgd.rescale},
            copies[d].as<float>(), momenta[d].as<float>(), {});
      }
    }
  }
  for (size_t i = 0; i < kElems; ++i) {
    weights.push_back(static_cast<double>(copies.back().as<float>()[i]));
  }
}

// The last device's weights of the last worker.
Vector Train(const StrategyRequest& request) {
  const absl::StatusOr<Strategy> strategy = FindStrategy(request);
  EXPECT_THAT(strategy.status(), IsOk());
  if (!strategy.ok()) return {};
  const StoreTraits traits = *FindStoreType(strategy->kv_store);
  StoreOptions alone;
  alone.num_devices = request.devices;
  Vector weights;
  if (!traits.has_workers) {
    const auto store = MakeKVStore(strategy->kv_store, alone, nullptr);
    EXPECT_THAT(store.status(), IsOk());
    if (store.ok()) TrainWorker(*strategy, request, **store, weights);
    return weights;
  }
  ClusterConfig config;
  config.workers = request.workers;
  if (traits.hosts_parts) config.servers = request.workers;
  Cluster cluster(config);
  if (!traits.hosts_parts) cluster.StartServers();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < request.workers; ++rank) {
    threads.emplace_back([&, rank] {
      DistOptions options = cluster.Options();
      options.wanted_rank = rank;
      options.num_devices = request.devices;
      if (traits.hosts_parts) options.part = HostPart(1);
      const auto group = JoinWorkers(options);
      ASSERT_THAT(group.status(), IsOk());
      const auto store = MakeKVStore(strategy->kv_store, options, group->get());
      ASSERT_THAT(store.status(), IsOk());
      Vector mine;
      TrainWorker(*strategy, request, **store, mine);
      if (rank == request.workers - 1) weights = mine;
      (*store)->Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return weights;
}

// 20 steps of about ten roundings each of numbers below 8, of which a
// gradient's step is a hundredth: 20 * 10 * 2^-21 / 100 and a step's own.
void ExpectNear(const Vector& got, const Vector& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], 2e-5) << i;
  }
}

TEST(Strategy, ParameterServerOfOneProcessStepsOneCopyByTheMean) {
  for (const char* device : {"cpu", "gpu"}) {
    ExpectNear(Train({.variable_update = "parameter_server",
                      .local_parameter_device = device,
                      .devices = 3,
                      .momentum = 0.9f}),
               StepBySums(3, 3, 0.9f));
  }
}

TEST(Strategy, ReplicatedStepsCopiesByTheSum) {
  for (const char* spec :
       {"", "pscpu", "psgpu#2", "pscpu:2k:pscpu#2:64k:pscpu"}) {
    ExpectNear(Train({.variable_update = "replicated",
                      .all_reduce_spec = spec,
                      .devices = 4,
                      .momentum = 0.9f}),
               StepBySums(4, 1, 0.9f));
  }
}

TEST(Strategy, IndependentStepsByItself) {
  ExpectNear(Train({.variable_update = "independent", .momentum = 0.9f}),
             StepBySums(1, 1, 0.9f));
}

TEST(Strategy, HorovodStepsCopiesByTheSumOfProcesses) {
  ExpectNear(
      Train({.variable_update = "horovod", .workers = 3, .momentum = 0.9f}),
      StepBySums(3, 1, 0.9f));
}

TEST(Strategy, ParameterServerOfAClusterStepsForEachWorkerAsItComes) {
  ExpectNear(Train({.variable_update = "parameter_server",
                    .workers = 3,
                    .devices = 2,
                    .momentum = 0.9f}),
             StepServersInTurns(3, 2, 0.9f));
}

TEST(Strategy, DistributedReplicatedStepsTheServersCopyByWorkersMeans) {
  ExpectNear(Train({.variable_update = "distributed-replicated",
                    .workers = 2,
                    .devices = 2}),
             StepMasterByWorkers(2, 2));
}

TEST(Strategy, DistributedAllReduceStepsCopiesByTheSum) {
  for (const char* spec :
       {"pscpu", "xring#2", "pscpu/xring", "pscpu:2k:xring"}) {
    ExpectNear(Train({.variable_update = "distributed_all_reduce",
                      .all_reduce_spec = spec,
                      .workers = 2,
                      .devices = 2,
                      .momentum = 0.9f}),
               StepBySums(4, 1, 0.9f));
  }
}

TEST(Strategy, CollectiveAllReduceStepsCopiesByTheSum) {
  ExpectNear(Train({.variable_update = "collective_all_reduce",
                    .all_reduce_spec = "collective#4",
                    .workers = 2,
                    .devices = 2,
                    .momentum = 0.9f}),
             StepBySums(4, 1, 0.9f));
}

struct Wrong {
  StrategyRequest request;
  absl::StatusCode code;
  std::vector<std::string> words;
};

TEST(Strategy, ThatCannotBeIsNamedWithTheWayOut) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const auto missing = absl::StatusCode::kUnimplemented;
  const std::vector<Wrong> all = {
      {{"mirrored"}, invalid, {"mirrored", "collective_all_reduce"}},
      {{"replicated", "tpu"}, invalid, {"tpu", "cpu"}},
      {{"horovod", "cpu"}, invalid, {"--local-parameter-device", "no effect"}},
      {{"horovod", "", "nccl"}, invalid, {"--all-reduce-spec", "no effect"}},
      {{"replicated", "", "pscpu:x:xring"}, invalid, {"'x'"}},
      {{"replicated", "", "pscpu:2k"}, invalid, {"'2k'"}},
      {{"replicated", "", "star"}, invalid, {"star", "xring"}},
      {{"replicated", "", "pscpu#0"}, invalid, {"pscpu#0"}},
      {{"replicated", "", "pscpu/xring/nccl"}, invalid, {"two levels"}},
      {{"replicated", "", "xring"}, missing, {"xring", "pscpu"}},
      {{"replicated", "", "pscpu:2k:psgpu"}, missing, {"local", "device"}},
      {{"replicated", "", "", 2}, invalid, {"one process", "2 workers"}},
      {{"independent", "", "", 1, 2}, missing, {"a run for each of 2"}},
      {{"distributed_all_reduce", "", "nccl/xring", 2}, missing, {"nccl"}},
      {{"distributed_replicated", "", "", 2, 1, 0.9f}, missing, {"--mom 0"}},
      {{"collective_all_reduce", "", "xring", 2}, invalid, {"collective"}},
  };
  for (const Wrong& wrong : all) {
    const absl::Status status = FindStrategy(wrong.request).status();
    for (const std::string& word : wrong.words) {
      EXPECT_THAT(status, StatusIs(wrong.code, word));
    }
  }
}

}  // namespace
}  // namespace telegrad
