#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/device_queue.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/gpu.h"
#include "tests/simt/observe.h"

namespace telegrad::testing {

inline constexpr size_t kChunk = 1024;

// 4 chunks in all.
inline const std::vector<TensorSpec> kTensors = {
    {.name = "a", .num_elems = 2000, .devices = {kGpu}},
    {.name = "b", .num_elems = 64, .devices = {kGpu}},
    {.name = "c", .num_elems = 1000, .devices = {kGpu}}};

// Of one worker, whose gradients lie on an emulated GPU.
class Steps {
 public:
  explicit Steps(const std::string& type,
                 const std::vector<TensorSpec>& tensors = kTensors,
                 size_t chunk_elems = kChunk,
                 const std::string& memory = "host",
                 size_t group_elems = StoreOptions().device_group_elems)
      : queue_(kernels::MakeDeviceQueue(kGpu, nullptr)),
        stream_(queue_->MakeStream(0)),
        cluster_(ConfigOf(type, chunk_elems, memory, group_elems)),
        worker_(cluster_.MakeWorker(0)) {
    cluster_.StartServers();
    for (const TensorSpec& tensor : tensors) {
      const size_t bytes = SizeOf(tensor.dtype) * tensor.num_elems;
      host_.push_back(kernels::HostMemory(*queue_, bytes));
      auto* const values = host_.back().as<float>();
      for (size_t i = 0; i < bytes / 4; ++i) {
        values[i] = static_cast<float>((i + host_.size()) % 17) - 8;
      }
      memory_.push_back(queue_->MakeMemory(bytes, stream_));
      queue_->Copy(memory_.back().view(), host_.back().view(), stream_);
      views_.push_back(FloatTensor(memory_.back().view()));
      views_.back().dtype = tensor.dtype;
      views_.back().stream = stream_;
    }
    EXPECT_THAT(worker_.Init(tensors, views_), IsOk());
  }
  ~Steps() { worker_->Close(); }

  KVStore& store() { return *worker_; }
  kernels::DeviceQueue& queue() { return *queue_; }
  Stream stream() const { return stream_; }
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
  // Gradients that are ready all at once, after all operations have begun.
  absl::Status PushTogether() {
    return Together([this](Key key, TensorViews view) {
      return store().Push(key, view, 0);
    });
  }
  absl::Status RunTogether() {
    return Together([this](Key key, TensorViews view) {
      return store().PushPull(key, view, view, 0);
    });
  }

 private:
  template <typename Start>
  absl::Status Together(Start start) {
    auto* const stream = static_cast<cudaStream_t>(stream_.handle);
    simt::Hold(stream, true);
    std::vector<Ticket> tickets;
    for (size_t k = 0; k < views_.size(); ++k) {
      tickets.push_back(start(static_cast<Key>(k), TensorViews(&views_[k], 1)));
    }
    simt::Hold(stream, false);
    for (const Ticket& ticket : tickets) {
      RETURN_IF_ERROR(ticket.Wait(Soon()));
    }
    return absl::OkStatus();
  }

  static ClusterConfig ConfigOf(const std::string& type, size_t chunk_elems,
                                const std::string& memory, size_t group_elems) {
    ClusterConfig config;
    config.memory = memory;
    config.device_group_elems = group_elems;
    config.device_patience = kPatience;  // an emulated GPU is slow
    config.workers = 1;
    config.chunk_elems = chunk_elems;
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
  Worker worker_;
};

}  // namespace telegrad::testing
