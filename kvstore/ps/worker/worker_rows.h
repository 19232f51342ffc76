#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/ps/worker/chunk_pipeline.h"

namespace telegrad {

// Of an operation on some rows of a tensor: a push's values, or where a pull's
// come together before they go to the caller. Chunks of it on several threads.
class WorkerRows {
 public:
  // Of a view that CheckRowViews lets pass; a push's values are the operation's
  // own from here on. Errors end the job: gradients that the policy refuses.
  static absl::Status Take(ChunkPipeline& pipeline, WorkerTensor& tensor,
                           const TensorView& view, WorkerOp& op);

  void Push(ChunkPipeline& pipeline, WorkerChunk& chunk);
  // Of a push's payload, before a codec made it small.
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
  Buffer values_;                 // of these
  std::vector<Buffer> payloads_;  // what leaves, by chunk
};

}  // namespace telegrad
