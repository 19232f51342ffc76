#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "kvstore/collective/collective.h"

namespace telegrad::operations {

// The values go between ranks.
enum class Kind : uint8_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kReduceScatter = 3,
  kAlltoall = 4,
  kBarrier = 5,
  kJoin = 6,
  kAddSet = 7,     // `splits`: its ranks
  kRemoveSet = 8,  // `root`: its number
  kExpire = 9,     // ends the request of this name, for which ranks are missing
};
const char* ToString(Kind kind);

// The first ones are those of ReduceOp.
enum class Op : uint8_t {
  kSum = 0,
  kMin = 1,
  kMax = 2,
  kProduct = 3,
  kAverage = 4,
  kAdasum = 5,
};
const char* ToString(Op op);

// The codec that the store's own setting has for the name.
constexpr char kCodecOfStore[] = "store";

// Where a request's arrays lie: a GPU by its number in CUDA, or one of these.
constexpr int kHostMemory = -1;
constexpr int kEmulatedMemory = -2;  // kEmulatedDevice's
constexpr int kMaxDevice = 4095;

// What one rank wants and the others compare with what they want.
struct Request {
  Kind kind = Kind::kAllreduce;
  Op op = Op::kSum;
  Dtype dtype = Dtype::kFloat32;
  int32_t set = 0;  // process set; 0: all ranks
  int32_t root = 0;
  int32_t group_size = 0;
  int32_t device = kHostMemory;  // on this rank
  uint64_t group = 0;            // 0: none
  double prescale = 1;
  double postscale = 1;
  std::string name;
  std::vector<int64_t> shape;
  std::vector<int64_t> splits;
  // An allreduce's: a codec, or kCodecOfStore; "": none.
  std::string codec = {};

  bool operator==(const Request&) const = default;
};

inline bool IsOnDevice(const Request& request) {
  return request.device != kHostMemory;
}

// Whether a tensor may be of that shape: at most 2^48 elements.
absl::Status CheckShape(const std::vector<int64_t>& shape);
// Elements of a tensor of `shape`, and of one row of it.
int64_t NumElems(const std::vector<int64_t>& shape);
int64_t RowElems(const std::vector<int64_t>& shape);
// Rows of a reduce-scatter that member `i` of `members` gets: the first ones
// get one more where they cannot be alike.
int64_t RowsOf(int64_t rows, int64_t members, int64_t i);

constexpr size_t kMaxNameBytes = 4096;
constexpr size_t kMaxCodecBytes = 256;
constexpr size_t kMaxDims = 64;
constexpr size_t kMaxSplits = 4096;

void AppendRequest(const Request& request, std::string* to);
// What AppendRequest has made any number of times; from another rank.
absl::StatusOr<std::vector<Request>> ParseRequests(absl::string_view bytes);

// "rank 1", "ranks 0, 2".
std::string RanksText(const std::vector<int>& ranks);

// What this rank can see to be wrong with its own request to a process set of
// `ranks`, of which it is member `member`.
absl::Status CheckRequest(const Request& request, const std::vector<int>& ranks,
                          int member);
// Whether requests of all ranks fit together: FailedPrecondition with exit code
// 31 names both values. Those of ranks that have joined are null.
struct Peer {
  int rank;
  const Request* request;
};
absl::Status CompareRequests(const std::vector<Peer>& peers);

}  // namespace telegrad::operations
