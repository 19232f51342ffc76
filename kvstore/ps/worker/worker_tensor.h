#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/engine/codec/tensor_codec.h"
#include "kvstore/engine/device/borrowed_memory.h"
#include "kvstore/job/flight/flight_recorder.h"
#include "kvstore/ps/wire/frame_sender.h"
#include "kvstore/ps/wire/wire.h"
#include "kvstore/ps/worker/worker_failure.h"
#include "kvstore/ticket_state.h"
#include "kvstore/timeline.h"

namespace telegrad {

class WorkerRows;

enum class OpKind : uint8_t {
  kGiveValue,  // the two sides of a broadcast
  kTakeValue,
  kPull,
  kPush,
  kPushPull,
};

const char* Name(OpKind kind);  // "push-pull"
inline bool IsBroadcast(OpKind kind) {
  return kind == OpKind::kGiveValue || kind == OpKind::kTakeValue;
}

// One operation on one tensor, from the call to its ticket's end.
struct WorkerOp {
  // `in` and `out` lie on a device if `lane_` is not null; then the operation
  // owns `ready_` and its other events.
  WorkerOp(OpKind kind_, Key key_, ConstBytes in, Bytes out,
           DeviceLane* lane_ = nullptr, Event ready_ = {})
      : kind(kind_),
        key(key_),
        memory(in, out, lane_, ready_),
        lane(lane_),
        ready(ready_) {}
  ~WorkerOp() {
    if (lane == nullptr) return;
    for (const Event event : {ready, out_ready, result}) lane->Return(event);
  }

  const OpKind kind;
  const Key key;
  uint64_t step = 0;  // rounds of this tensor, or broadcasts, before this one
  BorrowedMemory memory;
  int priority = 0;
  bool takes_all = false;  // its round waits for all: Backups::TakeAll
  const TimePoint started = Clock::now();
  ChunkWish wish;
  std::shared_ptr<WorkerRows> rows = nullptr;  // null: of the whole tensor
  std::atomic<size_t> parts_left{0};  // answers to come, frames to leave
  std::shared_ptr<Ticket::State> ticket;

  // On a device: behind the gradient, what uses the output, and the result.
  DeviceLane* const lane;
  Stream stream = {};  // the stream of the gradient
  const Event ready;
  Event out_ready;
  Event result;
  bool follows_output = false;  // used by the device thread only
  bool has_wish = false;  // used by the device thread only: `wish` is known
  std::atomic<size_t> num_to_agree{0};  // first scales
  std::atomic<size_t> answers_left{0};  // to be decoded
};

// Gives operations their turn with a tensor, one at a time. Thread-safe.
class WorkerTurns {
 public:
  // `op` is under way from now on, and has its step; not if the store has
  // failed. FailedPrecondition: not before or beside others.
  absl::Status Begin(const TensorSpec& spec, std::shared_ptr<WorkerOp> op,
                     const WorkerFailure& failure);
  // It counts, and another may begin. What was under way: the caller keeps it
  // until nothing touches it.
  std::shared_ptr<WorkerOp> End(const WorkerOp& op);
  std::shared_ptr<WorkerOp> active() const {
    MutexLock lock(&mutex_);
    return active_;
  }
  // FailedPrecondition: `what` within a round.
  absl::Status CheckIdle(absl::string_view what, const TensorSpec& spec) const;

  uint64_t rounds() const {  // rounds that have ended
    MutexLock lock(&mutex_);
    return rounds_;
  }
  // As in another store, whose values are not here.
  void set_rounds(uint64_t rounds) {
    MutexLock lock(&mutex_);
    rounds_ = rounds;
  }
  // Another worker has given it a value, in a round that is not counted here.
  void Follow() {
    MutexLock lock(&mutex_);
    broadcasts_ = 1;
    has_value_ = true;
  }

 private:
  mutable Mutex mutex_;
  uint64_t rounds_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t broadcasts_ ABSL_GUARDED_BY(mutex_) = 0;
  bool has_value_ ABSL_GUARDED_BY(mutex_) = false;  // on servers
  std::shared_ptr<WorkerOp> active_ ABSL_GUARDED_BY(mutex_);
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

struct WorkerTensor;
class WorkerDevice;

// One thread at a time: the phases hand it on from queue to queue; `phase`
// alone is read by others.
struct WorkerChunk {
  WorkerTensor* tensor = nullptr;
  ChunkCodec* codec = nullptr;  // the tensor's
  // a use of the memory of `op`, for the whole tensor.
  BorrowedMemory::Use memory;
  bool has_target = false;      // `memory` is in use for the answer
  OutgoingFrame outgoing;       // until it is queued
  WorkerOp* sending = nullptr;  // the operation whose payload leaves
  bool sends_borrowed = false;  // from the caller's memory
  bool is_begun = false;        // on a device: encoded, but for its end
  TimePoint framed_at;          // given to the io thread
  TimePoint sent_at;            // the io thread's
  Buffer reply;  // packed replies on the host; dense ones of float32 go
                 // straight to `out` there
  std::shared_ptr<Buffer> value;  // or here, and values that go out
  // The answer that arrives: its header, parsed and as it was.
  FrameType answer = FrameType::kAck;
  ReplyRecord record;
  FrameHeaderBytes reply_header{};
  ConstBytes reply_payload;
  // Rounds that had ended at the last answer, where servers drop the slowest.
  std::atomic<uint64_t> num_rounds{0};
  std::atomic<ChunkPhase> phase{ChunkPhase::kIdle};
  std::shared_ptr<WorkerOp> op;

  const Chunk& plan() const { return codec->chunk(); }
  inline ChunkOnDevice& on_device();
};

// Notes a stage of a chunk of `op` that ends now; `timeline` may be null.
inline void NoteStage(Timeline* timeline, const WorkerOp& op,
                      const WorkerChunk& chunk, const char* what,
                      TimePoint begin) {
  NoteSpan(timeline, op.key, chunk.plan().index, what, begin);
}

struct WorkerTensor {
  std::unique_ptr<TensorCodec> codec;
  WorkerDevice* device = nullptr;  // null: in host memory
  std::vector<std::unique_ptr<WorkerChunk>> chunks;
  WorkerTurns turns;

  const TensorSpec& spec() const { return codec->spec(); }
};

inline ChunkOnDevice& WorkerChunk::on_device() {
  return tensor->codec->on_device(plan().index);
}

// Everything that depends on shapes: codecs, residuals, frame and reply
// buffers.
absl::StatusOr<std::unique_ptr<WorkerTensor>> MakeWorkerTensor(
    const TensorSpec& spec, const TensorLayout& layout,
    const EngineConfig& config);

FlightRecorder::Op FlightOpOf(const WorkerTensor& tensor, const WorkerOp& op,
                              bool is_async);

// "push of tensor fc1.weight, step 12: chunk 0 waits for server/0": for a
// deadline's message.
std::string DescribeOp(const WorkerTensor& tensor, const WorkerOp& op);

}  // namespace telegrad
