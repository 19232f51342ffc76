#include <functional>
#include <thread>

#include "base/random.h"
#include "tests/kvstore/cluster.h"

// Workers with several devices each.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::IsOk;
using testing::Job;
using testing::Soon;
using testing::StatusIs;
using testing::Worker;

constexpr size_t kHostElems = 50000;
constexpr int kWorkers = 2;

std::vector<Buffer> Gradients(int rank, int devices, int step) {
  std::vector<Buffer> all;
  for (int device = 0; device < devices; ++device) {
    Random random(static_cast<uint64_t>(100 * step + 10 * rank + device), 3);
    Buffer& grad = all.emplace_back(4 * kHostElems);
    for (size_t i = 0; i < kHostElems; ++i) {
      grad.as<float>()[i] = random.NextUniform(-1, 1);
    }
  }
  return all;
}

std::vector<TensorView> DeviceViews(const std::vector<Buffer>& buffers) {
  std::vector<TensorView> views;
  for (const Buffer& each : buffers) views.push_back(FloatTensor(each.view()));
  return views;
}

// Runs a worker's body on a thread of its own for each worker, between Init and
// Close.
void RunWorkers(int devices, const CompressionConfig& compression,
                const std::function<void(KVStore&)>& body,
                int num_threads = 1) {
  ClusterConfig config = Job(kWorkers, 2);
  config.num_threads = num_threads;
  config.tensors = {{"a", kHostElems}};
  Cluster cluster(config);
  cluster.StartServers();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorkers; ++rank) {
    threads.emplace_back([&, rank] {
      DistOptions options = cluster.Options();
      options.wanted_rank = rank;
      options.num_devices = devices;
      options.chunk_elems = 8192;
      Worker worker(options, compression);
      ASSERT_THAT(worker.Init(config.tensors, {}), IsOk());
      body(*worker);
      worker->Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TierOne, AddsDevicesInTheirOrderBeforeWorkers) {
  RunWorkers(3, {}, [](KVStore& store) {
    for (int step = 0; step < 3; ++step) {
      const std::vector<Buffer> memory =
          Gradients(store.group().rank(), 3, step);
      std::vector<float> expected(kHostElems);
      for (int rank = 0; rank < kWorkers; ++rank) {
        const std::vector<Buffer> grads = Gradients(rank, 3, step);
        for (size_t i = 0; i < kHostElems; ++i) {
          const float sum =
              (grads[0].as<float>()[i] + grads[1].as<float>()[i]) +
              grads[2].as<float>()[i];
          expected[i] = rank == 0 ? sum : expected[i] + sum;
        }
      }
      const std::vector<TensorView> views = DeviceViews(memory);
      ASSERT_THAT(store.PushPull(0, views, views, 0).Wait(Soon()), IsOk());
      for (const Buffer& out : memory) {
        EXPECT_EQ(
            std::vector<float>(out.as<float>(), out.as<float>() + kHostElems),
            expected);
      }
    }
  });
}

// Then the caller sums.
TEST(TierOne, NeedsNoThreads) {
  const auto body = [](KVStore& store) {
    const std::vector<Buffer> memory = Gradients(store.group().rank(), 2, 0);
    const std::vector<TensorView> views = DeviceViews(memory);
    ASSERT_THAT(store.PushPull(0, views, views, 0).Wait(Soon()), IsOk());
    const std::vector<Buffer> first = Gradients(0, 2, 0);
    const std::vector<Buffer> second = Gradients(1, 2, 0);
    EXPECT_EQ(memory[1].as<float>()[7],
              (first[0].as<float>()[7] + first[1].as<float>()[7]) +
                  (second[0].as<float>()[7] + second[1].as<float>()[7]));
    ASSERT_THAT(store.Broadcast(0, 0, views, 0).Wait(Soon()), IsOk());
  };
  RunWorkers(2, {}, body, /*num_threads=*/0);
}

StoreStats Traffic(int devices, const CompressionConfig& compression) {
  StoreStats stats;
  RunWorkers(devices, compression, [&](KVStore& store) {
    for (int step = 0; step < 4; ++step) {
      const std::vector<Buffer> memory =
          Gradients(store.group().rank(), devices, step);
      const std::vector<TensorView> views = DeviceViews(memory);
      ASSERT_THAT(store.PushPull(0, views, views, 0).Wait(Soon()), IsOk());
    }
    if (store.group().rank() == 0) stats = store.stats();
  });
  return stats;
}

TEST(TierOne, SendsAsManyBytesAsOneDeviceAWorker) {
  for (const char* type : {"none", "2bit", "int8"}) {
    const StoreStats one = Traffic(1, {.type = type});
    const StoreStats four = Traffic(4, {.type = type});
    EXPECT_GT(one.push_wire_bytes, 0);
    EXPECT_EQ(four.push_wire_bytes, one.push_wire_bytes) << type;
    EXPECT_EQ(four.pull_wire_bytes, one.pull_wire_bytes) << type;
    EXPECT_EQ(four.num_frames, one.num_frames) << type;
  }
}

TEST(TierOne, SaysWhatItWaitsFor) {
  RunWorkers(2, {}, [](KVStore& store) {
    const std::vector<Buffer> memory = Gradients(store.group().rank(), 2, 0);
    const std::vector<TensorView> views = DeviceViews(memory);
    if (store.group().rank() == 0) {
      const Ticket ticket = store.Push(0, views, 0);
      // Until it waits for the other worker, it waits for its own sums.
      EXPECT_FALSE(ticket.WaitUntil(Clock::now()));
      EXPECT_THAT(ticket.Wait(Clock::now()),
                  StatusIs(absl::StatusCode::kDeadlineExceeded, "tensor a"));
    }
    ASSERT_THAT(store.group().Gather("late", "").status(), IsOk());
    if (store.group().rank() == 1) {
      EXPECT_THAT(store.Push(0, views, 0).Wait(Soon()), IsOk());
    }
    // A store that is closed sends no more of what was cancelled.
    ASSERT_THAT(store.group().Gather("end", "").status(), IsOk());
  });
}

}  // namespace
}  // namespace telegrad
