#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "kernels/device_queue.h"
#include "kvstore/engine/device/device_lane.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/device_tensors.h"
#include "tests/kvstore/gpu.h"

// Stores with tensors on a GPU: emulated, too (tests/simt).
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::Gradient;
using testing::IsOk;
using testing::kElems;
using testing::Rounded;
using testing::Soon;
using testing::ViewOf;
using testing::Widened;

// A tensor on a GPU, which is written and read on a stream of the caller's.
class GpuTensor {
 public:
  explicit GpuTensor(kernels::DeviceQueue* queue, Dtype dtype = Dtype::kFloat32)
      : queue_(*queue),
        dtype_(dtype),
        stream_(queue->MakeStream(0)),
        event_(queue->MakeEvent()),
        host_(queue->MakePinned(SizeOf(dtype) * kElems)),
        memory_(queue->MakeMemory(SizeOf(dtype) * kElems, stream_)) {}

  TensorView view() const {
    TensorView view = ViewOf(memory_, dtype_);
    view.stream = stream_;
    return view;
  }
  Stream stream() const { return stream_; }
  // Waits for nothing.
  void Write(const std::vector<float>& values) {
    const std::vector<std::byte> bytes = Rounded(values, dtype_);
    std::copy(bytes.begin(), bytes.end(), host_.data());
    queue_.Copy(memory_.view(), host_.view(), stream_);
  }
  std::vector<float> Read() {
    queue_.Copy(host_.view(), memory_.view(), stream_);
    queue_.Record(event_, stream_);
    while (queue_.Poll(event_) == kernels::DeviceQueue::State::kRunning) {
      std::this_thread::yield();
    }
    EXPECT_EQ(queue_.TakeError(), "");
    std::vector<float> floats(kElems);
    Widen(kernels::CpuKernels(), host_.view(), dtype_, kElems, floats.data(),
          {});
    return floats;
  }

 private:
  kernels::DeviceQueue& queue_;
  const Dtype dtype_;
  const Stream stream_;
  const Event event_;
  const Buffer host_;
  const Buffer memory_;
};

// Where the first of two workers has its tensor.
enum class Place { kHost, kGpu, kGpuWithCards };

constexpr int kRounds = 5;

// The sums of five rounds of both, and what went down from the device.
struct Rounds {
  std::vector<std::vector<float>> sums;
  int64_t from_device_bytes = 0;
};
Rounds RoundsOf(const std::string& type, Place place) {
  ClusterConfig config;
  config.compression.type = type;
  config.compression.warmup_steps = 0;
  config.compression.has_guard = false;
  config.chunk_elems = 32;
  // A transport that takes the device's memory, as those with cards do.
  if (place == Place::kGpuWithCards) config.memory = "staged";
  Cluster cluster(config);
  cluster.StartServers();
  std::vector<std::vector<float>> sums[2];
  Rounds result;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      testing::Worker worker = cluster.MakeWorker(rank);
      const bool is_there = place != Place::kHost && rank == 0;
      const TensorSpec spec{.name = "a",
                            .num_elems = kElems,
                            .devices = {is_there ? testing::kGpu : Device{}}};
      const auto queue = kernels::MakeDeviceQueue(spec.devices[0], nullptr);
      GpuTensor tensor(queue.get());
      tensor.Write(Gradient(0, 9));
      const TensorView view = tensor.view();
      const TensorViews views(&view, 1);
      ASSERT_THAT(worker.Init(std::span(&spec, 1), views), IsOk());
      int64_t before = 0;
      for (int step = 0; step < kRounds; ++step) {
        tensor.Write(Gradient(rank, step));
        const Ticket ticket = worker->PushPull(0, views, views, 0);
        ASSERT_THAT(ticket.WaitOn(tensor.stream(), Soon()), IsOk());
        sums[rank].push_back(tensor.Read());
        // In the first step samples come along.
        if (step == 0) before = worker->stats().from_device_bytes;
      }
      if (is_there)
        result.from_device_bytes = worker->stats().from_device_bytes - before;
      worker->Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sums[0], sums[1]) << type;
  result.sums = sums[0];
  return result;
}

// Nobody waits for the device but for the last copy: what the store queues
// comes behind the gradient, and what the caller queues behind the result.
TEST(DevicesOnAGpu, GiveTheSumsOfHostMemoryBehindTheCallersStream) {
  if (!testing::HasGpu()) return;
  for (const char* type : {"none", "2bit", "topk:0.1", "int8", "powersgd"}) {
    EXPECT_EQ(RoundsOf(type, Place::kGpu).sums,
              RoundsOf(type, Place::kHost).sums)
        << type;
  }
}

// Codes go from where they were encoded: down come 32 bytes for each of four
// chunks, and 8 for a wish.
TEST(DevicesOnAGpu, SendCodesFromTheDeviceWhereTheTransportTakesThem) {
  if (!testing::HasGpu()) return;
  for (const char* type : {"none", "2bit", "topk:0.1", "int8", "powersgd"}) {
    const Rounds rounds = RoundsOf(type, Place::kGpuWithCards);
    EXPECT_EQ(rounds.sums, RoundsOf(type, Place::kHost).sums) << type;
    if (type == std::string("none")) continue;
    const int wishes = type == std::string("2bit") ? 1 : 0;
    EXPECT_EQ(rounds.from_device_bytes, (kRounds - 1) * (4 * 32 + 8 * wishes))
        << type;
  }
}

TensorSpec SpecOn(Device device) {
  return {.name = "a", .num_elems = kElems, .devices = {device}};
}

// What the caller's stream still does with an output comes first, whether it is
// copied there or decoded, from what was copied up or the network has put
// there.
TEST(DevicesOnAGpu, PullBehindTheOutputsStream) {
  if (!testing::HasGpu()) return;
  for (const auto& [type, memory] :
       {std::pair("none", "host"), {"2bit", "host"}, {"2bit", "staged"}}) {
    ClusterConfig config;
    config.workers = 1;
    config.memory = memory;
    config.compression.type = type;
    config.compression.warmup_steps = 0;
    Cluster cluster(config);
    cluster.StartServers();
    testing::Worker worker = cluster.MakeWorker(0);
    const TensorSpec spec = SpecOn(testing::kGpu);
    const auto queue = kernels::MakeDeviceQueue(testing::kGpu, nullptr);
    GpuTensor sum(queue.get());
    GpuTensor out(queue.get());
    const TensorView view = sum.view();
    const TensorViews views(&view, 1);
    ASSERT_THAT(worker.Init(std::span(&spec, 1), {}), IsOk());
    sum.Write(Gradient(0, 9));
    ASSERT_THAT(worker->PushPull(0, views, views, 0).Wait(Soon()), IsOk());
    const std::vector<float> expected = sum.Read();
    const TensorView to = out.view();
    for (int turn = 0; turn < 5; ++turn) {
      out.Write(std::vector<float>(kElems, -1));
      const Ticket ticket = worker->Pull(0, TensorViews(&to, 1), 0);
      ASSERT_THAT(ticket.WaitOn(out.stream(), Soon()), IsOk());
      ASSERT_EQ(out.Read(), expected) << type << memory << turn;
    }
    worker->Close();
  }
}

// As a gradient is saved when its operation is cancelled.
TEST(DevicesOnAGpu, CopyBehindAnEvent) {
  if (!testing::HasGpu()) return;
  const std::unique_ptr<DeviceLane> lane = *DeviceLane::Make(testing::kGpu);
  const auto queue = kernels::MakeDeviceQueue(testing::kGpu, nullptr);
  GpuTensor tensor(queue.get());
  const Buffer copy = lane->MakeHostMemory(4 * kElems);
  const auto* const values = copy.as<float>();
  for (int turn = 0; turn < 8; ++turn) {
    tensor.Write(Gradient(0, turn));
    const Event ready = lane->TakeEvent();
    lane->Record(ready, tensor.stream());
    ASSERT_THAT(lane->CopyNow(copy.view(), tensor.view().bytes, ready), IsOk());
    lane->Return(ready);
    EXPECT_EQ(std::vector<float>(values, values + kElems), Gradient(0, turn));
  }
}

// Sums come as float32 into memory that kernels use again and again.
TEST(DevicesOnAGpu, RoundSumsToHalves) {
  if (!testing::HasGpu()) return;
  ClusterConfig config;
  config.workers = 1;
  config.chunk_elems = 8;
  Cluster cluster(config);
  cluster.StartServers();
  testing::Worker worker = cluster.MakeWorker(0);
  TensorSpec spec = SpecOn(testing::kGpu);
  spec.dtype = Dtype::kFloat16;
  const auto queue = kernels::MakeDeviceQueue(testing::kGpu, nullptr);
  GpuTensor tensor(queue.get(), spec.dtype);
  const TensorView view = tensor.view();
  const TensorViews views(&view, 1);
  ASSERT_THAT(worker.Init(std::span(&spec, 1), {}), IsOk());
  for (int step = 0; step < 8; ++step) {
    tensor.Write(Gradient(0, step));
    const Ticket ticket = worker->PushPull(0, views, views, 0);
    ASSERT_THAT(ticket.WaitOn(tensor.stream(), Soon()), IsOk());
    EXPECT_EQ(tensor.Read(), Widened(Gradient(0, step), spec.dtype)) << step;
  }
  worker->Close();
}

// The gradient of an operation that was cancelled counts as it was, though the
// caller writes to its memory at once.
TEST(DevicesOnAGpu, CancelGivesTheMemoryBack) {
  if (!testing::HasGpu()) return;
  constexpr int kTurns = 4;
  ClusterConfig config;
  Cluster cluster(config);
  cluster.StartServers();
  std::vector<float> sums[kTurns];
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      testing::Worker worker = cluster.MakeWorker(rank);
      const TensorSpec spec = SpecOn(rank == 0 ? testing::kGpu : Device{});
      const auto queue = kernels::MakeDeviceQueue(spec.devices[0], nullptr);
      GpuTensor tensor(queue.get());
      const TensorView view = tensor.view();
      const TensorViews views(&view, 1);
      ASSERT_THAT(worker.Init(std::span(&spec, 1), {}), IsOk());
      for (int turn = 0; turn < kTurns; ++turn) {
        tensor.Write(Gradient(rank, turn));
        Ticket ticket = worker->PushPull(0, views, views, 0);
        if (rank == 0) {
          ticket.Cancel();
          tensor.Write(std::vector<float>(kElems, 1e6f));
        } else {
          ASSERT_THAT(ticket.Wait(Soon()), IsOk());
          sums[turn] = tensor.Read();
        }
        ASSERT_THAT(worker->group().Gather("turn", "").status(), IsOk());
        // The key takes operations again once the old round is over.
        while (rank == 0 && worker->Pull(0, views, 0).Wait(Soon()).code() ==
                                absl::StatusCode::kFailedPrecondition) {
          std::this_thread::yield();
        }
      }
      worker->Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int turn = 0; turn < kTurns; ++turn) {
    std::vector<float> expected = Gradient(0, turn);
    const std::vector<float> more = Gradient(1, turn);
    for (size_t i = 0; i < kElems; ++i) expected[i] += more[i];
    EXPECT_EQ(sums[turn], expected) << turn;
  }
}

}  // namespace
}  // namespace telegrad
