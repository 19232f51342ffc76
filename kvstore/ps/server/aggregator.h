#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/engine/codec/chunk_sum.h"
#include "kvstore/ps/wire/wire.h"

namespace telegrad {

// The result of a round, or a chunk's value; what answers carry.
struct RoundResult {
  ChunkResult chunk = {};
  std::optional<uint32_t> payload_crc32c = {};  // if a frame needs it
};

// What a worker is told. `result` ends with the call.
struct Answer {
  int worker = 0;
  FrameType type = FrameType::kAck;
  uint64_t step = 0;
  int32_t priority = 0;
  const RoundResult& result;
  // How many workers' payloads are in a result; in the answer to an
  // asynchronous push how many steps the worker is ahead of the slowest; to a
  // push of a store that drops the slowest how many rounds it came late.
  uint16_t contributors = 0;
  bool is_late = false;   // the push came when its round was over
  bool is_given = false;  // a worker's value, and no round, has ended
};
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  virtual void Send(const Chunk& chunk, const PayloadFormat& format,
                    const Answer& answer) = 0;
};

// Tells a worker the settings of its codec on which `sum` has agreed.
void SendAgreed(const ChunkSum& sum, int worker, int32_t priority,
                size_t contributors, AnswerSink& sink);
// A worker's proposal for a sum of so many, who are told once all have made
// theirs.
absl::Status ProposeOfAll(ChunkSum& sum, size_t num_workers, int worker,
                          const PushHeader& propose, AnswerSink& sink);

// A worker's wish for a chunk's value: the last round's result, or the
// broadcast `step`.
struct PullHeader {
  uint64_t step = 0;
  bool wants_broadcast = false;
  int32_t priority = 0;
};

// What a server makes of the pushes and pulls of one chunk: whose push counts
// when, and who is told what. The synchronous one (aggregate_sync.h) waits for
// all workers. Everything that concerns frames is the server's. One thread, but
// for OnPushed.
class Aggregator {
 public:
  virtual ~Aggregator() = default;

  // Judges a push before its payload comes. InvalidArgument when it does not
  // fit the chunk; a duplicate is there already, or its round is over.
  struct Admission {
    Bytes target;  // for the payload
    bool is_duplicate = false;
  };
  virtual absl::StatusOr<Admission> Admit(int worker,
                                          const PushHeader& push) = 0;
  // The payload of an admitted push is there: checks its codes, and adds what
  // can be added. Any thread, several at once. Whether answers are due:
  // Complete follows. `needs_checksum` of a result.
  virtual absl::StatusOr<bool> OnPushed(int worker, bool needs_checksum) = 0;
  // How many pushes were completed.
  virtual size_t Complete(AnswerSink& sink) = 0;
  // Answers now or later. InvalidArgument if it was not to be expected.
  virtual absl::Status OnPull(int worker, const PullHeader& pull,
                              AnswerSink& sink) = 0;
  // A first wish for a scale.
  virtual absl::Status OnPropose(int worker, const PushHeader& propose,
                                 AnswerSink& sink) = 0;
  // Where the value of broadcast `index` goes, and that it is there: one at a
  // time, of a synchronous one between rounds.
  virtual absl::StatusOr<Bytes> BeginValue(uint64_t index,
                                           size_t num_bytes) = 0;
  virtual absl::Status OnValue(int worker, int32_t priority,
                               AnswerSink& sink) = 0;

  // This worker does nothing any more: nobody waits for it.
  virtual void OnLeft(int /*worker*/, AnswerSink& /*sink*/) {}

  // What is under way and cannot end without this worker, which has left the
  // job: "step 4"; empty: nothing.
  virtual std::string WaitsFor(int /*worker*/) const { return ""; }

  // For an optimizer; while no push is under way.
  virtual ChunkWeights& weights() = 0;
  // The sum that all rounds share; null where each worker has one.
  virtual ChunkSum* sum() { return nullptr; }

  virtual const Chunk& chunk() const = 0;
  virtual uint64_t num_rounds() const = 0;  // rounds that have ended
};

}  // namespace telegrad
