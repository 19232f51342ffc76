#include "kvstore/ps/server/served_tensors.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json_fields.h"
#include "base/status_macros.h"
#include "kvstore/engine/codec/checks.h"
#include "kvstore/optimizer.h"
#include "kvstore/ps/server/aggregate_async.h"
#include "kvstore/ps/server/aggregate_backups.h"
#include "kvstore/ps/server/aggregate_sync.h"
#include "kvstore/ps/server/chunk_state.h"
#include "kvstore/ps/wire/json_fields.h"

namespace telegrad {
namespace {

// What tensors have been prepared by stays.
absl::Status CheckSettings(JobConfig before, const JobConfig& config) {
  before.tensors = config.tensors;
  before.has_values = config.has_values;
  if (SerializeJobConfig(before) == SerializeJobConfig(config)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "new tensors came with other settings than the first ones");
}

// Nobody on the pool works on the chunk.
absl::Status CheckIdle(const ServedChunk& chunk) {
  if (chunk.num_arrived == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("new rates or states within a round of key ",
                   chunk.aggregator->chunk().key));
}

absl::StatusOr<std::unique_ptr<Aggregator>> MakeAggregator(
    const JobConfig& config, const TensorLayout& layout, const Chunk& chunk,
    const EngineConfig& engine, int num_workers, ChunkWeights kept) {
  if (config.is_async) {
    return AsyncAggregator::Make(layout, chunk, engine, num_workers,
                                 config.max_staleness, std::move(kept));
  }
  ASSIGN_OR_RETURN(ChunkSum sum, ChunkSum::Make(layout, chunk, engine));
  if (config.drop_slowest > 0) {
    return std::make_unique<BackupAggregator>(std::move(sum), engine,
                                              config.drop_slowest);
  }
  return std::make_unique<SyncAggregator>(std::move(sum), engine);
}

}  // namespace

ServedTensors::ServedTensors(int server, int num_servers, int num_workers,
                             int64_t max_bytes, int num_readers,
                             KeptWeights kept)
    : server_(server),
      num_servers_(num_servers),
      num_workers_(num_workers),
      num_readers_(num_readers),
      bytes_left_(max_bytes),
      kept_(std::move(kept)) {}

absl::Status ServedTensors::Apply(const FrameHeader& header,
                                  ConstBytes payload) {
  if (header.type == FrameType::kSetState) {
    ASSIGN_OR_RETURN(ServedChunk* const chunk, FindIdle(header));
    return SetState(*chunk->aggregator, config_.optimizer.kind, header.step,
                    payload);
  }
  const absl::string_view text(reinterpret_cast<const char*>(payload.data),
                               payload.size);
  return header.type == FrameType::kRates ? ChangeRates(text) : Add(text);
}

absl::StatusOr<std::string> ServedTensors::DescribeState(
    const FrameHeader& header) {
  ASSIGN_OR_RETURN(ServedChunk* const chunk, FindIdle(header));
  return telegrad::DescribeState(*chunk->aggregator, header.step);
}

absl::StatusOr<ServedChunk*> ServedTensors::Find(const FrameHeader& header) {
  if (header.key >= chunks_.size() ||
      header.chunk >= chunks_[header.key].size() ||
      chunks_[header.key][header.chunk] == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "key ", header.key, " chunk ", header.chunk, " is not served here"));
  }
  return chunks_[header.key][header.chunk].get();
}

absl::StatusOr<ServedChunk*> ServedTensors::FindIdle(
    const FrameHeader& header) {
  ASSIGN_OR_RETURN(ServedChunk* const chunk, Find(header));
  RETURN_IF_ERROR(CheckIdle(*chunk));
  return chunk;
}

KeptWeights ServedTensors::TakeWeights() {
  if (!planner_.has_value()) return std::move(kept_);  // nobody came so far
  KeptWeights kept{.kind = config_.optimizer.kind};
  if (!config_.is_async) return kept;
  for (const auto& chunks : chunks_) {
    for (const auto& chunk : chunks) {
      if (chunk == nullptr) continue;
      const Chunk& place = chunk->aggregator->chunk();
      ChunkWeights& weights = chunk->aggregator->weights();
      if (weights.value == nullptr) continue;
      kept.chunks[{names_[place.key], place.begin}] = std::move(weights);
    }
  }
  return kept;
}

void ServedTensors::OnLeft(int worker, AnswerSink& sink) {
  for (const auto& chunks : chunks_) {
    for (const auto& chunk : chunks) {
      if (chunk != nullptr) chunk->aggregator->OnLeft(worker, sink);
    }
  }
}

std::string ServedTensors::WaitsFor(int worker) const {
  for (const auto& chunks : chunks_) {
    for (const auto& chunk : chunks) {
      if (chunk == nullptr) continue;
      const Aggregator& aggregator = *chunk->aggregator;
      const std::string what = aggregator.WaitsFor(worker);
      if (what.empty()) continue;
      const uint64_t rounds = aggregator.num_rounds();
      return absl::StrCat(rounds == 0 ? "before the first step"
                                      : absl::StrCat("after step ", rounds),
                          "; tensor ", names_[aggregator.chunk().key], ", ",
                          what);
    }
  }
  return "";
}

absl::Status ServedTensors::ChangeRates(absl::string_view text) {
  const auto json = ParseJson(text);
  if (!json.is_object() || !planner_.has_value()) {
    return absl::InvalidArgumentError("new rates were not expected");
  }
  JsonFields fields(json, kJobConfigFields);
  ASSIGN_OR_RETURN(const OptimizerConfig next, ReadOptimizerFields(fields));
  RETURN_IF_ERROR(CheckOptimizerChange(config_.optimizer, next));
  for (const auto& chunks : chunks_) {
    for (const auto& chunk : chunks) {
      if (chunk != nullptr) RETURN_IF_ERROR(CheckIdle(*chunk));
    }
  }
  config_.optimizer = next;
  engine_.optimizer = next;
  return absl::OkStatus();
}

absl::Status ServedTensors::Add(absl::string_view text) {
  ASSIGN_OR_RETURN(JobConfig config, ParseJobConfig(text, bytes_left_));
  if (config.tensors.size() > kMaxTensors - names_.size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(config.tensors.size(), " tensors beside ", names_.size(),
                     "; at most ", kMaxTensors));
  }
  if (config.is_async && num_readers_ > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("an asynchronous store with ", num_readers_,
                     " workers for which others push"));
  }
  if (config.drop_slowest > 0 &&
      (config.drop_slowest >= num_workers_ || num_readers_ > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rounds without the slowest ", config.drop_slowest, " of ",
                     num_workers_, " workers that push, and ", num_readers_,
                     " for which others do"));
  }
  if (planner_.has_value()) RETURN_IF_ERROR(CheckSettings(config_, config));
  config_ = std::move(config);
  if (!planner_.has_value()) {
    ASSIGN_OR_RETURN(planner_,
                     ShardPlanner::Make(num_servers_, config_.chunk_elems,
                                        config_.compression));
    engine_ = {.compression = config_.compression,
               .optimizer = config_.optimizer,
               .num_contributors = config_.is_async ? 1 : num_workers_,
               .buffers = &buffers_};
  }
  for (const TensorSpec& tensor : config_.tensors) {
    RETURN_IF_ERROR(AddTensor(tensor));
  }
  return absl::OkStatus();
}

absl::Status ServedTensors::AddTensor(const TensorSpec& tensor) {
  ASSIGN_OR_RETURN(const TensorLayout layout, planner_->Add(tensor));
  bytes_left_ -= static_cast<int64_t>(4 * tensor.num_elems);
  names_.push_back(tensor.name);
  auto& chunks = chunks_.emplace_back();
  for (const Chunk& chunk : layout.chunks) {
    std::unique_ptr<ServedChunk>& served = chunks.emplace_back();
    if (chunk.server != server_) continue;
    ChunkWeights kept;
    const auto found = kept_.chunks.find({tensor.name, chunk.begin});
    if (found != kept_.chunks.end()) {
      kept = std::move(found->second);
      kept_.chunks.erase(found);
      // Others died, and parts are cut in another way, or it is another one.
      if (kept.value->size() != 4 * chunk.num_elems) kept = {};
      if (kept_.kind != config_.optimizer.kind) kept.state = {};
    }
    ASSIGN_OR_RETURN(std::unique_ptr<Aggregator> aggregator,
                     MakeAggregator(config_, layout, chunk, engine_,
                                    num_workers_, std::move(kept)));
    ASSIGN_OR_RETURN(ServedRows rows,
                     ServedRows::Make(chunk, tensor.row_elems, layout.rows,
                                      num_workers_ + num_readers_));
    served.reset(new ServedChunk{
        .aggregator = std::move(aggregator),
        .rows = std::move(rows),
        .pushes = std::vector<ArrivedPush>(static_cast<size_t>(num_workers_))});
    for (int worker = 0; worker < num_workers_; ++worker) {
      ArrivedPush& push = served->pushes[static_cast<size_t>(worker)];
      push.chunk = served.get();
      push.worker = worker;
    }
  }
  return absl::OkStatus();
}

}  // namespace telegrad
