#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "kvstore/engine/codec/shard_plan.h"
#include "kvstore/ps/server/aggregator.h"
#include "tests/testing/status_matchers.h"

namespace telegrad::testing {

// One chunk whose weights grow by what is pushed, and its workers' frames.
class GrowingChunk : public AnswerSink {
 public:
  static constexpr size_t kElems = 5;

  struct Sent {
    int worker = 0;
    FrameType type = FrameType::kReply;
    uint64_t step = 0;
    uint16_t contributors = 0;
    bool is_late = false;
    std::vector<float> weights = {};
    int16_t scale = 0;     // not compared
    int32_t priority = 0;  // not compared

    bool operator==(const Sent& other) const {
      const auto facts = [](const Sent& of) {
        return std::tie(of.worker, of.type, of.step, of.contributors,
                        of.is_late, of.weights);
      };
      return facts(*this) == facts(other);
    }
  };

  absl::Status Give(int worker, uint64_t index, float value) {
    ASSIGN_OR_RETURN(const Bytes target, chunk_->BeginValue(index, 4 * kElems));
    std::fill_n(reinterpret_cast<float*>(target.data), kElems, value);
    return chunk_->OnValue(worker, 0, *this);
  }
  // Gives initial weights of 0, which all but worker 0 take.
  void Start(int workers) {
    for (int worker = 1; worker < workers; ++worker) {
      EXPECT_THAT(Pull(worker, 0, true), IsOk());
    }
    EXPECT_THAT(Give(0, 0, 0), IsOk());
    sent_.clear();
  }
  absl::Status Pull(int worker, uint64_t step, bool wants_broadcast = false) {
    return chunk_->OnPull(
        worker, {.step = step, .wants_broadcast = wants_broadcast}, *this);
  }
  // As a frame has it, of floats.
  static PushHeader Header(uint64_t step) {
    PushHeader push;
    push.step = step;
    push.payload_bytes = 4 * kElems;
    push.format = {.codec = static_cast<uint8_t>(CodecId::kNone),
                   .codec_version = 1,
                   .packing = 0,
                   .reply = ReplyFormat::kDense};
    return push;
  }

  void Send(const Chunk&, const PayloadFormat&, const Answer& answer) override {
    const ConstBytes payload = answer.result.chunk.payload;
    const auto* const from = reinterpret_cast<const float*>(payload.data);
    sent_.push_back({.worker = answer.worker,
                     .type = answer.type,
                     .step = answer.step,
                     .contributors = answer.contributors,
                     .is_late = answer.is_late,
                     .weights = {from, from + payload.size / 4},
                     .scale = answer.result.chunk.record.settings.scale,
                     .priority = answer.priority});
  }
  std::vector<Sent> Take() { return std::exchange(sent_, {}); }
  const EngineConfig& config() const { return config_; }

 protected:
  GrowingChunk(int contributors, const std::string& type) {
    config_ = {.num_contributors = contributors, .buffers = &pool_};
    config_.compression.type = type;
    config_.optimizer = {.update_on = UpdateOn::kServer,
                         .sgd = {.learning_rate = 1, .rescale = -1}};
    const auto layouts = MakeShardPlan(std::vector<TensorSpec>{{"a", kElems}},
                                       1, 32, config_.compression);
    EXPECT_THAT(layouts, IsOk());
    layout_ = layouts->front();
  }
  const TensorLayout& layout() const { return layout_; }
  void Own(std::unique_ptr<Aggregator> chunk) { chunk_ = std::move(chunk); }

 private:
  BufferPool pool_;
  EngineConfig config_;
  TensorLayout layout_;
  std::unique_ptr<Aggregator> chunk_;
  std::vector<Sent> sent_;
};

}  // namespace telegrad::testing
