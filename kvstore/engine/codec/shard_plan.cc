#include "kvstore/engine/codec/shard_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/code_sum.h"
#include "kernels/two_bit.h"

namespace telegrad {
namespace {

void AppendChunks(Key key, int server, size_t begin, size_t end,
                  size_t chunk_elems, std::vector<Chunk>& chunks) {
  constexpr size_t kGroup = kernels::kSumsPerGroup;
  chunk_elems =
      std::max<size_t>(1, (chunk_elems + kGroup - 1) / kGroup) * kGroup;
  for (size_t at = begin; at < end; at += chunk_elems) {
    chunks.push_back({.key = key,
                      .index = static_cast<uint32_t>(chunks.size()),
                      .begin = at,
                      .num_elems = std::min(chunk_elems, end - at),
                      .server = server});
  }
}

// `count` servers, in their order; the first ones of equals.
std::vector<size_t> LeastLoaded(std::span<const size_t> loads, size_t count) {
  std::vector<size_t> servers(loads.size());
  std::iota(servers.begin(), servers.end(), size_t{0});
  std::stable_sort(servers.begin(), servers.end(),
                   [&](size_t a, size_t b) { return loads[a] < loads[b]; });
  servers.resize(count);
  std::sort(servers.begin(), servers.end());
  return servers;
}

}  // namespace

std::vector<size_t> ShardSizes(size_t num_elems,
                               std::span<const size_t> loads) {
  const std::vector<size_t> servers = LeastLoaded(
      loads, std::clamp(num_elems / kMinPartElems, size_t{1}, loads.size()));
  constexpr size_t kWord = kernels::kCodesPerWord;
  const size_t words = (num_elems + kWord - 1) / kWord;
  const double share =
      static_cast<double>(words) / static_cast<double>(servers.size());
  std::vector<size_t> sizes(loads.size(), 0);
  size_t left = num_elems;
  for (size_t i = 0; i + 1 < servers.size(); ++i) {
    const auto part =
        static_cast<size_t>(std::round(share * static_cast<double>(i + 1))) -
        static_cast<size_t>(std::round(share * static_cast<double>(i)));
    sizes[servers[i]] = std::min(left, part * kWord);
    left -= sizes[servers[i]];
  }
  sizes[servers.back()] = left;
  return sizes;
}

ShardPlanner::ShardPlanner(int num_servers, size_t chunk_elems,
                           const CompressionConfig& compression,
                           CodecPolicy policy)
    : chunk_elems_(chunk_elems),
      threshold_(compression.threshold),
      policy_(std::move(policy)),
      loads_(static_cast<size_t>(num_servers), 0) {}

absl::StatusOr<ShardPlanner> ShardPlanner::Make(
    int num_servers, size_t chunk_elems, const CompressionConfig& compression) {
  if (num_servers < 1) return absl::InvalidArgumentError("no server");
  ASSIGN_OR_RETURN(CodecPolicy policy, MakeCodecPolicy(compression));
  return ShardPlanner(num_servers, chunk_elems, compression, std::move(policy));
}

absl::StatusOr<TensorLayout> ShardPlanner::Add(const TensorSpec& tensor) {
  ASSIGN_OR_RETURN(const CodecChoice choice, policy_.Choose(tensor));
  TensorLayout layout{.setting = choice.specs.front()->text,
                      .has_rule = choice.has_rule,
                      .reason = choice.reason,
                      .rates = tensor.rates};
  for (const JobCodec* spec : choice.specs) {
    layout.codecs.push_back(
        {.codec = spec->codec,
         .options = spec->options,
         .threshold = spec->threshold.value_or(threshold_)});
  }
  if (choice.rows != nullptr) {
    layout.rows = {.codec = choice.rows->codec,
                   .options = choice.rows->options};
  }
  size_t begin = 0;
  const std::vector<size_t> sizes = ShardSizes(tensor.num_elems, loads_);
  for (size_t server = 0; server < sizes.size(); ++server) {
    AppendChunks(next_key_, static_cast<int>(server), begin,
                 begin + sizes[server],
                 tensor.chunk_elems > 0 ? tensor.chunk_elems : chunk_elems_,
                 layout.chunks);
    begin += sizes[server];
    loads_[server] += sizes[server];
  }
  ++next_key_;
  return layout;
}

absl::StatusOr<std::vector<TensorLayout>> MakeShardPlan(
    std::span<const TensorSpec> tensors, int num_servers, size_t chunk_elems,
    const CompressionConfig& compression) {
  ASSIGN_OR_RETURN(ShardPlanner planner,
                   ShardPlanner::Make(num_servers, chunk_elems, compression));
  std::vector<TensorLayout> plan;
  for (const TensorSpec& tensor : tensors) {
    ASSIGN_OR_RETURN(plan.emplace_back(), planner.Add(tensor));
  }
  return plan;
}

}  // namespace telegrad
