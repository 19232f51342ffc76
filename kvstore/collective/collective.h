#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/stream.h"
#include "topology/sums.h"
#include "transport/transport.h"

// Dense collectives over any transport. docs/collectives.md has algorithms and
// messages.
namespace telegrad {

constexpr int kAnyRank = -1;

// 16-bit floats are combined in float32 and rounded to nearest after each
// step; finite results beyond the type's range become its largest. Whole
// numbers wrap. Of bools the sum is "or", the product "and".
enum class ReduceOp : uint8_t { kSum = 0, kMin = 1, kMax = 2, kProduct = 3 };
const char* ToString(ReduceOp op);

// kAuto: by size, from GroupOptions' latency and bandwidth. Not every
// collective has every algorithm: InvalidArgument names those that it has.
enum class CollectiveAlgorithm : uint8_t {
  kAuto = 0,
  kRing = 1,               // allreduce, reduce-scatter, allgather
  kRecursiveDoubling = 2,  // allreduce
  kDirect = 3,    // reduce-scatter, allgather, alltoall: to each rank at once
  kBinomial = 4,  // broadcast, by a tree
  kChain = 5,     // broadcast, from rank to rank in chunks
  kPairwise = 6,  // alltoall, in chunks
  kDissemination = 7,    // barrier
  kTree = 8,             // allreduce, broadcast, in chunks
  kHalvingDoubling = 9,  // allreduce
  kTwoLevel = 10,        // allreduce: in hosts, between them, in hosts
  kBruck = 11,           // allgather, in log2 n messages
};
const char* ToString(CollectiveAlgorithm algorithm);
// "auto", "ring", "recursive_doubling", ... InvalidArgument lists them.
absl::StatusOr<CollectiveAlgorithm> ParseCollectiveAlgorithm(
    absl::string_view text);

struct GroupOptions {
  // "host", or "nccl" for memory of GPUs; equal on all. docs/collectives.md.
  std::string backend = "host";
  TransportOptions transport = {};  // nccl: for what ranks compare
  int rank = 0;
  int world_size = 1;
  Duration timeout = std::chrono::seconds(60);  // without any progress
  // The pipeline's chunks; equal on all.
  size_t chunk_bytes = size_t{256} << 10;
  // The alpha-beta model that chooses algorithms, for messages between hosts,
  // whose ranks share the link, and in one; equal on all ranks.
  double latency_s = 20e-6;
  double bytes_per_s = 2e9;
  double host_latency_s = 10e-6;
  double host_bytes_per_s = 4e9;
  // By rank a number of its host; empty: each has its own. Equal on all ranks.
  std::vector<int> hosts = {};
  // What allreduce takes where a call asks for kAuto; equal on all ranks.
  // kAuto: what `sums`, a plan's, has for the size; none: what the model has.
  CollectiveAlgorithm allreduce = CollectiveAlgorithm::kAuto;
  std::vector<SumRange> sums = {};
  // Whether ranks send and receive point to point, which takes a thread and an
  // address more; equal on all.
  bool sends = false;
  // For nccl only: this rank's CUDA device, and the library for dlopen.
  int device = 0;
  std::string nccl_library = "libnccl.so.2";
};

// Gives `mine` to all ranks and returns all ranks' by rank. Called once by
// Group::Make; it ends by `deadline`.
using AddressExchange = std::function<absl::StatusOr<std::vector<std::string>>(
    const std::string& mine, TimePoint deadline)>;

struct CollectiveSettings {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kAuto;
  uint32_t tag = 0;  // the caller's; must be equal on all ranks
  // For nccl only, of its device: the call returns once all is queued there,
  // behind what the stream was given before. Check says what becomes of it.
  Stream stream = {};
};

// What this rank has handed to the transport.
struct GroupTraffic {
  int64_t num_messages = 0;
  int64_t payload_bytes = 0;
  int64_t header_bytes = 0;
};

// `world_size` ranks, each connected with each. All ranks call the same
// collectives in the same order. One thread.
//
// Before data is used, ranks compare operation, type, count, algorithm, root,
// tag and sequence number. Where they differ both say so
// (FailedPrecondition, exit code 31, names both). A lost rank is Unavailable
// (exit code 20, names it), no progress for `timeout` DeadlineExceeded (names
// who is waited for). The rank that finds an error tells all others; every
// further call returns the first error. After an error outputs hold anything.
//
// Memory is the host's, aligned to the type; it is the group's until the call
// returns. Results are the same bits on all ranks and in every run with the
// same algorithm and chunk size.
//
// With nccl memory is that of `device`, no work on it is under way on any
// other stream than CollectiveSettings::stream when a call begins, and
// `timeout` is for the whole call. Sums are NCCL's, which rounds and overflows
// in the type itself.
class Group {
 public:
  // Listens, exchanges addresses, and connects all with all, within `timeout`.
  // NotFound names the backends of this build; nccl is Unavailable without a
  // device or the library.
  static absl::StatusOr<std::unique_ptr<Group>> Make(
      const GroupOptions& options, const AddressExchange& exchange);
  // Whether this build and machine have `options.backend`; Make's errors. No
  // device is touched.
  static absl::Status Find(const GroupOptions& options);
  // Closes, at most 2 * kCloseGrace. Call Barrier before, where slower ranks
  // may still need what was sent last.
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual TransportInfo info() const = 0;
  virtual GroupTraffic traffic() const = 0;

  // `data` [count] becomes the reduction over ranks.
  virtual absl::Status Allreduce(void* data, size_t count, Dtype type,
                                 ReduceOp op,
                                 CollectiveSettings settings = {}) = 0;
  // Allreduce of each part; all ranks have the same parts. One call where the
  // backend takes them so.
  struct Part {
    void* data = nullptr;
    size_t count = 0;
  };
  virtual absl::Status AllreduceAll(std::span<const Part> parts, Dtype type,
                                    ReduceOp op,
                                    CollectiveSettings settings = {});
  // `in` [world_size * count]; `out` [count] becomes the reduction of block
  // `rank` of all ranks' inputs. No alias.
  virtual absl::Status ReduceScatter(const void* in, void* out, size_t count,
                                     Dtype type, ReduceOp op,
                                     CollectiveSettings settings = {}) = 0;
  // `in` [count]; `out` [world_size * count], by rank. `in` may be its own
  // place in `out`.
  virtual absl::Status Allgather(const void* in, void* out, size_t count,
                                 Dtype type,
                                 CollectiveSettings settings = {}) = 0;
  // `counts` [world_size], the same on all ranks; `in` [counts[rank]]; `out`
  // [sum of counts], by rank without gaps.
  virtual absl::Status Allgatherv(const void* in, void* out,
                                  std::span<const size_t> counts, Dtype type,
                                  CollectiveSettings settings = {}) = 0;
  // `data` [count] of `root` to all.
  virtual absl::Status Broadcast(void* data, size_t count, Dtype type, int root,
                                 CollectiveSettings settings = {}) = 0;
  // `counts` [world_size], the same on all ranks; `in` [sum of counts], by rank
  // without gaps; `out` [counts[rank]]. No alias.
  virtual absl::Status ReduceScatterv(const void* in, void* out,
                                      std::span<const size_t> counts,
                                      Dtype type, ReduceOp op,
                                      CollectiveSettings settings = {}) = 0;
  // `in` and `out` [world_size * count]; block i of `in` goes to rank i, block
  // i of `out` comes from rank i. No alias.
  virtual absl::Status Alltoall(const void* in, void* out, size_t count,
                                Dtype type,
                                CollectiveSettings settings = {}) = 0;
  // As Alltoall with blocks of [sends[i]] and [receives[i]], without gaps.
  // Where a rank sends another count than the other expects, all fail by name
  // (FailedPrecondition, exit code 31).
  virtual absl::Status Alltoallv(const void* in, std::span<const size_t> sends,
                                 void* out, std::span<const size_t> receives,
                                 Dtype type,
                                 CollectiveSettings settings = {}) = 0;
  // The first error of what was queued on a stream, and of ranks that it waits
  // for. Waits for nothing.
  virtual absl::Status Check() { return absl::OkStatus(); }
  // Returns after all ranks have called it.
  virtual absl::Status Barrier(CollectiveSettings settings = {}) = 0;

  // All ranks call it with the same list of different ranks. These get a group
  // of their own, with this one's options, in which they have their places in
  // the list; the others null. The groups are independent from then on.
  virtual absl::StatusOr<std::unique_ptr<Group>> Split(
      std::span<const int> ranks) = 0;

  // From now on, for what waits without any progress.
  virtual void set_timeout(Duration timeout) = 0;

  // Point to point, of groups with GroupOptions::sends: from any thread,
  // several at a time, beside collectives and in any order. Between two ranks
  // messages of one tag keep theirs. Another size or type than the other side's
  // is an error of the receive, and of the send if it still waits
  // (FailedPrecondition, exit code 31); a lost rank is Unavailable. The group
  // goes on.

  // `data` [count] is the caller's again when it returns.
  virtual absl::Status Send(const void* data, size_t count, Dtype type, int to,
                            uint32_t tag = 0) = 0;
  // The rank that sent it; `from` is that rank or kAnyRank.
  virtual absl::StatusOr<int> Receive(void* data, size_t count, Dtype type,
                                      int from, uint32_t tag = 0) = 0;
};

}  // namespace telegrad
