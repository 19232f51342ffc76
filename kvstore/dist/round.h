#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "compression/frame.h"
#include "kvstore/dist/buffer_pool.h"
#include "kvstore/dist/job_config.h"
#include "kvstore/dist/reply_format.h"
#include "kvstore/dist/shard_plan.h"
#include "kvstore/dist/stages.h"

namespace telegrad {

// The result of a round, or a chunk's initial value; what replies carry.
struct RoundResult {
  std::shared_ptr<Buffer> buffer = nullptr;  // owns `payload`
  ConstBytes payload = {};
  std::optional<uint32_t> payload_crc32c = {};  // if a frame needs it
  ReplyFormat format = ReplyFormat::kDense;
  uint64_t step = 0;
  int16_t scale = kFixedScale;  // in force in the round
  int16_t agreed = kNoScale;    // in force two rounds later
  ChunkStage stage = ChunkStage::kCodec;
  ChunkStage agreed_stage = ChunkStage::kCodec;  // in force two rounds later
};

// One chunk on a server: collects the pushes of a round, counts distinct
// workers, sums when all are there. One thread; Sum may run on another while
// nothing else touches the chunk (`is_summing`).
//
// A worker's slot goes empty -> receiving (Begin) -> arrived (Arrive). A round
// is complete when all have arrived; Sum turns it into a result, Finish opens
// the next.
class ChunkRounds {
 public:
  ChunkRounds(const Chunk& plan, Stages stages, const JobConfig& config,
              int num_workers, BufferPool* pool);

  enum class Verdict { kAccept, kDuplicate };

  // Judges a push's header. InvalidArgument when it does not fit the chunk;
  // kDuplicate for one that is there already or whose round is over.
  absl::StatusOr<Verdict> Begin(int worker, const FrameHeader& header);
  // Where an accepted push goes.
  Bytes PushTarget(int worker);
  // An accepted push is whole and valid. True when it was the last.
  bool Arrive(int worker, const FrameHeader& header);
  // Checks an arrived payload's codes; any thread.
  absl::Status Validate(int worker) const;

  // Sums the complete round. Any thread, alone.
  absl::StatusOr<RoundResult> Sum();
  // Takes the result in and opens the next round.
  void Finish(RoundResult result);

  // A worker's wish before its first push; true when all have told theirs, and
  // AgreedScale() is what they get.
  absl::StatusOr<bool> Propose(int worker, int16_t scale);
  int16_t AgreedScale() const { return scales_[0]; }

  // Where the initial value goes, and that it is there: once, before any round.
  absl::StatusOr<Bytes> BeginValue(size_t num_bytes);
  void FinishValue();
  // The last round's result or the initial value; null while there is none.
  const RoundResult* current() const;

  const Chunk& plan() const { return plan_; }
  // How the open round's gradients travel.
  const PreparedCodec& codec() const { return *coding().codec; }
  uint64_t step() const { return step_; }
  // Whether the worker asked for the result in this round (not kFlagNoReply).
  bool wants_reply(int worker) const;

 private:
  struct Slot {
    enum class State : uint8_t { kEmpty, kReceiving, kArrived };
    State state = State::kEmpty;
    bool wants_reply = true;
    size_t payload_bytes = 0;
    std::shared_ptr<Buffer> frame;
    ConstBytes payload() const { return {frame->data(), payload_bytes}; }
  };
  std::vector<ConstBytes> Payloads() const;
  const ChunkCoding& coding() const { return stages_.Of(stage()); }
  ChunkStage stage() const { return stages_.At(step_); }
  bool IsPushSize(size_t num_bytes) const;
  float Threshold() const { return coding().Threshold(scale()); }
  int16_t scale() const {
    return uses_scale_ ? scales_[step_ & 1] : kFixedScale;
  }
  absl::Status ReleaseResidual(Bytes sum);
  absl::Status SumGradients(const std::vector<ConstBytes>& payloads,
                            RoundResult& result);
  absl::StatusOr<RoundResult> UpdateWeights(
      const std::vector<ConstBytes>& payloads);

  const Chunk plan_;
  Stages stages_;
  const JobConfig& config_;
  BufferPool* const pool_;
  const bool uses_scale_;
  uint64_t step_ = 0;
  std::vector<Slot> slots_;
  size_t num_arrived_ = 0;
  int16_t wish_ = kNoScale;  // the largest of the round
  std::optional<ChunkStage> stage_wish_;
  std::array<int16_t, 2> scales_{kFixedScale, kFixedScale};
  std::vector<bool> has_proposed_;
  size_t num_proposed_ = 0;
  bool has_agreed_ = false;
  ReencodeState reencode_;
  ChunkStage reencoded_in_ = ChunkStage::kCodec;  // the stage of its codec
  std::shared_ptr<Buffer> weights_;               // update_on server
  Buffer momentum_;
  std::shared_ptr<Buffer> arriving_value_;
  RoundResult current_;
  bool has_current_ = false;
};

}  // namespace telegrad
