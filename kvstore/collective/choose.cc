#include "kvstore/collective/choose.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <map>
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

// Ranks of a host share its link.
struct Shape {
  int ranks = 1;
  int hosts = 1;
  int most = 1;                // ranks of a host
  bool are_neighbours = true;  // ranks of a host
};

Shape ShapeOf(const GroupOptions& options) {
  Shape shape{.ranks = options.world_size, .hosts = options.world_size};
  if (options.hosts.empty()) return shape;
  std::map<int, int> counts;
  int runs = 1;
  for (size_t rank = 0; rank < options.hosts.size(); ++rank) {
    const int host = options.hosts[rank];
    shape.most = std::max(shape.most, ++counts[host]);
    runs += rank > 0 && options.hosts[rank - 1] != host ? 1 : 0;
  }
  shape.hosts = static_cast<int>(counts.size());
  shape.are_neighbours = runs == shape.hosts;
  return shape;
}

// Messages one after the other and how often the bytes pass the link of a host
// (`out`) or go between its ranks (`in`): the alpha-beta model of Hockney;
// Thakur et al. 2005 for the counts.
struct Cost {
  struct Part {
    double messages = 0;
    double bytes = 0;
  };
  Part out = {};
  Part in = {};
};

Cost Flat(const Shape& shape, double messages, double bytes) {
  if (shape.hosts == 1) return {.in = {messages, bytes}};
  return {.out = {messages, bytes * shape.most}};
}

double Log2(int n) { return std::bit_width(static_cast<unsigned>(n)) - 1; }
bool IsPower(int n) { return std::has_single_bit(static_cast<unsigned>(n)); }

// Where pairs of neighbours are in one host they swap there.
Cost Pairs(const Shape& shape, bool halves) {
  const double rounds = Log2(shape.ranks);
  const double folds = IsPower(shape.ranks) ? 0 : 2;
  const double p = std::exp2(rounds);
  if (shape.hosts > 1 && shape.are_neighbours && IsPower(shape.ranks) &&
      shape.most * shape.hosts == shape.ranks) {
    const double most = shape.most, hosts = shape.hosts;
    const double in = Log2(shape.most), out = Log2(shape.hosts);
    if (!halves) return {.out = {out, out * most}, .in = {in, in}};
    return {.out = {2 * out, 2 * (hosts - 1) / hosts},
            .in = {2 * in, 2 * (most - 1) / most}};
  }
  return halves ? Flat(shape, 2 * rounds + folds, 2 * (p - 1) / p + folds)
                : Flat(shape, rounds + folds, rounds + folds);
}

// `fill` is a piece as a part of all bytes: a tree passes it on when it is
// whole. Answers that ranks are ready are messages, too.
Cost CostOf(Algorithm algorithm, const Shape& shape, double fill) {
  const double n = shape.ranks;
  switch (algorithm) {
    case Algorithm::kRecursiveDoubling:
      return Pairs(shape, /*halves=*/false);
    case Algorithm::kHalvingDoubling: {
      Cost cost = Pairs(shape, /*halves=*/true);
      ++(shape.hosts == 1 ? cost.in : cost.out).messages;
      return cost;
    }
    case Algorithm::kRing: {
      Cost cost = Flat(shape, 2 * (n - 1) + 1, 2 * (n - 1) / n);
      // One rank of each host sends to another one.
      if (shape.are_neighbours) cost.out.bytes /= shape.most;
      return cost;
    }
    case Algorithm::kTree: {
      const double hops = 2 * Log2(shape.ranks);
      return Flat(shape, hops + 1, 3 + (hops - 2) * fill);
    }
    default:
      return {};
  }
}

double Seconds(const Cost& cost, double bytes, const GroupOptions& options) {
  return cost.out.messages * options.latency_s +
         cost.out.bytes * bytes / options.bytes_per_s +
         cost.in.messages * options.host_latency_s +
         cost.in.bytes * bytes / options.host_bytes_per_s;
}

// A piece as a part of all bytes.
double FillOf(double bytes, size_t piece_bytes) {
  return std::min(1.0, static_cast<double>(piece_bytes) / std::max(1.0, bytes));
}
double TreeFill(double bytes, const GroupOptions& options) {
  return FillOf(
      bytes, TreePieceBytes(options.chunk_bytes, static_cast<size_t>(bytes)));
}

// Between hosts, by one rank of each for a part; together they have the link.
double AcrossSeconds(Algorithm algorithm, double bytes,
                     const GroupOptions& options) {
  const Shape shape = ShapeOf(options);
  const Shape across{.ranks = shape.hosts, .hosts = shape.hosts};
  const double part = bytes / (shape.ranks / static_cast<double>(shape.hosts));
  return Seconds(CostOf(algorithm, across, TreeFill(part, options)), bytes,
                 options);
}

constexpr Algorithm kAcross[] = {  // by Across
    Algorithm::kRing, Algorithm::kHalvingDoubling, Algorithm::kTree};

// A broadcast's.
double BroadcastSeconds(Algorithm algorithm, double bytes,
                        const GroupOptions& options) {
  const Shape shape = ShapeOf(options);
  const double n = shape.ranks;
  const double log = std::bit_width(static_cast<unsigned>(shape.ranks - 1));
  Cost cost;
  if (algorithm == Algorithm::kBinomial) {
    cost = Flat(shape, log, log);
  } else if (algorithm == Algorithm::kTree) {
    const double hops = Log2(shape.ranks);
    cost = Flat(shape, hops + 1,
                std::min(n - 1, 2.0) + (hops - 1) * TreeFill(bytes, options));
  } else {
    cost = Flat(shape, n, 1 + (n - 2) * FillOf(bytes, options.chunk_bytes));
    if (shape.are_neighbours) cost.out.bytes /= shape.most;
  }
  return Seconds(cost, bytes, options);
}

// All ways move as many bytes. Small is what costs less than its message; of
// many ranks each message costs a rank about a quarter of its latency.
Algorithm ChooseBySize(Operation operation, size_t bytes,
                       const GroupOptions& options) {
  constexpr double kShareOfRank = 0.25;
  const bool is_small =
      static_cast<double>(bytes) <= options.latency_s * options.bytes_per_s &&
      bytes <= kMaxEagerBytes;
  const double n = options.world_size;
  if (operation == Operation::kAllgather && is_small &&
      bytes * static_cast<size_t>(options.world_size) <= kMaxEagerBytes &&
      Log2(options.world_size) + 1 < 1 + kShareOfRank * (n - 1)) {
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

bool IsEager(Algorithm algorithm) {
  return algorithm == Algorithm::kRecursiveDoubling ||
         algorithm == Algorithm::kBinomial;
}

// From rank to rank. What is predicted to be less than a tenth faster is not
// taken: these have the simplest way, each with its neighbours alone.
constexpr double kShareOfLine = 0.9;
bool IsLine(Algorithm algorithm) {
  return algorithm == Algorithm::kRing || algorithm == Algorithm::kChain;
}

Algorithm Fastest(Operation operation, size_t bytes,
                  const GroupOptions& options) {
  if (options.allreduce != Algorithm::kAuto &&
      operation == Operation::kAllreduce) {
    return options.allreduce;
  }
  if (operation != Operation::kAllreduce &&
      operation != Operation::kBroadcast) {
    return ChooseBySize(operation, bytes, options);
  }
  Algorithm fastest = Algorithm::kAuto;
  double least_s = 0;
  for (const Algorithm each : AlgorithmsOf(operation)) {
    if (IsEager(each) && bytes > kMaxEagerBytes) continue;
    double seconds =
        operation == Operation::kAllreduce
            ? AllreduceSeconds(each, bytes, options)
            : BroadcastSeconds(each, static_cast<double>(bytes), options);
    if (IsLine(each)) seconds *= kShareOfLine;
    if (fastest != Algorithm::kAuto && seconds >= least_s) continue;
    fastest = each;
    least_s = seconds;
  }
  return fastest;
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
  const auto b = static_cast<double>(bytes);
  const Shape shape = ShapeOf(options);
  if (algorithm != Algorithm::kTwoLevel) {
    return Seconds(CostOf(algorithm, shape, TreeFill(b, options)), b, options);
  }
  const double most = shape.most;
  const Cost within{.in = {2 * (most - 1), 2 * (most - 1) / most}};
  const Across across = ChooseAcross(bytes, options);
  const double out_s =
      shape.hosts == 1
          ? options.latency_s  // as a ring, with a message more
          : AcrossSeconds(kAcross[static_cast<size_t>(across)], b, options);
  return Seconds(within, b, options) + out_s;
}

Across ChooseAcross(size_t bytes, const GroupOptions& options) {
  Across fastest = Across::kRing;
  double least_s = 0;
  for (size_t i = 0; i < std::size(kAcross); ++i) {
    const double seconds =
        AcrossSeconds(kAcross[i], static_cast<double>(bytes), options);
    if (i > 0 && seconds >= least_s) continue;
    fastest = static_cast<Across>(i);
    least_s = seconds;
  }
  return fastest;
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
