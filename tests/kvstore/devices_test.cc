#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/device_access.h"
#include "kernels/device_queue.h"
#include "kvstore/engine/floats.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/gpu.h"
#include "tests/kvstore/oracle.h"

// Stores with tensors on devices and of 16-bit floats. What any store must do
// there is in the conformance suite.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::GradOf;
using testing::IsOk;
using testing::Soon;
using testing::StatusIs;

constexpr size_t kElems = 100;

std::vector<std::byte> Rounded(const std::vector<float>& values, Dtype dtype) {
  std::vector<std::byte> bytes(SizeOf(dtype) * values.size());
  EncodeStats stats;
  Narrow(kernels::CpuKernels(), values.data(), values.size(),
         Bytes(bytes.data(), bytes.size()), dtype, &stats, {});
  return bytes;
}

TensorView ViewOf(const Buffer& buffer, Dtype dtype) {
  return {.bytes = buffer.view(),
          .dtype = dtype,
          .num_elems = static_cast<int64_t>(buffer.size() / SizeOf(dtype))};
}

void Fill(const Buffer& buffer, const std::vector<std::byte>& bytes) {
  std::copy(bytes.begin(), bytes.end(), Reach(buffer.view()).data);
}

std::vector<std::byte> ContentOf(const Buffer& buffer) {
  const Bytes reached = Reach(buffer.view());
  return {reached.data, reached.data + reached.size};
}

// Not on a grid: what two of them add up to must be rounded.
std::vector<float> Gradient(int device, int step) {
  std::vector<float> grad(kElems);
  for (size_t i = 0; i < kElems; ++i) {
    grad[i] = GradOf(device, step, i) * (device == 0 ? 1.0f : 1.0f / 3);
  }
  return grad;
}

// As a store sees it.
std::vector<float> Widened(const std::vector<float>& values, Dtype dtype) {
  std::vector<float> floats(values.size());
  const std::vector<std::byte> bytes = Rounded(values, dtype);
  Widen(kernels::CpuKernels(), {bytes.data(), bytes.size()}, dtype,
        values.size(), floats.data(), {});
  return floats;
}

class Halves : public ::testing::TestWithParam<std::tuple<Dtype, Device>> {};

INSTANTIATE_TEST_SUITE_P(
    , Halves,
    ::testing::Combine(::testing::Values(Dtype::kFloat16, Dtype::kBfloat16),
                       ::testing::Values(Device{}, kEmulatedDevice)),
    [](const auto& test) {
      return absl::StrCat(
          ToString(std::get<0>(test.param)),
          std::get<1>(test.param) == Device{} ? "" : "OnDevice");
    });

// `local`: two devices of one process.
TEST_P(Halves, AreSummedAsFloat32AndRoundedOnce) {
  const auto [dtype, place] = GetParam();
  auto store =
      *MakeKVStore("local", {.chunk_elems = 32, .num_devices = 2}, nullptr);
  const std::vector<TensorSpec> specs = {{.name = "a",
                                          .num_elems = kElems,
                                          .dtype = dtype,
                                          .devices = {place, Device{}}}};
  ASSERT_THAT(store->Init(specs, {}), IsOk());
  const size_t bytes = 2 * kElems;
  const Buffer first =
      place == Device{} ? Buffer(bytes) : MakeEmulatedBuffer(bytes);
  const Buffer second(bytes);
  for (int step = 0; step < 3; ++step) {
    Fill(first, Rounded(Gradient(0, step), dtype));
    Fill(second, Rounded(Gradient(1, step), dtype));
    const TensorView views[] = {ViewOf(first, dtype), ViewOf(second, dtype)};
    ASSERT_THAT(store->PushPull(0, views, views, 0).Wait(Soon()), IsOk());
    std::vector<float> sums = Widened(Gradient(0, step), dtype);
    const std::vector<float> more = Widened(Gradient(1, step), dtype);
    for (size_t i = 0; i < kElems; ++i) sums[i] += more[i];
    EXPECT_EQ(ContentOf(first), Rounded(sums, dtype)) << step;
    EXPECT_EQ(ContentOf(second), Rounded(sums, dtype)) << step;
  }
}

// `dist_sync`: one worker has halves, on a device or not, the other float32 in
// host memory; with codes the sums are those of float32 gradients.
TEST_P(Halves, MixWithFloat32InOneJob) {
  const auto [dtype, place] = GetParam();
  for (const char* type : {"none", "2bit", "int8"}) {
    ClusterConfig config;
    config.compression.type = type;
    config.chunk_elems = 32;
    Cluster cluster(config);
    cluster.StartServers();
    std::vector<std::thread> threads;
    std::vector<std::byte> outputs[2];
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank, own = rank == 0 ? dtype : Dtype::kFloat32,
                            on = rank == 0 ? place : Device{}] {
        testing::Worker worker = cluster.MakeWorker(rank);
        const std::vector<TensorSpec> specs = {
            {.name = "a", .num_elems = kElems, .dtype = own, .devices = {on}}};
        const size_t bytes = SizeOf(own) * kElems;
        const Buffer memory =
            on == Device{} ? Buffer(bytes) : MakeEmulatedBuffer(bytes);
        Fill(memory, Rounded(Gradient(0, 1), own));
        const TensorView view = ViewOf(memory, own);
        ASSERT_THAT(worker.Init(specs, TensorViews(&view, 1)), IsOk());
        Fill(memory, Rounded(Widened(Gradient(rank, 0), dtype), own));
        const TensorViews views(&view, 1);
        ASSERT_THAT(worker->PushPull(0, views, views, 0).Wait(Soon()), IsOk());
        outputs[rank] = ContentOf(memory);
        const StoreStats stats = worker->stats();
        EXPECT_EQ(stats.from_device_bytes > 0, on == kEmulatedDevice);
        EXPECT_EQ(stats.to_device_bytes > 0, on == kEmulatedDevice);
        worker->Close();
      });
    }
    for (std::thread& thread : threads) thread.join();
    const auto* const sums = reinterpret_cast<const float*>(outputs[1].data());
    EXPECT_EQ(outputs[0], Rounded({sums, sums + kElems}, dtype)) << type;
    EXPECT_NE(sums[1], 0) << type;
  }
}

TEST(Devices, AreRefusedWhereTheyAreNot) {
  auto store = *MakeKVStore("local", {}, nullptr);
  const auto init = [&](TensorSpec spec) {
    return store->Init(std::span(&spec, 1), {}).status();
  };
  EXPECT_THAT(init({"a", 4, Dtype::kFloat32, {{DeviceKind::kCuda, 99}}}),
              StatusIs(absl::StatusCode::kUnimplemented, "cuda:99"));
  EXPECT_THAT(init({"a", 4, Dtype::kInt32}),
              StatusIs(absl::StatusCode::kInvalidArgument, "int32"));
  EXPECT_THAT(init({"a", 4, Dtype::kFloat32, {{}, {}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "2 devices"));
  ASSERT_THAT(init({"a", 4, Dtype::kFloat32, {kEmulatedDevice}}), IsOk());
  Buffer host(16);
  EXPECT_THAT(store->Push(0, host.view(), 0).Wait(Soon()),
              StatusIs(absl::StatusCode::kInvalidArgument, "emulated device"));
}

// The result is behind a stream, for work that is queued there, or on the host.
TEST(Devices, LetAStreamWaitForAResult) {
  for (const char* type : {"none", "2bit"}) {
    ClusterConfig config;
    config.workers = 1;
    config.compression.type = type;
    Cluster cluster(config);
    cluster.StartServers();
    testing::Worker worker = cluster.MakeWorker(0);
    const std::vector<TensorSpec> specs = {
        {.name = "a", .num_elems = kElems, .devices = {kEmulatedDevice}}};
    const Buffer memory = MakeEmulatedBuffer(4 * kElems);
    const TensorView view = ViewOf(memory, Dtype::kFloat32);
    const TensorViews views(&view, 1);
    ASSERT_THAT(worker.Init(specs, views), IsOk());
    for (int step = 0; step < 20; ++step) {
      const std::vector<std::byte> grad =
          Rounded(Gradient(0, step), Dtype::kFloat32);
      Fill(memory, grad);
      const Ticket ticket = worker->PushPull(0, views, views, 0);
      ASSERT_THAT(ticket.WaitOn({}, Soon()), IsOk());
      // On this device what is queued is done.
      if (type == std::string("none")) {
        ASSERT_EQ(ContentOf(memory), grad);
      }
    }
    const Ticket failed = worker->Push(7, views, 0);
    EXPECT_THAT(failed.WaitOn({}, Soon()),
                StatusIs(absl::StatusCode::kInvalidArgument, "key 7"));
    worker->Close();
  }
}

// A tensor on a GPU, which is written and read on a stream of the caller's.
class GpuTensor {
 public:
  explicit GpuTensor(kernels::DeviceQueue* queue)
      : queue_(*queue),
        stream_(queue->MakeStream(0)),
        event_(queue->MakeEvent()),
        host_(queue->MakePinned(4 * kElems)),
        memory_(queue->MakeMemory(4 * kElems, stream_)) {}

  TensorView view() const {
    TensorView view = ViewOf(memory_, Dtype::kFloat32);
    view.stream = stream_;
    return view;
  }
  Stream stream() const { return stream_; }
  // Waits for nothing.
  void Write(const std::vector<float>& values) {
    std::copy(values.begin(), values.end(), host_.as<float>());
    queue_.Copy(memory_.view(), host_.view(), stream_);
  }
  std::vector<float> Read() {
    queue_.Copy(host_.view(), memory_.view(), stream_);
    queue_.Record(event_, stream_);
    while (queue_.Poll(event_) == kernels::DeviceQueue::State::kRunning) {
      std::this_thread::yield();
    }
    EXPECT_EQ(queue_.TakeError(), "");
    return {host_.as<float>(), host_.as<float>() + kElems};
  }

 private:
  kernels::DeviceQueue& queue_;
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

// What the caller's stream still does with an output comes first.
TEST(DevicesOnAGpu, PullBehindTheOutputsStream) {
  if (!testing::HasGpu()) return;
  ClusterConfig config;
  config.workers = 1;
  Cluster cluster(config);
  cluster.StartServers();
  testing::Worker worker = cluster.MakeWorker(0);
  const TensorSpec spec = SpecOn(testing::kGpu);
  const auto queue = kernels::MakeDeviceQueue(testing::kGpu, nullptr);
  GpuTensor value(queue.get());
  GpuTensor out(queue.get());
  value.Write(Gradient(0, 9));
  const TensorView view = value.view();
  ASSERT_THAT(worker.Init(std::span(&spec, 1), TensorViews(&view, 1)), IsOk());
  const TensorView to = out.view();
  for (int turn = 0; turn < 5; ++turn) {
    out.Write(std::vector<float>(kElems, -1));
    const Ticket ticket = worker->Pull(0, TensorViews(&to, 1), 0);
    ASSERT_THAT(ticket.WaitOn(out.stream(), Soon()), IsOk());
    ASSERT_EQ(out.Read(), Gradient(0, 9)) << turn;
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
