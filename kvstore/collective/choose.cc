#include "kvstore/collective/choose.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kvstore/collective/mesh.h"

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

constexpr std::array kNames = {"auto",     "ring",         "recursive_doubling",
                               "direct",   "binomial",     "chain",
                               "pairwise", "dissemination"};

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

// For small data, for large data.
struct Entry {
  Operation operation;
  Algorithm small;
  Algorithm large;
};

constexpr Entry kEntries[] = {
    {Operation::kAllreduce, Algorithm::kRecursiveDoubling, Algorithm::kRing},
    {Operation::kReduceScatter, Algorithm::kDirect, Algorithm::kRing},
    {Operation::kAllgather, Algorithm::kDirect, Algorithm::kRing},
    {Operation::kBroadcast, Algorithm::kBinomial, Algorithm::kChain},
    {Operation::kAlltoall, Algorithm::kDirect, Algorithm::kPairwise},
    {Operation::kAlltoallv, Algorithm::kDirect, Algorithm::kPairwise},
    {Operation::kBarrier, Algorithm::kDissemination, Algorithm::kDissemination},
};

// Messages one after the other and how often the bytes pass a link: the
// alpha-beta model of Hockney; Thakur et al. 2005 for the counts.
struct Cost {
  double messages;
  double bytes;
};

Cost CostOf(Algorithm algorithm, int world_size) {
  const double n = world_size;
  const double log = std::bit_width(static_cast<unsigned>(world_size - 1));
  switch (algorithm) {
    case Algorithm::kRecursiveDoubling:
    case Algorithm::kBinomial:
      return {log, log};
    case Algorithm::kRing:  // a block is 1 / n for allreduce only
      return {2 * (n - 1), 2 * (n - 1) / n};
    case Algorithm::kChain:  // and the answer that the next rank is ready
      return {n, 1};
    default:
      return {1, n - 1};
  }
}

bool IsSmall(const Entry& entry, size_t bytes, const GroupOptions& options) {
  if (bytes > kMaxEagerBytes) return false;
  const auto seconds = [&](Algorithm algorithm) {
    const Cost cost = CostOf(algorithm, options.world_size);
    return cost.messages * options.latency_s +
           cost.bytes * static_cast<double>(bytes) / options.bytes_per_s;
  };
  if (entry.operation == Operation::kAllreduce ||
      entry.operation == Operation::kBroadcast) {
    return seconds(entry.small) <= seconds(entry.large);
  }
  // Both ways move as many bytes: small is what costs less than its message.
  return static_cast<double>(bytes) <= options.latency_s * options.bytes_per_s;
}

}  // namespace

absl::StatusOr<CollectiveAlgorithm> Choose(Operation operation,
                                           CollectiveAlgorithm asked,
                                           size_t bytes,
                                           const GroupOptions& options) {
  for (const Entry& entry : kEntries) {
    if (entry.operation != operation) continue;
    if (asked == entry.small || asked == entry.large) return asked;
    if (asked == Algorithm::kAuto) {
      return IsSmall(entry, bytes, options) ? entry.small : entry.large;
    }
    return absl::InvalidArgumentError(
        absl::StrCat(Describe({.operation = operation, .algorithm = asked}),
                     ": this collective has auto, ", ToString(entry.small),
                     entry.small == entry.large ? "" : ", ",
                     entry.small == entry.large ? "" : ToString(entry.large)));
  }
  return absl::InternalError("no such collective");
}

}  // namespace collective
}  // namespace telegrad
