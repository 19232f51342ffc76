#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compression/frame.h"
#include "kvstore/dist/guard.h"
#include "kvstore/dist/reply_format.h"
#include "kvstore/dist/shard_plan.h"
#include "kvstore/dist/stages.h"
#include "kvstore/ticket_state.h"

namespace telegrad {

enum class OpKind : uint8_t { kInit, kPull, kPush, kPushPull };

// One operation on one tensor, from the call to its ticket's end.
struct WorkerOp {
  OpKind kind = OpKind::kPushPull;
  Key key = 0;
  uint64_t step = 0;  // rounds of this tensor before this one
  ConstBytes grad;
  Bytes out;
  int priority = 0;
  int16_t proposal = kNoScale;
  std::atomic<size_t> parts_left{0};  // answers to come, frames to leave
  std::shared_ptr<Ticket::State> ticket;
};

// Where a chunk of the running operation stands.
enum class ChunkPhase : uint8_t {
  kIdle,
  kEncoding,
  kProposing,  // waits for the scale
  kSent,       // waits for the server
  kReceiving,  // the answer's header was seen
  kDecoding,
};

// One thread at a time: the phases hand it on from queue to queue; `phase`
// alone is read by others.
struct WorkerChunk {
  Chunk plan;
  Stages stages;
  Bytes residual;             // a view of the tensor's
  bool has_residual = false;  // `residual` may hold what was not sent
  CodecState state;           // of the codec that encoded last
  ChunkStage encoded_in = ChunkStage::kPaused;  // the stage of that codec
  Guard guard;                                  // of it
  std::bitset<kMaxStage + 1> vetoed;  // stages whose codec the guard gave up on
  Buffer frame;                       // what Encode wrote
  Buffer dense;                       // a changed copy of the gradient
  Buffer reply;            // packed replies; dense ones go straight to `out`
  size_t reply_bytes = 0;  // of the one that is arriving
  std::array<int16_t, 2> scales{kNoScale, kNoScale};  // of step & 1
  FrameHeaderBytes reply_header{};
  std::atomic<ChunkPhase> phase{ChunkPhase::kIdle};
  std::shared_ptr<WorkerOp> op;
};

struct WorkerTensor {
  TensorSpec spec;
  std::string setting;  // as in TensorReport
  bool has_rule = false;
  std::string reason;
  std::atomic<int64_t> num_nonfinite{0};
  std::atomic<ChunkStage> wish{ChunkStage::kCodec};  // the caller's
  bool uses_scale = false;
  Buffer residual;
  std::vector<std::unique_ptr<WorkerChunk>> chunks;
  uint64_t rounds = 0;               // finished; guarded by the store's mutex
  std::shared_ptr<WorkerOp> active;  // guarded by the store's mutex
};

// Everything that depends on shapes: codecs, residuals, frame and reply
// buffers.
absl::StatusOr<std::unique_ptr<WorkerTensor>> MakeWorkerTensor(
    const TensorSpec& spec, const TensorLayout& plan,
    const CompressionConfig& compression, const OptimizerConfig& optimizer,
    int num_workers);

TensorReport ReportOf(const WorkerTensor& tensor);

// "push of tensor fc1.weight, step 12: chunk 0 waits for server/0": for a
// deadline's message.
std::string DescribeOp(const WorkerTensor& tensor, const WorkerOp& op);

}  // namespace telegrad
