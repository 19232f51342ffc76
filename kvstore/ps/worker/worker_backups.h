#pragma once

#include "kvstore/backups.h"
#include "kvstore/ps/worker/chunk_pipeline.h"
#include "kvstore/ps/worker/tensor_table.h"

namespace telegrad {

// A worker of dist_sync whose servers drop the slowest.
class WorkerBackups : public Backups {
 public:
  // Both outlive it.
  WorkerBackups(const TensorTable& tensors, ChunkPipeline& pipeline)
      : tensors_(tensors), pipeline_(pipeline) {}

  absl::StatusOr<int64_t> CatchUp() override;
  absl::Status TakeAll(bool takes_all) override;

 private:
  const TensorTable& tensors_;
  ChunkPipeline& pipeline_;
};

}  // namespace telegrad
