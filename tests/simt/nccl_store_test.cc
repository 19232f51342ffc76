#include <cmath>
#include <string>
#include <vector>

#include "base/exit_code.h"
#include "tests/simt/gpu_steps.h"

// The store of type nccl on two emulated GPUs, with the NCCL of nccl.cc.
namespace telegrad {
namespace {

using simt::Gpu;
using simt::kGpus;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Soon;

class NcclStore {
 protected:
  NcclStore() {
    StoreOptions options;
    options.num_devices = kGpus;
    nccl_ = *MakeKVStore("nccl", options, nullptr);
  }
  ~NcclStore() { nccl_->Close(); }

  std::unique_ptr<KVStore> nccl_;
};

class NcclSteps : private NcclStore, public simt::GpuSteps {
 public:
  explicit NcclSteps(const std::vector<size_t>& sizes,
                     Dtype dtype = Dtype::kFloat32, size_t skew = 0)
      : GpuSteps(*nccl_, sizes, dtype, skew) {}
};

const std::vector<size_t> kSizes = {2000, 64, 1000, 3, 7};

// In whatever order streams get on.
TEST(SimtStoreNccl, SumsInTheOrderOfStreams) {
  for (const uint64_t seed : {0, 1, 2, 3, 4, 6, 9}) {
    SCOPED_TRACE(seed);
    simt::SetOrder(seed);
    for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16}) {
      NcclSteps steps(kSizes, dtype);
      for (size_t step = 0; step < 4; ++step) {
        SCOPED_TRACE(::testing::Message() << ToString(dtype) << ", " << step);
        steps.Fill(step);
        ASSERT_THAT(steps.Run(), IsOk());
        ASSERT_NO_FATAL_FAILURE(steps.ExpectSums(step));
      }
    }
  }
  simt::SetOrder(1);
}

// The next operation of a tensor comes behind the one that is queued.
TEST(SimtStoreNccl, SumsSumsWithoutAWaitOfTheHostInBetween) {
  NcclSteps steps(kSizes);
  steps.Fill(0);
  for (int round = 0; round < 3; ++round) ASSERT_THAT(steps.Run(), IsOk());
  steps.ExpectSums(0, 4);
}

TEST(SimtStoreNccl, WaitsForNothingAndAllocatesNothingInSteps3To100) {
  NcclSteps steps(kSizes);
  steps.Fill(0);
  for (int step = 0; step < 3; ++step) ASSERT_THAT(steps.Run(), IsOk());
  steps.Fill(0);  // else sums of sums become infinite
  const simt::Counters before = simt::Counted();
  for (int step = 3; step <= 100; ++step) ASSERT_THAT(steps.Run(), IsOk());
  const simt::Counters used = simt::Counted() - before;
  EXPECT_EQ(used.waits, 0u);
  EXPECT_EQ(used.allocations + used.pool_allocations, 0u);
}

// As no counter sees who asks again and again: the devices stand still, and
// all is queued. Two buckets are under way, others gather until somebody waits.
TEST(SimtStoreNccl, ReturnsWhileTheDevicesStandStill) {
  NcclSteps steps(kSizes);
  steps.Fill(0);
  ASSERT_THAT(steps.Run(), IsOk());
  steps.ExpectSums(0);
  steps.Fill(1);
  const int64_t before = steps.store().stats().num_frames;
  simt::HoldKernels(true);
  std::vector<Ticket> tickets;
  for (size_t key = 0; key < steps.num_tensors(); ++key) {
    tickets.push_back(steps.PushPull(key));
    if (key < 2) {
      EXPECT_THAT(steps.WaitOn(tickets[key]), IsOk());
    }
  }
  EXPECT_EQ(steps.store().stats().num_frames - before, 2);
  for (const Ticket& ticket : tickets) {
    EXPECT_THAT(steps.WaitOn(ticket), IsOk());
    EXPECT_FALSE(ticket.is_done());
  }
  EXPECT_EQ(steps.store().stats().num_frames - before, 3);
  simt::HoldKernels(false);
  steps.ExpectSums(1);
  for (const Ticket& ticket : tickets) EXPECT_THAT(ticket.Wait(Soon()), IsOk());
}

// A driver loads a kernel when it is launched first, and may wait for a sum.
TEST(SimtStoreNccl, LoadsNoKernelAfterInit) {
  for (const Dtype dtype :
       {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16}) {
    for (const size_t skew : {size_t{0}, size_t{1}}) {
      NcclSteps steps(kSizes, dtype, skew);
      steps.Fill(0);
      const simt::Counters before = simt::Counted();
      for (int step = 0; step < 2; ++step) ASSERT_THAT(steps.Run(), IsOk());
      EXPECT_EQ((simt::Counted() - before).loads, 0u);
    }
  }
}

// What has not begun, as others are under way, is the caller's at once.
TEST(SimtStoreNccl, GivesBackWhatGathers) {
  NcclSteps steps(kSizes);
  steps.Fill(0);
  simt::HoldKernels(true);
  std::vector<Ticket> tickets;
  for (size_t key = 0; key < 2; ++key) {
    tickets.push_back(steps.PushPull(key));
    EXPECT_THAT(steps.WaitOn(tickets[key]), IsOk());
  }
  const Ticket ended = steps.PushPull(2);
  ended.Cancel();
  EXPECT_TRUE(absl::IsCancelled(ended.Wait(Soon())));
  const Ticket again = steps.PushPull(2);
  EXPECT_THAT(steps.WaitOn(again), IsOk());
  simt::HoldKernels(false);
  EXPECT_THAT(again.Wait(Soon()), IsOk());
}

TEST(SimtStoreNccl, NamesTheDeviceWhoseGradientIsNotFinite) {
  NcclSteps steps({9, 9});
  steps.Fill(0);
  ASSERT_THAT(steps.Run(), IsOk());
  const auto queue = kernels::MakeDeviceQueue(Gpu(1), nullptr);
  const Buffer host = kernels::HostMemory(*queue, 4);
  host.as<float>()[0] = std::nanf("");
  const Bytes to(steps.views(1)[1].bytes.data + 4 * 7, 4, Gpu(1));
  queue->Copy(to, host.view(), steps.stream(1));
  const absl::Status status = steps.PushPull(1).Wait(Soon());
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kNumericFault) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("device/1: gradient of t1 holds 1 NaN or infinite "
                        "elements, the first at index 7, step 1"));
  absl::Status next;  // until the job has ended
  while (next.ok()) next = steps.PushPull(0).Wait(Soon());
  EXPECT_EQ(ExitCodeOf(next), ExitCode::kNumericFault) << next;
}

// One device's fault ends the operation on both, whose sums wait for it.
TEST(SimtStoreNccl, EndsWithADevicesError) {
  NcclSteps steps(kSizes);
  steps.Fill(0);
  ASSERT_THAT(steps.Run(), IsOk());
  simt::FailLaunch(1, cudaErrorIllegalAddress, false);
  absl::Status status;
  for (size_t key = 0; key < steps.num_tensors() && status.ok(); ++key) {
    status = steps.PushPull(key).Wait(Soon());
  }
  simt::FailNoMore();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kDeviceFault) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("an illegal memory access"));
}

}  // namespace
}  // namespace telegrad
