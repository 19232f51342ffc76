#include "absl/strings/str_cat.h"
#include "base/device_access.h"
#include "kvstore/engine/codec/floats.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/device_tensors.h"

// Stores with tensors on devices and of 16-bit floats. What any store must do
// there is in the conformance suite.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::Gradient;
using testing::IsOk;
using testing::kElems;
using testing::Rounded;
using testing::Soon;
using testing::StatusIs;
using testing::ViewOf;
using testing::Widened;

void Fill(const Buffer& buffer, const std::vector<std::byte>& bytes) {
  std::copy(bytes.begin(), bytes.end(), Reach(buffer.view()).data);
}

std::vector<std::byte> ContentOf(const Buffer& buffer) {
  const Bytes reached = Reach(buffer.view());
  return {reached.data, reached.data + reached.size};
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

// Then the caller does all.
TEST(LocalStore, NeedsNoThreads) {
  for (const char* const type : {"local", "device"}) {
    auto store = *MakeKVStore(
        type, {.num_threads = 0, .chunk_elems = 32, .num_devices = 2}, nullptr);
    const std::vector<TensorSpec> specs = {{"a", kElems}};
    ASSERT_THAT(store->Init(specs, {}), IsOk());
    const Buffer memory[] = {Buffer(4 * kElems), Buffer(4 * kElems)};
    const TensorView views[] = {FloatTensor(memory[0].view()),
                                FloatTensor(memory[1].view())};
    for (const Buffer& each : memory) {
      std::fill_n(each.as<float>(), kElems, 1.0f);
    }
    ASSERT_THAT(store->Push(0, views, 0).Wait(Soon()), IsOk());
    ASSERT_THAT(store->PushPull(0, views, views, 0).Wait(Soon()), IsOk());
    ASSERT_THAT(store->Pull(0, views, 0).Wait(Soon()), IsOk());
    EXPECT_EQ(memory[1].as<float>()[kElems - 1], 2);
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

}  // namespace
}  // namespace telegrad
