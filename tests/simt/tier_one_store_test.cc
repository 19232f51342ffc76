#include <barrier>
#include <string>
#include <thread>
#include <vector>

#include "base/exit_code.h"
#include "tests/simt/gpu_steps.h"

// Workers with two emulated GPUs each before servers, or without: NCCL sums
// within a worker, codes go from and to its first GPU.
namespace telegrad {
namespace {

using simt::GpuSteps;
using simt::kGpus;
using testing::Cluster;
using testing::ClusterConfig;
using testing::IsOk;
using testing::Job;
using testing::Soon;
using testing::Worker;

constexpr size_t kWorkers = 2;
const std::vector<size_t> kTensors = {2000, 64, 1000, 0, 7};

struct Tried {
  Dtype dtype = Dtype::kFloat32;
  std::string type = "dist_sync";
  CompressionConfig compression = {};
  OptimizerConfig optimizer = {};
  size_t devices = kGpus;
};

void RunWorkers(const Tried& tried, const std::function<void(Worker&)>& body) {
  ClusterConfig config = Job(kWorkers, 2);
  config.store = tried.type;
  config.hosts_parts = tried.type == "allreduce";
  Cluster cluster(config);
  if (!config.hosts_parts) cluster.StartServers();
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < kWorkers; ++rank) {
    threads.emplace_back([&, rank] {
      DistOptions options = cluster.Options();
      options.wanted_rank = static_cast<int>(rank);
      options.num_devices = static_cast<int>(tried.devices);
      options.chunk_elems = 512;
      if (config.hosts_parts) options.part = HostPart(1);
      Worker worker(options, tried.compression, tried.optimizer, tried.type);
      ASSERT_THAT(worker.Join(), IsOk());
      body(worker);
      worker->Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SimtStoreTierOne, SumsWithinAndBetweenWorkers) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16}) {
    RunWorkers({.dtype = dtype}, [&](Worker& worker) {
      GpuSteps steps(*worker, kTensors, dtype, 0);
      for (size_t step = 0; step < 4; ++step) {
        SCOPED_TRACE(::testing::Message() << ToString(dtype) << ", " << step);
        steps.Fill(step);
        ASSERT_THAT(steps.Run(), IsOk());
        ASSERT_NO_FATAL_FAILURE(steps.ExpectSums(step));
      }
    });
  }
}

TEST(SimtStoreTierOne, PushesPullsAndBroadcasts) {
  RunWorkers({}, [](Worker& worker) {
    GpuSteps steps(*worker, kTensors, Dtype::kFloat32, 0);
    for (size_t step = 0; step < 2; ++step) {
      steps.Fill(step);
      for (Key key = 0; key < kTensors.size(); ++key) {
        EXPECT_THAT(worker->Push(key, steps.views(key), 0).Wait(Soon()),
                    IsOk());
        EXPECT_THAT(worker->Pull(key, steps.views(key), 0).Wait(Soon()),
                    IsOk());
      }
      ASSERT_NO_FATAL_FAILURE(steps.ExpectSums(step));
    }
    steps.Fill(5);
    EXPECT_THAT(worker->Broadcast(0, 1, steps.views(0), 0).Wait(Soon()),
                IsOk());
    std::vector<float> of_worker_1;
    for (size_t i = 0; i < kTensors[0]; ++i) {
      of_worker_1.push_back(simt::ValueOf(kGpus, 0, 5, i));
    }
    EXPECT_EQ(steps.Result(0, 0), of_worker_1);
    EXPECT_EQ(steps.Result(0, 1), of_worker_1);
  });
}

// Residuals are of the worker's sum, so that bytes and bits are those of
// devices of the CPU.
TEST(SimtStoreTierOne, HasTheBitsAndBytesOfDevicesOfTheHost) {
  const CompressionConfig two_bit = {.type = "2bit"};
  std::vector<std::vector<float>> there(kWorkers), here(kWorkers);
  std::vector<StoreStats> stats_there(kWorkers), stats_here(kWorkers);
  RunWorkers({.compression = two_bit}, [&](Worker& worker) {
    const auto rank = static_cast<size_t>(worker->group().rank());
    GpuSteps steps(*worker, {2000}, Dtype::kFloat32, 0);
    for (size_t step = 0; step < 3; ++step) {
      steps.Fill(step);
      ASSERT_THAT(steps.Run(), IsOk());
    }
    there[rank] = steps.Result(0, 1);
    EXPECT_EQ(steps.Result(0, 0), there[rank]);
    stats_there[rank] = worker->stats();
  });
  RunWorkers({.compression = two_bit}, [&](Worker& worker) {
    const auto rank = static_cast<size_t>(worker->group().rank());
    ASSERT_THAT(
        worker->Init(std::vector<TensorSpec>{{"t0", 2000}}, {}).status(),
        IsOk());
    std::vector<std::vector<float>> grads(kGpus, std::vector<float>(2000));
    for (size_t step = 0; step < 3; ++step) {
      std::vector<TensorView> views;
      for (size_t gpu = 0; gpu < kGpus; ++gpu) {
        for (size_t i = 0; i < 2000; ++i) {
          grads[gpu][i] = simt::ValueOf(kGpus * rank + gpu, 0, step, i);
        }
        views.push_back(HostTensor(grads[gpu].data(), 2000));
      }
      ASSERT_THAT(worker->PushPull(0, views, views, 0).Wait(Soon()), IsOk());
    }
    here[rank] = grads[1];
    stats_here[rank] = worker->stats();
  });
  for (size_t rank = 0; rank < kWorkers; ++rank) {
    EXPECT_EQ(there[rank], here[rank]);
    EXPECT_EQ(stats_there[rank].push_wire_bytes,
              stats_here[rank].push_wire_bytes);
    EXPECT_EQ(stats_there[rank].pull_wire_bytes,
              stats_here[rank].pull_wire_bytes);
  }
}

TEST(SimtStoreTierOne, SumsForEachOtherWithoutServers) {
  RunWorkers({.type = "allreduce"}, [](Worker& worker) {
    GpuSteps steps(*worker, kTensors, Dtype::kFloat32, 0);
    for (size_t step = 0; step < 2; ++step) {
      steps.Fill(step);
      ASSERT_THAT(steps.Run(), IsOk());
      ASSERT_NO_FATAL_FAILURE(steps.ExpectSums(step));
    }
  });
}

// The memory is the caller's, what was pushed counts.
TEST(SimtStoreTierOne, GivesMemoryBackAndPushesAllTheSame) {
  RunWorkers({}, [](Worker& worker) {
    GpuSteps steps(*worker, {2000}, Dtype::kFloat32, 0);
    steps.Fill(0);
    const Ticket ticket = steps.PushPull(0);
    if (worker->group().rank() == 0) ticket.Cancel();
    const absl::Status status = ticket.Wait(Soon());
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
    for (absl::Status next = absl::UnavailableError(""); !next.ok();) {
      steps.Fill(1);
      next = steps.PushPull(0).Wait(Soon());
      ASSERT_TRUE(next.ok() || absl::IsFailedPrecondition(next)) << next;
    }
    steps.ExpectSums(1);
  });
}

// A GPU that fails within a worker ends the job for all.
TEST(SimtStoreTierOne, EndsWithADevicesError) {
  std::barrier begun(kWorkers);
  std::vector<absl::Status> ends(kWorkers);
  RunWorkers({}, [&](Worker& worker) {
    const int rank = worker->group().rank();
    GpuSteps steps(*worker, kTensors, Dtype::kFloat32, 0);
    steps.Fill(0);
    EXPECT_THAT(steps.Run(), IsOk());
    steps.Fill(1);
    begun.arrive_and_wait();
    if (rank == 0) simt::FailLaunch(1, cudaErrorIllegalAddress, false);
    begun.arrive_and_wait();
    absl::Status& end = ends[static_cast<size_t>(rank)];
    while (end.ok()) end = steps.Run();
  });
  simt::FailNoMore();
  EXPECT_TRUE(ExitCodeOf(ends[0]) == ExitCode::kDeviceFault ||
              ExitCodeOf(ends[1]) == ExitCode::kDeviceFault)
      << ends[0] << ends[1];
}

}  // namespace
}  // namespace telegrad
