#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/device_queue.h"
#include "kvstore/kvstore.h"
#include "tests/kvstore/cluster.h"
#include "tests/simt/observe.h"

namespace telegrad::simt {

constexpr size_t kGpus = 2;

inline Device Gpu(size_t i) { return {DeviceKind::kCuda, static_cast<int>(i)}; }

// Sums of these are exact, in 16-bit floats, too.
inline float ValueOf(size_t gpu, size_t key, size_t step, size_t i) {
  return static_cast<float>((i + 3 * gpu + 5 * key + 7 * step) % 17) - 8;
}

// These values are the upper half of a float32's bits, and those of 2^n times
// at most 16 are exact in a float16.
inline uint16_t Bfloat16Of(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

// On each of two GPUs a stream with a gradient of each tensor of a store, in
// whose place the sums come. Of all workers of the store, if it has some.
class GpuSteps {
 public:
  GpuSteps(KVStore& store, const std::vector<size_t>& sizes, Dtype dtype,
           size_t skew)
      : store_(store),
        rank_(static_cast<size_t>(store.group().rank())),
        workers_(static_cast<size_t>(store.group().num_workers())),
        sizes_(sizes),
        dtype_(dtype) {
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
    EXPECT_THAT(store_.Init(tensors, {}).status(), testing::IsOk());
  }

  KVStore& store() { return store_; }
  size_t num_tensors() const { return sizes_.size(); }
  TensorViews views(size_t key) const { return views_[key]; }
  Stream stream(size_t gpu) const { return streams_[gpu]; }

  // Queues a step's gradients, once those of the last one have been copied.
  void Fill(size_t step) {
    for (size_t gpu = 0; gpu < kGpus; ++gpu) {
      Finish(gpu);
      for (size_t key = 0; key < sizes_.size(); ++key) {
        for (size_t i = 0; i < sizes_[key]; ++i) {
          Put(ValueOf(kGpus * rank_ + gpu, key, step, i), key, gpu, i);
        }
        queues_[gpu]->Copy(views_[key][gpu].bytes, host_[key][gpu].view(),
                           streams_[gpu]);
      }
    }
  }
  Ticket PushPull(size_t key) {
    return store_.PushPull(static_cast<Key>(key), views_[key], views_[key], 0);
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
      RETURN_IF_ERROR(ticket.WaitOn(stream, testing::Soon()));
    }
    return absl::OkStatus();
  }
  // What lies at a tensor's place on a GPU.
  std::vector<float> Result(size_t key, size_t gpu) {
    queues_[gpu]->Copy(back_[key][gpu].view(), views_[key][gpu].bytes,
                       streams_[gpu]);
    Finish(gpu);
    std::vector<float> values;
    for (size_t i = 0; i < sizes_[key]; ++i) {
      values.push_back(Get(key, gpu, i));
    }
    return values;
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
          float sum = 0;
          for (size_t all = 0; all < kGpus * workers_; ++all) {
            sum += ValueOf(all, key, step, i);
          }
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

  KVStore& store_;
  const size_t rank_;
  const size_t workers_;
  const std::vector<size_t> sizes_;
  const Dtype dtype_;
  std::vector<std::unique_ptr<kernels::DeviceQueue>> queues_;
  std::vector<Stream> streams_;
  std::vector<Buffer> memory_;
  std::vector<std::vector<Buffer>> host_;       // by tensor and GPU
  std::vector<std::vector<Buffer>> back_;       // as well
  std::vector<std::vector<TensorView>> views_;  // as well
};

}  // namespace telegrad::simt
