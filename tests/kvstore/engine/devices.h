#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "kvstore/engine/codec/chunk_sum.h"
#include "kvstore/engine/codec/tensor_codec.h"
#include "tests/kvstore/oracle.h"
#include "tests/testing/status_matchers.h"

namespace telegrad::testing {

using Gradients = std::vector<std::vector<float>>;  // by device

inline Gradients GradsOf(int num_devices, int step, size_t num_elems) {
  Gradients grads;
  for (int d = 0; d < num_devices; ++d) {
    std::vector<float>& grad = grads.emplace_back(num_elems);
    for (size_t i = 0; i < num_elems; ++i) grad[i] = GradOf(d, step, i);
  }
  return grads;
}

// One tensor of several contributors in one process: ChunkCodec and ChunkSum
// without anything between them.
class Devices {
 public:
  Devices(size_t num_elems, int num_devices, CompressionConfig compression,
          size_t chunk_elems = 64, OptimizerConfig optimizer = {}) {
    config_.compression = std::move(compression);
    config_.optimizer = optimizer;
    config_.num_contributors = num_devices;
    config_.buffers = &buffers_;
    const TensorSpec spec{.name = "t", .num_elems = num_elems};
    auto plan =
        MakeShardPlan(std::span(&spec, 1), 1, chunk_elems, config_.compression);
    EXPECT_THAT(plan, IsOk());
    for (int i = 0; i < num_devices; ++i) {
      codecs_.push_back(*TensorCodec::Make(spec, (*plan)[0], config_));
    }
    for (const Chunk& chunk : (*plan)[0].chunks) {
      sums_.push_back(*ChunkSum::Make((*plan)[0], chunk, config_));
    }
  }

  // A round: what each device gets. An error ends it.
  absl::StatusOr<std::vector<std::vector<float>>> Round(
      const std::vector<std::vector<float>>& grads) {
    std::vector<ChunkWish> wishes;
    for (size_t d = 0; d < codecs_.size(); ++d) {
      wishes.push_back(codecs_[d]->Wish(View(grads[d])));
    }
    std::vector<std::vector<float>> outs(grads.size(), grads[0]);
    for (size_t c = 0; c < sums_.size(); ++c) {
      RETURN_IF_ERROR(RoundOf(c, grads, wishes, outs));
    }
    ++step_;
    return outs;
  }

  TensorCodec& codec(size_t device) { return *codecs_[device]; }
  ChunkSum& sum(size_t chunk) { return sums_[chunk]; }
  uint64_t step() const { return step_; }
  CodecMode mode() const { return codecs_[0]->chunks()[0].At(step_).mode; }

 private:
  static ConstBytes View(const std::vector<float>& values) {
    return {values.data(), 4 * values.size()};
  }

  absl::Status RoundOf(size_t c, const std::vector<std::vector<float>>& grads,
                       const std::vector<ChunkWish>& wishes,
                       std::vector<std::vector<float>>& outs) {
    ChunkSum& sum = sums_[c];
    const Chunk& chunk = sum.chunk();
    for (size_t d = 0; d < codecs_.size(); ++d) {
      if (!codecs_[d]->chunks()[c].NeedsScale(step_)) continue;
      ASSIGN_OR_RETURN(const bool is_last,
                       sum.Propose(static_cast<int>(d), wishes[d].scale));
      EXPECT_EQ(is_last, d + 1 == codecs_.size());
    }
    std::vector<ConstBytes> payloads;
    for (size_t d = 0; d < codecs_.size(); ++d) {
      ChunkCodec& codec = codecs_[d]->chunks()[c];
      if (codec.NeedsScale(step_)) codec.AgreeFirst(sum.scale());
      ASSIGN_OR_RETURN(
          const EncodedChunk encoded,
          codec.Encode(step_, d,
                       {grads[d].data() + chunk.begin, 4 * chunk.num_elems}));
      codecs_[d]->CountNonFinite(encoded.num_nonfinite);
      if (encoded.is_refused) {
        return absl::DataLossError(
            absl::StrCat("not finite at ", encoded.first_nonfinite));
      }
      PushRecord push = codec.Push(step_, wishes[d]);
      push.payload_bytes = encoded.payload.size;
      RETURN_IF_ERROR(sum.CheckFormat(push));
      RETURN_IF_ERROR(sum.CheckSettings(push));
      RETURN_IF_ERROR(sum.codec().Validate(encoded.payload));
      sum.Note(push.wish);
      payloads.push_back(encoded.payload);
    }
    ASSIGN_OR_RETURN(const ChunkResult result, sum.Sum(payloads, nullptr, {}));
    sum.Finish(result.record);
    for (size_t d = 0; d < codecs_.size(); ++d) {
      ChunkCodec& codec = codecs_[d]->chunks()[c];
      RETURN_IF_ERROR(
          codec.CheckReply(result.record, result.payload.size, false));
      EXPECT_LE(result.payload.size,
                std::max(codec.max_reply_bytes(), codec.value_bytes()));
      RETURN_IF_ERROR(codec.Decode(
          result.record, result.payload,
          Bytes(outs[d].data() + chunk.begin, 4 * chunk.num_elems)));
      codec.Agree(result.record.agreed);
    }
    return absl::OkStatus();
  }

  BufferPool buffers_;
  EngineConfig config_;
  std::vector<std::unique_ptr<TensorCodec>> codecs_;
  std::vector<ChunkSum> sums_;
  uint64_t step_ = 0;
};

}  // namespace telegrad::testing
