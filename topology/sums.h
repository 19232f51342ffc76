#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

// How sums over ranks go by their size, ranks, hosts and links: what the
// planner and kvstore/collective reckon with. docs/collectives.md.
namespace telegrad {

// Ranks and what is between them.
struct RankNetwork {
  int ranks = 1;
  int hosts = 1;
  int most = 1;                // ranks of a host, which share its link
  bool are_neighbours = true;  // ranks of a host
  // Between hosts, and in one.
  double latency_s = 20e-6;
  double bytes_per_s = 2e9;
  double host_latency_s = 10e-6;
  double host_bytes_per_s = 4e9;
  size_t chunk_bytes = size_t{256} << 10;  // pipelines' pieces
};
// `hosts`: by rank a number; none: each of `ranks` has its own.
RankNetwork NetworkOf(int ranks, std::span<const int> hosts);

// An allreduce's ways, small data's first.
enum class SumWay : uint8_t {
  kRecursiveDoubling,
  kRing,
  kHalvingDoubling,
  kTree,
  kTwoLevel,
};
inline constexpr SumWay kSumWays[] = {SumWay::kRecursiveDoubling, SumWay::kRing,
                                      SumWay::kHalvingDoubling, SumWay::kTree,
                                      SumWay::kTwoLevel};
const char* Name(SumWay way);  // "recursive_doubling"
// Recursive doubling and binomial trees send whole messages, of at most so
// much.
inline constexpr size_t kMaxWholeBytes = size_t{64} << 10;

// A broadcast's.
enum class CopyWay : uint8_t { kBinomial, kChain, kTree };

// Predicted seconds for `bytes` of each rank.
double SumSeconds(SumWay way, size_t bytes, const RankNetwork& network);
// kRing, kHalvingDoubling or kTree: how the parts of two levels go between
// hosts.
SumWay WayBetweenHosts(size_t bytes, const RankNetwork& network);
// What takes least; a ring, or a chain, where another way saves less than a
// tenth.
SumWay FastestSum(size_t bytes, const RankNetwork& network);
CopyWay FastestCopy(size_t bytes, const RankNetwork& network);
// Whether an allgather of blocks of `bytes` goes in log2 n messages (Bruck).
bool GathersByBruck(size_t bytes, const RankNetwork& network);

// Which way takes which sizes, from the last one's end to its own; the last
// ends with kAnySize.
inline constexpr uint64_t kAnySize = UINT64_MAX;
struct SumRange {
  SumWay way = SumWay::kRing;
  uint64_t up_to_bytes = kAnySize;
  bool operator==(const SumRange&) const = default;
};
std::vector<SumRange> SumRanges(const RankNetwork& network);
SumWay WayOf(std::span<const SumRange> ranges, size_t bytes);
// "recursive_doubling to 16 kB, ring above".
std::string ToText(std::span<const SumRange> ranges);

// Pieces of trees: each rank hands one on when it has all of it.
size_t TreePieceBytes(size_t chunk_bytes, size_t bytes);

}  // namespace telegrad
