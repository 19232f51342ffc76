#include "kvstore/collective/choose.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvstore/collective/mesh.h"
#include "topology/sums.h"

namespace telegrad {

const char* ToString(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kProduct:
      return "product";
  }
  return "unknown";
}

namespace {

using Algorithm = CollectiveAlgorithm;

constexpr std::array kNames = {
    "auto",      "ring",     "recursive_doubling", "direct", "binomial",
    "chain",     "pairwise", "dissemination",      "tree",   "halving_doubling",
    "two_level", "bruck"};

}  // namespace

const char* ToString(CollectiveAlgorithm algorithm) {
  return kNames.at(static_cast<size_t>(algorithm));
}

absl::StatusOr<CollectiveAlgorithm> ParseCollectiveAlgorithm(
    absl::string_view text) {
  const auto* const found = std::find(kNames.begin(), kNames.end(), text);
  if (found != kNames.end()) {
    return static_cast<Algorithm>(found - kNames.begin());
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "algorithm \"", text, "\" is none of ", absl::StrJoin(kNames, ", ")));
}

namespace collective {
namespace {

struct Entry {
  Operation operation;
  Algorithm algorithm;
};

// The first of two that take equally long is taken.
constexpr Entry kEntries[] = {
    {Operation::kAllreduce, Algorithm::kRecursiveDoubling},
    {Operation::kAllreduce, Algorithm::kRing},
    {Operation::kAllreduce, Algorithm::kHalvingDoubling},
    {Operation::kAllreduce, Algorithm::kTree},
    {Operation::kAllreduce, Algorithm::kTwoLevel},
    {Operation::kReduceScatter, Algorithm::kDirect},
    {Operation::kReduceScatter, Algorithm::kRing},
    {Operation::kAllgather, Algorithm::kDirect},
    {Operation::kAllgather, Algorithm::kRing},
    {Operation::kAllgather, Algorithm::kBruck},
    {Operation::kBroadcast, Algorithm::kBinomial},
    {Operation::kBroadcast, Algorithm::kChain},
    {Operation::kBroadcast, Algorithm::kTree},
    {Operation::kAlltoall, Algorithm::kDirect},
    {Operation::kAlltoall, Algorithm::kPairwise},
    {Operation::kAlltoallv, Algorithm::kDirect},
    {Operation::kAlltoallv, Algorithm::kPairwise},
    {Operation::kBarrier, Algorithm::kDissemination},
};

RankNetwork NetworkOf(const GroupOptions& options) {
  RankNetwork network = telegrad::NetworkOf(options.world_size, options.hosts);
  network.latency_s = options.latency_s;
  network.bytes_per_s = options.bytes_per_s;
  network.host_latency_s = options.host_latency_s;
  network.host_bytes_per_s = options.host_bytes_per_s;
  network.chunk_bytes = options.chunk_bytes;
  return network;
}

// By SumWay, and by CopyWay.
constexpr std::array kSums = {Algorithm::kRecursiveDoubling, Algorithm::kRing,
                              Algorithm::kHalvingDoubling, Algorithm::kTree,
                              Algorithm::kTwoLevel};
constexpr std::array kCopies = {Algorithm::kBinomial, Algorithm::kChain,
                                Algorithm::kTree};
static_assert(kMaxWholeBytes == kMaxEagerBytes);

Algorithm AlgorithmOf(SumWay way) { return kSums.at(static_cast<size_t>(way)); }

// All ways move as many bytes. Small is what costs less than its message.
Algorithm ChooseBySize(Operation operation, size_t bytes,
                       const GroupOptions& options) {
  const bool is_small =
      static_cast<double>(bytes) <= options.latency_s * options.bytes_per_s &&
      bytes <= kMaxEagerBytes;
  if (operation == Operation::kAllgather &&
      GathersByBruck(bytes, NetworkOf(options))) {
    return Algorithm::kBruck;
  }
  switch (operation) {
    case Operation::kAlltoall:
      return is_small ? Algorithm::kDirect : Algorithm::kPairwise;
    case Operation::kAlltoallv:
      return Algorithm::kDirect;
    case Operation::kBarrier:
      return Algorithm::kDissemination;
    default:
      return is_small ? Algorithm::kDirect : Algorithm::kRing;
  }
}

Algorithm Fastest(Operation operation, size_t bytes,
                  const GroupOptions& options) {
  if (operation == Operation::kBroadcast) {
    const CopyWay way = FastestCopy(bytes, NetworkOf(options));
    return kCopies.at(static_cast<size_t>(way));
  }
  if (operation != Operation::kAllreduce) {
    return ChooseBySize(operation, bytes, options);
  }
  if (options.allreduce != Algorithm::kAuto) return options.allreduce;
  return AlgorithmOf(options.sums.empty()
                         ? FastestSum(bytes, NetworkOf(options))
                         : WayOf(options.sums, bytes));
}

}  // namespace

std::vector<Algorithm> AlgorithmsOf(Operation operation) {
  std::vector<Algorithm> all;
  for (const Entry& entry : kEntries) {
    if (entry.operation == operation) all.push_back(entry.algorithm);
  }
  return all;
}

double AllreduceSeconds(Algorithm algorithm, size_t bytes,
                        const GroupOptions& options) {
  const auto* const found = std::find(kSums.begin(), kSums.end(), algorithm);
  return SumSeconds(static_cast<SumWay>(found - kSums.begin()), bytes,
                    NetworkOf(options));
}

Across ChooseAcross(size_t bytes, const GroupOptions& options) {
  switch (WayBetweenHosts(bytes, NetworkOf(options))) {
    case SumWay::kHalvingDoubling:
      return Across::kHalvingDoubling;
    case SumWay::kTree:
      return Across::kTree;
    default:
      return Across::kRing;
  }
}

absl::StatusOr<CollectiveAlgorithm> Choose(Operation operation,
                                           CollectiveAlgorithm asked,
                                           size_t bytes,
                                           const GroupOptions& options) {
  if (asked == Algorithm::kAuto) return Fastest(operation, bytes, options);
  std::vector<const char*> names = {ToString(Algorithm::kAuto)};
  for (const Algorithm each : AlgorithmsOf(operation)) {
    if (each == asked) return asked;
    names.push_back(ToString(each));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(Describe({.operation = operation, .algorithm = asked}),
                   ": this collective has ", absl::StrJoin(names, ", ")));
}

}  // namespace collective
}  // namespace telegrad
