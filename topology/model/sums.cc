#include "topology/sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/units.h"

namespace telegrad {
namespace {

// Messages one after the other and how often the bytes pass the link of a host
// (`out`) or go between its ranks (`in`): the alpha-beta model of Hockney;
// Thakur et al. 2005 for the counts.
struct Passes {
  struct Part {
    double messages = 0;
    double bytes = 0;
  };
  Part out = {};
  Part in = {};
};

Passes Flat(const RankNetwork& of, double messages, double bytes) {
  if (of.hosts == 1) return {.in = {messages, bytes}};
  return {.out = {messages, bytes * of.most}};
}

double Log2(int n) { return std::bit_width(static_cast<unsigned>(n)) - 1; }
bool IsPower(int n) { return std::has_single_bit(static_cast<unsigned>(n)); }

// Where pairs of neighbours are in one host they swap there.
Passes Pairs(const RankNetwork& of, bool halves) {
  const double rounds = Log2(of.ranks);
  const double folds = IsPower(of.ranks) ? 0 : 2;
  const double p = std::exp2(rounds);
  if (of.hosts > 1 && of.are_neighbours && IsPower(of.ranks) &&
      of.most * of.hosts == of.ranks) {
    const double most = of.most, hosts = of.hosts;
    const double in = Log2(of.most), out = Log2(of.hosts);
    if (!halves) return {.out = {out, out * most}, .in = {in, in}};
    return {.out = {2 * out, 2 * (hosts - 1) / hosts},
            .in = {2 * in, 2 * (most - 1) / most}};
  }
  return halves ? Flat(of, 2 * rounds + folds, 2 * (p - 1) / p + folds)
                : Flat(of, rounds + folds, rounds + folds);
}

// `fill` is a piece as a part of all bytes: a tree passes it on when it is
// whole. Answers that ranks are ready are messages, too.
Passes PassesOf(SumWay way, const RankNetwork& of, double fill) {
  const double n = of.ranks;
  switch (way) {
    case SumWay::kRecursiveDoubling:
      return Pairs(of, /*halves=*/false);
    case SumWay::kHalvingDoubling: {
      Passes passes = Pairs(of, /*halves=*/true);
      ++(of.hosts == 1 ? passes.in : passes.out).messages;
      return passes;
    }
    case SumWay::kRing: {
      Passes passes = Flat(of, 2 * (n - 1) + 1, 2 * (n - 1) / n);
      // One rank of each host sends to another one.
      if (of.are_neighbours) passes.out.bytes /= of.most;
      return passes;
    }
    case SumWay::kTree: {
      const double hops = 2 * Log2(of.ranks);
      return Flat(of, hops + 1, 3 + (hops - 2) * fill);
    }
    case SumWay::kTwoLevel:
      break;
  }
  return {};
}

double Seconds(const Passes& passes, double bytes, const RankNetwork& of) {
  return passes.out.messages * of.latency_s +
         passes.out.bytes * bytes / of.bytes_per_s +
         passes.in.messages * of.host_latency_s +
         passes.in.bytes * bytes / of.host_bytes_per_s;
}

// A piece as a part of all bytes.
double FillOf(double bytes, size_t piece_bytes) {
  return std::min(1.0, static_cast<double>(piece_bytes) / std::max(1.0, bytes));
}
double TreeFill(double bytes, const RankNetwork& of) {
  return FillOf(bytes,
                TreePieceBytes(of.chunk_bytes, static_cast<size_t>(bytes)));
}

// Between hosts, by one rank of each for a part; together they have the link.
double SecondsBetween(SumWay way, double bytes, const RankNetwork& of) {
  RankNetwork between = of;
  between.ranks = of.hosts;
  between.most = 1;
  between.are_neighbours = true;
  const double part = bytes / (of.ranks / static_cast<double>(of.hosts));
  return Seconds(PassesOf(way, between, TreeFill(part, of)), bytes, of);
}

constexpr SumWay kBetween[] = {SumWay::kRing, SumWay::kHalvingDoubling,
                               SumWay::kTree};

// From rank to rank, each with its neighbours alone: the simplest way, which is
// taken where another one is predicted to be less than a tenth faster.
constexpr double kShareOfLine = 0.9;
constexpr double kNo = std::numeric_limits<double>::infinity();

// The first of two that take equally long.
template <typename Ways, typename Seconds>
auto Fastest(const Ways& ways, const Seconds& seconds_of) {
  return *std::min_element(
      std::begin(ways), std::end(ways),
      [&](auto a, auto b) { return seconds_of(a) < seconds_of(b); });
}

double CopySeconds(CopyWay way, double bytes, const RankNetwork& network) {
  const double n = network.ranks;
  const double log = std::bit_width(static_cast<unsigned>(network.ranks - 1));
  if (way == CopyWay::kBinomial) {
    return Seconds(Flat(network, log, log), bytes, network);
  }
  if (way == CopyWay::kTree) {
    const double hops = Log2(network.ranks);
    const double passes =
        std::min(n - 1, 2.0) + (hops - 1) * TreeFill(bytes, network);
    return Seconds(Flat(network, hops + 1, passes), bytes, network);
  }
  Passes passes =
      Flat(network, n, 1 + (n - 2) * FillOf(bytes, network.chunk_bytes));
  if (network.are_neighbours) passes.out.bytes /= network.most;
  return Seconds(passes, bytes, network);
}

}  // namespace

RankNetwork NetworkOf(int ranks, std::span<const int> hosts) {
  RankNetwork network{.ranks = ranks, .hosts = ranks};
  if (hosts.empty()) return network;
  std::map<int, int> counts;
  int runs = 1;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    network.most = std::max(network.most, ++counts[hosts[rank]]);
    runs += rank > 0 && hosts[rank - 1] != hosts[rank] ? 1 : 0;
  }
  network.hosts = static_cast<int>(counts.size());
  network.are_neighbours = runs == network.hosts;
  return network;
}

const char* Name(SumWay way) {
  constexpr const char* kNames[] = {"recursive_doubling", "ring",
                                    "halving_doubling", "tree", "two_level"};
  return kNames[static_cast<size_t>(way)];
}

size_t TreePieceBytes(size_t chunk_bytes, size_t bytes) {
  constexpr size_t kPieces = 16;
  constexpr size_t kLeast = size_t{16} << 10;
  return std::min(chunk_bytes, std::max(kLeast, bytes / kPieces));
}

double SumSeconds(SumWay way, size_t bytes, const RankNetwork& network) {
  const auto b = static_cast<double>(bytes);
  if (way != SumWay::kTwoLevel) {
    return Seconds(PassesOf(way, network, TreeFill(b, network)), b, network);
  }
  const double most = network.most;
  const Passes within{.in = {2 * (most - 1), 2 * (most - 1) / most}};
  const double out_s =
      network.hosts == 1
          ? network.latency_s  // as a ring, with a message more
          : SecondsBetween(WayBetweenHosts(bytes, network), b, network);
  return Seconds(within, b, network) + out_s;
}

SumWay WayBetweenHosts(size_t bytes, const RankNetwork& network) {
  return Fastest(kBetween, [&](SumWay way) {
    return SecondsBetween(way, static_cast<double>(bytes), network);
  });
}

SumWay FastestSum(size_t bytes, const RankNetwork& network) {
  return Fastest(kSumWays, [&](SumWay way) {
    if (way == SumWay::kRecursiveDoubling && bytes > kMaxWholeBytes) return kNo;
    const double seconds = SumSeconds(way, bytes, network);
    return way == SumWay::kRing ? kShareOfLine * seconds : seconds;
  });
}

CopyWay FastestCopy(size_t bytes, const RankNetwork& network) {
  constexpr CopyWay kWays[] = {CopyWay::kBinomial, CopyWay::kChain,
                               CopyWay::kTree};
  return Fastest(kWays, [&](CopyWay way) {
    if (way == CopyWay::kBinomial && bytes > kMaxWholeBytes) return kNo;
    const double seconds =
        CopySeconds(way, static_cast<double>(bytes), network);
    return way == CopyWay::kChain ? kShareOfLine * seconds : seconds;
  });
}

// Small is what costs less than its message; of many ranks each message costs a
// rank about a quarter of its latency.
bool GathersByBruck(size_t bytes, const RankNetwork& network) {
  constexpr double kShareOfRank = 0.25;
  const auto n = static_cast<size_t>(network.ranks);
  return static_cast<double>(bytes) <=
             network.latency_s * network.bytes_per_s &&
         bytes <= kMaxWholeBytes / n &&
         Log2(network.ranks) + 1 < 1 + kShareOfRank * (network.ranks - 1);
}

// Boundaries lie between powers of two; from 1 GiB on the last way goes on.
std::vector<SumRange> SumRanges(const RankNetwork& network) {
  constexpr uint64_t kLeast = 4;
  constexpr uint64_t kMost = uint64_t{1} << 30;
  std::vector<SumRange> ranges;
  SumWay way = FastestSum(kLeast, network);
  for (uint64_t size = kLeast; size < kMost; size *= 2) {
    const SumWay next = FastestSum(2 * size, network);
    if (next == way) continue;
    uint64_t low = size, high = 2 * size;
    while (high - low > 1) {
      const uint64_t middle = (low + high) / 2;
      (FastestSum(middle, network) == way ? low : high) = middle;
    }
    ranges.push_back({way, low});
    way = FastestSum(high, network);
    if (way != next) ranges.push_back({way, 2 * size - 1});
    way = next;
  }
  ranges.push_back({way, kAnySize});
  return ranges;
}

SumWay WayOf(std::span<const SumRange> ranges, size_t bytes) {
  for (const SumRange& range : ranges) {
    if (bytes <= range.up_to_bytes) return range.way;
  }
  return SumWay::kRing;
}

std::string ToText(std::span<const SumRange> ranges) {
  std::string text;
  for (const SumRange& range : ranges) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", Name(range.way));
    if (range.up_to_bytes != kAnySize) {
      absl::StrAppend(&text, " to ",
                      FormatBytes(static_cast<double>(range.up_to_bytes)));
    } else if (ranges.size() > 1) {
      absl::StrAppend(&text, " above");
    }
  }
  return text;
}

}  // namespace telegrad
