#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "kvstore/ps/server/aggregate_sync.h"
#include "tests/kvstore/oracle.h"
#include "tests/testing/status_matchers.h"

namespace telegrad::testing {

using Verdict = bool;  // whether it is a duplicate
inline constexpr Verdict kAccept = false;
inline constexpr Verdict kDuplicate = true;

inline constexpr size_t kElems = 37;
inline constexpr int kWorkers = 3;

// One chunk of one tensor, and the frames that workers would send.
class Round : public ::testing::Test, public AnswerSink {
 protected:
  void Make(const std::string& type, ReplyMode reply,
            ThresholdSpec threshold = {ThresholdSpec::Kind::kAbsolute, 0.5f},
            OptimizerConfig optimizer = {}) {
    config_ = {.num_contributors = kWorkers, .buffers = &pool_};
    config_.compression.type = type;
    config_.compression.reply = reply;
    config_.compression.threshold = threshold;
    config_.optimizer = optimizer;
    const Codec* codec = *FindCodec(type);
    codec_ = *codec->Prepare(kElems, Device{});
    format_ = FormatOf(codec->traits(), config_.compression, optimizer);
    Open({.codec = codec,
          .options = StandardOptions(codec->traits()),
          .threshold = config_.compression.threshold});
  }

  void Open(const CodecSetting& setting) {
    rounds_ = std::make_unique<SyncAggregator>(
        *ChunkSum::Make({.codecs = {setting}}, Chunk{.num_elems = kElems},
                        config_),
        config_);
  }

  FrameHeader Header(uint64_t step = 0) const {
    const CodecTraits& traits = codec_->traits();
    FrameHeader header;
    header.step = step;
    header.payload_bytes = static_cast<uint32_t>(codec_->max_encoded_bytes());
    header.contributors = 1;
    header.codec = static_cast<uint8_t>(traits.id);
    header.codec_version = traits.wire_version;
    header.reply_format = static_cast<uint8_t>(format_);
    return header;
  }

  // A worker's gradient at `step`, encoded with an empty residual.
  Buffer Payload(int worker, int step, float threshold = 0.5f) const {
    Buffer grad(4 * kElems);
    for (size_t i = 0; i < kElems; ++i) {
      grad.as<float>()[i] = 64 * GradOf(worker, step, i);
    }
    if (codec_->traits().lossless) return grad;
    Buffer residual(4 * kElems);
    Buffer out(codec_->max_encoded_bytes());
    CodecState state{residual.view()};
    EncodeResult result;
    EXPECT_THAT(codec_->Encode(grad.view(), state, {.threshold = threshold},
                               out.view(), &result, {}),
                IsOk());
    return out;
  }

  // Whether it is a duplicate.
  absl::StatusOr<Verdict> Begin(int worker, const FrameHeader& header) {
    ASSIGN_OR_RETURN(const PushHeader push, PushOf(header));
    ASSIGN_OR_RETURN(const Aggregator::Admission admission,
                     rounds_->Admit(worker, push));
    if (!admission.is_duplicate) target_ = admission.target;
    return admission.is_duplicate;
  }

  absl::StatusOr<bool> Propose(int worker, int16_t scale) {
    FrameHeader header = Header();
    header.proposed_scale = scale;
    ASSIGN_OR_RETURN(const PushHeader push, PushOf(header));
    agreed_.reset();
    RETURN_IF_ERROR(rounds_->OnPropose(worker, push, *this));
    return agreed_.has_value();
  }

  // True when the round is complete.
  bool Push(int worker, const FrameHeader& header, const Buffer& payload) {
    const auto verdict = Begin(worker, header);
    EXPECT_THAT(verdict, IsOk());
    EXPECT_EQ(*verdict, kAccept);
    std::memcpy(target_.data, payload.data(), payload.size());
    const absl::StatusOr<bool> is_due = rounds_->OnPushed(worker, false);
    EXPECT_THAT(is_due, IsOk());
    return *is_due;
  }

  // What all workers get.
  std::vector<std::byte> Finish() {
    answers_.clear();
    rounds_->Complete(*this);
    EXPECT_EQ(answers_.size(), size_t{kWorkers});
    return answers_.at(0);
  }

  void Send(const Chunk&, const PayloadFormat&, const Answer& answer) override {
    const ConstBytes payload = answer.result.chunk.payload;
    answers_.emplace_back(payload.data, payload.data + payload.size);
    last_ = answer.result.chunk.record;
    priorities_[answer.worker] = answer.priority;
    if (answer.type == FrameType::kAgree) agreed_ = last_.settings.scale;
  }

  // One whole round, workers in the given order.
  std::vector<std::byte> RunRound(const std::vector<int>& order, int step) {
    const auto at = static_cast<uint64_t>(step);
    for (size_t i = 0; i < order.size(); ++i) {
      const bool is_last = i + 1 == order.size();
      EXPECT_EQ(Push(order[i], Header(at), Payload(order[i], step)), is_last);
    }
    return Finish();
  }

  BufferPool pool_;
  EngineConfig config_;
  std::unique_ptr<PreparedCodec> codec_;
  std::unique_ptr<SyncAggregator> rounds_;
  Bytes target_;  // of the last push that was admitted
  std::vector<std::vector<std::byte>> answers_;
  std::optional<int16_t> agreed_;
  ReplyFormat format_ = ReplyFormat::kDense;
  ReplyRecord last_;
  std::map<int, int32_t> priorities_;  // of answers, by worker
};

}  // namespace telegrad::testing
