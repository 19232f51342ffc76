
#include "base/exit_code.h"
#include "kernels/device_queue.h"
#include "kernels/device_scope.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/gpu.h"
#include "tests/simt/observe.h"

// What a store asks of a device in each step, once it has what it needs.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::IsOk;
using testing::Soon;

constexpr size_t kChunk = 1024;

// 4 chunks in all.
const std::vector<TensorSpec> kTensors = {
    {.name = "a", .num_elems = 2000, .devices = {testing::kGpu}},
    {.name = "b", .num_elems = 64, .devices = {testing::kGpu}},
    {.name = "c", .num_elems = 1000, .devices = {testing::kGpu}}};

class Steps {
 public:
  explicit Steps(const std::string& type)
      : queue_(kernels::MakeDeviceQueue(testing::kGpu, nullptr)),
        stream_(queue_->MakeStream(0)),
        cluster_(ConfigOf(type)),
        worker_(cluster_.MakeWorker(0)) {
    cluster_.StartServers();
    for (const TensorSpec& tensor : kTensors) {
      const size_t bytes = 4 * tensor.num_elems;
      host_.push_back(queue_->MakePinned(bytes));
      auto* const values = host_.back().as<float>();
      for (size_t i = 0; i < tensor.num_elems; ++i) {
        values[i] = static_cast<float>(i % 17) - 8;
      }
      memory_.push_back(queue_->MakeMemory(bytes, stream_));
      queue_->Copy(memory_.back().view(), host_.back().view(), stream_);
      views_.push_back(FloatTensor(memory_.back().view()));
      views_.back().stream = stream_;
    }
    EXPECT_THAT(worker_.Init(kTensors, views_), IsOk());
  }
  ~Steps() { worker_->Close(); }

  KVStore& store() { return *worker_; }
  absl::Status Run() {
    std::vector<Ticket> tickets;
    for (size_t k = 0; k < views_.size(); ++k) {
      const TensorViews view(&views_[k], 1);
      tickets.push_back(store().PushPull(static_cast<Key>(k), view, view, 0));
    }
    for (const Ticket& ticket : tickets) {
      RETURN_IF_ERROR(ticket.WaitOn(stream_, Soon()));
    }
    return absl::OkStatus();
  }

 private:
  static ClusterConfig ConfigOf(const std::string& type) {
    ClusterConfig config;
    config.workers = 1;
    config.chunk_elems = kChunk;
    config.compression.type = type;
    config.compression.warmup_steps = type == "none" ? 0 : 1;
    return config;
  }

  const std::unique_ptr<kernels::DeviceQueue> queue_;
  const Stream stream_;
  std::vector<Buffer> host_;
  std::vector<Buffer> memory_;
  std::vector<TensorView> views_;
  Cluster cluster_;
  testing::Worker worker_;
};

// Steps 3 to 20: every chunk's sample was taken once before.
TEST(SimtStore, WaitsForNothingAndAllocatesNothing) {
  for (const char* type : {"none", "2bit", "int8", "topk:0.1"}) {
    Steps steps(type);
    for (int step = 0; step < 20; ++step) {
      ASSERT_THAT(steps.Run(), IsOk());
    }
    const simt::Counters before = simt::Counted();
    for (int step = 0; step < 20; ++step) {
      ASSERT_THAT(steps.Run(), IsOk());
    }
    const simt::Counters used = simt::Counted() - before;
    EXPECT_EQ(used.waits, 0u) << type;
    EXPECT_EQ(used.allocations, 0u) << type;
    EXPECT_EQ(used.pool_allocations, 0u) << type;
  }
}

// A launch that fails ends the operation and names the device.
TEST(SimtStore, EndsWithTheDevicesError) {
  Steps steps("2bit");
  ASSERT_THAT(steps.Run(), IsOk());
  ASSERT_THAT(steps.Run(), IsOk());
  simt::FailLaunch(1, cudaErrorIllegalAddress, true);
  absl::Status status;
  for (int step = 0; step < 3 && status.ok(); ++step) status = steps.Run();
  simt::FailNoMore();
  kernels::TakeLaunchError(testing::kGpu);  // this thread's
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kDeviceFault) << status;
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("cuda:0: an illegal memory access"));
}

}  // namespace
}  // namespace telegrad
