#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "kvstore/collective/collective.h"
#include "kvstore/collective/message.h"
#include "perf/payload_memory.h"

namespace telegrad::perf {

enum class CollectiveKind {
  kAllreduce,
  kReduceScatter,
  kAllgather,
  kBroadcast,
  kAlltoall,
  kBarrier
};

struct CollectiveCase {
  CollectiveKind kind;
  const char* name;
  const char* default_sizes;  // empty: it has none
};

constexpr CollectiveCase kAllreduceCase = {CollectiveKind::kAllreduce,
                                           "allreduce", "8:8M:x4"};
constexpr CollectiveCase kReduceScatterCase = {CollectiveKind::kReduceScatter,
                                               "reducescatter", "8:8M:x4"};
constexpr CollectiveCase kAllgatherCase = {CollectiveKind::kAllgather,
                                           "allgather", "8:8M:x4"};
constexpr CollectiveCase kBroadcastCase = {CollectiveKind::kBroadcast,
                                           "broadcast", "8:8M:x4"};
constexpr CollectiveCase kAlltoallCase = {CollectiveKind::kAlltoall, "alltoall",
                                          "8:8M:x4"};
constexpr CollectiveCase kBarrierCase = {CollectiveKind::kBarrier, "barrier",
                                         ""};

collective::Operation OperationOf(const CollectiveCase& which);

// Blocks of `count` elements in what nccl-tests calls the size: 1 or the
// number of ranks.
size_t BlocksOf(const CollectiveCase& which, int ranks);
// busbw / algbw, as nccl-tests defines it (doc/PERFORMANCE.md).
double BusFactor(const CollectiveCase& which, int ranks);

// Inputs and outputs of one rank, for calls of up to `max_count` elements.
// Values are small integers: their sums are exact in any order and type.
class CollectiveData {
 public:
  // ResourceExhausted where a rank needs more memory for `max_count` elements
  // than the machine has.
  static absl::Status CheckMemory(const CollectiveCase& which, Dtype type,
                                  int ranks, size_t max_count);
  CollectiveData(const CollectiveCase& which, Dtype type, int rank, int ranks,
                 int root, size_t max_count);
  // On a device: calls take copies there. Before the first of them.
  absl::Status MoveTo(Device device);

  // Inputs as new; outputs hold what no result has.
  absl::Status Fill();
  absl::Status Call(Group& group, size_t count, CollectiveSettings settings);
  // DataLoss names the first wrong element, its value and the right one. After
  // one Call since Fill.
  absl::Status Verify(size_t count);
  // What Verify reads.
  Bytes result() { return is_in_place() ? in_.view() : out_.view(); }

 private:
  bool is_in_place() const;
  size_t input_blocks() const;
  size_t output_blocks() const;
  int Expected(size_t i, size_t count) const;

  const CollectiveCase& case_;
  const Dtype type_;
  const int rank_;
  const int ranks_;
  const int root_;
  const size_t max_count_;
  Buffer in_;  // in place: the data
  Buffer out_;
  // Copies of in_ and out_, if they are on a device.
  std::unique_ptr<PayloadMemory> in_there_, out_there_;
};

}  // namespace telegrad::perf
