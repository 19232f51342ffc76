#include <telegrad.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/simt/steps.h"

// What Python's hook of DDP and FSDP2's replicas call in each step, of tensors
// on a GPU: no call lets the host wait for it.
namespace telegrad {
namespace {

constexpr double kLongS = 60;
constexpr int64_t kNum = 3;
constexpr const char* kNames[kNum] = {"a", "b", "c"};
constexpr int64_t kNumElems[kNum] = {2000, 64, 1000};

// A job of one worker, with a store of these tensors.
class CStore {
 public:
  CStore() : gpu_(kernels::MakeDeviceQueue(testing::kGpu, nullptr)) {
    const Stream stream = gpu_->MakeStream(0);
    stream_ = static_cast<cudaStream_t>(stream.handle);
    for (int64_t i = 0; i < kNum; ++i) {
      const auto bytes = 4 * static_cast<size_t>(kNumElems[i]);
      memory_.push_back(gpu_->MakeMemory(bytes, stream));
      host_.push_back(kernels::HostMemory(*gpu_, bytes));
      for (size_t j = 0; j < bytes / 4; ++j) {
        host_.back().as<float>()[j] = static_cast<float>(j % 17) - 8;
      }
      gpu_->Copy(memory_.back().view(), host_.back().view(), stream);
      tensors_.push_back({.data = memory_.back().data(),
                          .num_elems = kNumElems[i],
                          .dtype = TELEGRAD_FLOAT32,
                          .device = 0,
                          .stream = reinterpret_cast<uint64_t>(stream_)});
    }
    telegrad_job_options options;
    telegrad_job_options_init(&options, sizeof(options));
    options.gdr = "auto";
    Expect(telegrad_job_start(&options, &job_, &status_));
    Expect(telegrad_job_join(job_, &status_));
    Expect(
        telegrad_store_create(job_, "dist_sync", nullptr, &store_, &status_));
    telegrad_compression compression;
    telegrad_compression_init(&compression, sizeof(compression));
    compression.type = "2bit";
    Expect(telegrad_store_set_compression(store_, &compression, &status_));
    Expect(telegrad_store_init(store_, kNum, kNames, tensors_.data(), nullptr,
                               0, keys_, &status_));
    Expect(telegrad_queue_create(&queue_, &status_));
  }
  ~CStore() {
    telegrad_queue_free(queue_);
    telegrad_store_close(store_);
    Expect(telegrad_job_close(job_, kLongS, &status_));
  }

  cudaStream_t stream() const { return stream_; }
  // Of one tensor, whose number is the tag.
  void PushPull(int64_t i) {
    Expect(telegrad_store_push_pull(store_, 1, keys_ + i, &tensors_[i],
                                    &tensors_[i], nullptr, queue_, i,
                                    &status_));
  }
  void Pull(int64_t i) {
    Expect(telegrad_store_pull(store_, 1, keys_ + i, &tensors_[i], nullptr,
                               queue_, i, &status_));
  }
  int32_t WaitOn(int64_t i, double timeout_s) {
    return telegrad_queue_wait_on(
        queue_, i, reinterpret_cast<uint64_t>(stream_), timeout_s, &status_);
  }
  int32_t Next(double timeout_s) {
    uint64_t tag = 0;
    return telegrad_queue_next(queue_, timeout_s, &tag, &status_);
  }
  void Expect(int32_t code) { EXPECT_EQ(code, TELEGRAD_OK) << status_.message; }

 private:
  const std::unique_ptr<kernels::DeviceQueue> gpu_;
  std::vector<Buffer> host_;
  std::vector<Buffer> memory_;
  std::vector<telegrad_tensor> tensors_;
  cudaStream_t stream_ = nullptr;
  telegrad_status status_ = {};
  telegrad_job* job_ = nullptr;
  telegrad_store* store_ = nullptr;
  telegrad_queue* queue_ = nullptr;
  uint32_t keys_[kNum] = {};
};

// The hook hears of buckets from the queue; replicas let their stream wait at
// the end of backward, and hear of them before the next step.
void Step(CStore& store, bool of_replicas) {
  for (int64_t i = 0; i < kNum; ++i) store.PushPull(i);
  for (int64_t i = 0; of_replicas && i < kNum; ++i) {
    store.Expect(store.WaitOn(i, kLongS));
  }
  for (int64_t i = 0; i < kNum; ++i) store.Expect(store.Next(kLongS));
}

TEST(SimtStoreC, WaitsForNothingInSteps3To100) {
  for (const bool of_replicas : {false, true}) {
    CStore store;
    for (int step = 0; step < 3; ++step) Step(store, of_replicas);
    const simt::Counters before = simt::Counted();
    for (int step = 3; step <= 100; ++step) Step(store, of_replicas);
    EXPECT_EQ((simt::Counted() - before).waits, 0u) << of_replicas;
  }
}

// As no counter sees who asks again and again: the device stands still.
TEST(SimtStoreC, ReturnsWhileTheDeviceStandsStill) {
  CStore store;
  for (int step = 0; step < 3; ++step) Step(store, true);
  simt::Hold(store.stream(), true);
  simt::HoldKernels(true);
  for (int64_t i = 0; i < kNum; ++i) store.PushPull(i);
  EXPECT_EQ(store.WaitOn(0, 0), TELEGRAD_PENDING);
  EXPECT_EQ(store.Next(0), TELEGRAD_PENDING);
  simt::HoldKernels(false);
  simt::Hold(store.stream(), false);
  for (int64_t i = 0; i < kNum; ++i) store.Expect(store.Next(kLongS));
  simt::HoldKernels(true);
  for (int64_t i = 0; i < kNum; ++i) store.Pull(i);
  for (int64_t i = 0; i < kNum; ++i) store.Expect(store.WaitOn(i, kLongS));
  EXPECT_EQ(store.Next(0), TELEGRAD_PENDING);  // results are not there yet
  simt::HoldKernels(false);
  for (int64_t i = 0; i < kNum; ++i) store.Expect(store.Next(kLongS));
}

}  // namespace
}  // namespace telegrad
