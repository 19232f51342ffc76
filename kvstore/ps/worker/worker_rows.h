#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/ps/worker/chunk_pipeline.h"

namespace telegrad {

// The rows that an operation pushes, or the memory where a pull's rows come
// together before they go to the caller. Several threads work on its chunks.
class WorkerRows {
 public:
  // Takes a view that CheckRowViews lets pass; the operation owns the values of
  // a push from here on. Errors end the job: gradients that the policy refuses.
  static absl::Status Take(ChunkPipeline& pipeline, WorkerTensor& tensor,
                           const TensorView& view, WorkerOp& op);

  void Push(ChunkPipeline& pipeline, WorkerChunk& chunk);
  // Bytes of a push's payload, before a codec made it small.
  size_t RawBytes(const WorkerChunk& chunk) const;
  // Asks for rows of all chunks that have any.
  void Pull(ChunkPipeline& pipeline, WorkerTensor& tensor);
  // Where the answer to that goes, and its way from there to the caller.
  absl::StatusOr<Bytes> Target(int contributors, WorkerChunk& chunk,
                               const FrameHeader& header,
                               const ReplyRecord& reply) const;
  void Place(const WorkerChunk& chunk);
  void Give(const WorkerTensor& tensor, WorkerOp& op) const;

 private:
  void Send(ChunkPipeline& pipeline, WorkerChunk& chunk, FrameType type,
            Buffer rows);
  absl::StatusOr<Buffer> Encode(ChunkPipeline& pipeline,
                                const WorkerChunk& chunk, Buffer rows) const;
  absl::Status CheckFinite(ChunkPipeline& pipeline, const TensorSpec& spec);

  std::vector<int64_t> given_;    // as the caller's view has them
  std::vector<uint64_t> sorted_;  // each once
  Buffer values_;                 // values of sorted_
  std::vector<Buffer> payloads_;  // what leaves, by chunk
};

}  // namespace telegrad
