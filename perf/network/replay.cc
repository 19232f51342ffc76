#include "perf/network/replay.h"

#include "base/status_macros.h"

namespace telegrad::perf {

absl::StatusOr<std::unique_ptr<Replay>> Replay::Make(
    const TensorLayout& layout, const CompressionConfig& compression,
    int num_workers) {
  std::unique_ptr<Replay> replay(new Replay);
  replay->config_ = {.compression = compression,
                     .num_contributors = num_workers,
                     .buffers = &replay->buffers_};
  TensorSpec spec{.name = "replay"};
  for (const Chunk& chunk : layout.chunks) {
    spec.num_elems += chunk.num_elems;
    ASSIGN_OR_RETURN(ChunkSum sum,
                     ChunkSum::Make(layout, chunk, replay->config_));
    replay->sums_.push_back(std::move(sum));
  }
  for (int worker = 0; worker < num_workers; ++worker) {
    ASSIGN_OR_RETURN(replay->workers_.emplace_back(),
                     TensorCodec::Make(spec, layout, replay->config_));
  }
  return replay;
}

absl::Status Replay::Step(std::span<const ConstBytes> gradients, Bytes sums) {
  std::vector<ChunkWish> wishes;
  for (size_t worker = 0; worker < workers_.size(); ++worker) {
    wishes.push_back(workers_[worker]->Wish(gradients[worker]));
  }
  for (size_t index = 0; index < sums_.size(); ++index) {
    RETURN_IF_ERROR(StepChunk(index, gradients, wishes, sums));
  }
  ++step_;
  return absl::OkStatus();
}

absl::Status Replay::StepChunk(size_t index,
                               std::span<const ConstBytes> gradients,
                               std::span<const ChunkWish> wishes, Bytes sums) {
  ChunkSum& sum = sums_[index];
  const size_t begin = 4 * sum.chunk().begin;
  const size_t bytes = 4 * sum.chunk().num_elems;
  for (size_t worker = 0; worker < workers_.size(); ++worker) {
    if (!workers_[worker]->chunks()[index].NeedsScale(step_)) break;
    RETURN_IF_ERROR(
        sum.Propose(static_cast<int>(worker), wishes[worker].scale).status());
  }
  std::vector<ConstBytes> payloads;
  for (size_t worker = 0; worker < workers_.size(); ++worker) {
    ChunkCodec& codec = workers_[worker]->chunks()[index];
    if (codec.NeedsScale(step_)) codec.AgreeFirst(sum.scale());
    ASSIGN_OR_RETURN(
        const EncodedChunk encoded,
        codec.Encode(step_, worker, {gradients[worker].data + begin, bytes}));
    payloads.push_back(encoded.payload);
    sum.Note(codec.Wish(wishes[worker]));
  }
  ASSIGN_OR_RETURN(const ChunkResult result, sum.Sum(payloads, nullptr, {}));
  sum.Finish(result.record);
  for (const std::unique_ptr<TensorCodec>& worker : workers_) {
    ChunkCodec& codec = worker->chunks()[index];
    RETURN_IF_ERROR(codec.Decode(result.record, result.payload,
                                 Bytes(sums.data + begin, bytes)));
    codec.Agree(result.record.agreed);
  }
  return absl::OkStatus();
}

}  // namespace telegrad::perf
