#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "kernels/device_queue.h"
#include "kvstore/kvstore.h"
#include "tests/kvstore/cluster.h"
#include "tests/simt/observe.h"

// The store of type nccl on two emulated GPUs, with the NCCL of nccl.cc.
namespace telegrad {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::Soon;

constexpr size_t kGpus = 2;

Device Gpu(size_t i) { return {DeviceKind::kCuda, static_cast<int>(i)}; }

// Sums of these are exact, in 16-bit floats, too.
float ValueOf(size_t gpu, size_t key, size_t step, size_t i) {
  return static_cast<float>((i + 3 * gpu + 5 * key + 7 * step) % 17) - 8;
}

// These values are the upper half of a float32's bits, and those of 2^n times
// at most 16 are exact in a float16.
uint16_t Bfloat16Of(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

// A store, and on each GPU a stream with a gradient of each tensor, in whose
// place the sums come.
class NcclSteps {
 public:
  explicit NcclSteps(const std::vector<size_t>& sizes,
                     Dtype dtype = Dtype::kFloat32, size_t skew = 0)
      : sizes_(sizes), dtype_(dtype) {
    StoreOptions options;
    options.num_devices = kGpus;
    store_ = *MakeKVStore("nccl", options, nullptr);
    views_.resize(sizes.size());
    host_.resize(sizes.size());
    back_.resize(sizes.size());
    for (size_t gpu = 0; gpu < kGpus; ++gpu) {
      queues_.push_back(kernels::MakeDeviceQueue(Gpu(gpu), nullptr));
      streams_.push_back(queues_[gpu]->MakeStream(0));
      for (size_t key = 0; key < sizes.size(); ++key) {
        const size_t bytes = SizeOf(dtype) * sizes[key];
        const size_t offset = SizeOf(dtype) * skew;
        memory_.push_back(
            queues_[gpu]->MakeMemory(bytes + offset, streams_[gpu]));
        host_[key].push_back(kernels::HostMemory(*queues_[gpu], bytes));
        back_[key].push_back(kernels::HostMemory(*queues_[gpu], bytes));
        views_[key].push_back(
            {.bytes = {memory_.back().data() + offset, bytes, Gpu(gpu)},
             .dtype = dtype,
             .num_elems = static_cast<int64_t>(sizes[key]),
             .stream = streams_[gpu]});
      }
    }
    std::vector<TensorSpec> tensors;
    for (size_t key = 0; key < sizes.size(); ++key) {
      tensors.push_back({.name = absl::StrCat("t", key),
                         .num_elems = sizes[key],
                         .dtype = dtype,
                         .devices = {Gpu(0), Gpu(1)}});
    }
    EXPECT_THAT(store_->Init(tensors, {}).status(), IsOk());
  }
  ~NcclSteps() { store_->Close(); }

  KVStore& store() { return *store_; }
  size_t num_tensors() const { return sizes_.size(); }
  TensorViews views(size_t key) const { return views_[key]; }
  Stream stream(size_t gpu) const { return streams_[gpu]; }

  // Queues a step's gradients, once those of the last one have been copied.
  void Fill(size_t step) {
    for (size_t gpu = 0; gpu < kGpus; ++gpu) {
      Finish(gpu);
      for (size_t key = 0; key < sizes_.size(); ++key) {
        for (size_t i = 0; i < sizes_[key]; ++i) {
          Put(ValueOf(gpu, key, step, i), key, gpu, i);
        }
        queues_[gpu]->Copy(views_[key][gpu].bytes, host_[key][gpu].view(),
                           streams_[gpu]);
      }
    }
  }
  Ticket PushPull(size_t key) {
    return store_->PushPull(static_cast<Key>(key), views_[key], views_[key], 0);
  }
  // The sums are waited for by the streams that use them.
  absl::Status Run() {
    std::vector<Ticket> tickets;
    for (size_t key = 0; key < sizes_.size(); ++key) {
      tickets.push_back(PushPull(key));
    }
    for (const Ticket& ticket : tickets) RETURN_IF_ERROR(WaitOn(ticket));
    return absl::OkStatus();
  }
  absl::Status WaitOn(const Ticket& ticket) {
    for (const Stream stream : streams_) {
      RETURN_IF_ERROR(ticket.WaitOn(stream, Soon()));
    }
    return absl::OkStatus();
  }
  // In the order of their streams: `times` so much as the sums of `step`.
  void ExpectSums(size_t step, float times = 1) {
    for (size_t gpu = 0; gpu < kGpus; ++gpu) {
      for (size_t key = 0; key < sizes_.size(); ++key) {
        queues_[gpu]->Copy(back_[key][gpu].view(), views_[key][gpu].bytes,
                           streams_[gpu]);
      }
      Finish(gpu);
      for (size_t key = 0; key < sizes_.size(); ++key) {
        for (size_t i = 0; i < sizes_[key]; ++i) {
          const float sum = ValueOf(0, key, step, i) + ValueOf(1, key, step, i);
          ASSERT_EQ(Get(key, gpu, i), times * sum)
              << "tensor " << key << " on GPU " << gpu << " at " << i;
        }
      }
    }
  }

 private:
  void Finish(size_t gpu) {
    cudaStreamSynchronize(static_cast<cudaStream_t>(streams_[gpu].handle));
  }
  void Put(float value, size_t key, size_t gpu, size_t i) {
    if (dtype_ == Dtype::kFloat32) {
      host_[key][gpu].as<float>()[i] = value;
    } else {
      host_[key][gpu].as<uint16_t>()[i] = Bfloat16Of(value);
    }
  }
  float Get(size_t key, size_t gpu, size_t i) const {
    if (dtype_ == Dtype::kFloat32) return back_[key][gpu].as<float>()[i];
    const uint32_t bits = uint32_t{back_[key][gpu].as<uint16_t>()[i]} << 16;
    float value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }

  const std::vector<size_t> sizes_;
  const Dtype dtype_;
  std::vector<std::unique_ptr<kernels::DeviceQueue>> queues_;
  std::vector<Stream> streams_;
  std::vector<Buffer> memory_;
  std::vector<std::vector<Buffer>> host_;       // by tensor and GPU
  std::vector<std::vector<Buffer>> back_;       // as well
  std::vector<std::vector<TensorView>> views_;  // as well
  std::unique_ptr<KVStore> store_;
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
