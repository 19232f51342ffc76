#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "kvstore/collective/collective.h"

// What ranks of a group say to each other. docs/collectives.md has the bytes.
namespace telegrad::collective {

enum class Operation : uint8_t {
  kNone = 0,  // before the first
  kAllreduce = 1,
  kReduceScatter = 2,
  kAllgather = 3,
  kBroadcast = 4,
  kAlltoall = 5,
  kBarrier = 6,
  kAlltoallv = 7,
  kSplit = 8,
  kSend = 9,  // between two ranks
};

// What all ranks must mean alike.
struct Signature {
  Operation operation = Operation::kNone;
  Dtype type = Dtype::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kAuto;
  int32_t root = 0;
  uint32_t tag = 0;
  // Elements of one rank; of all where ranks have different counts; 0 for
  // alltoallv, of which no two ranks have the same; ranks of a split.
  uint64_t count = 0;
  uint32_t layout = 0;  // CRC-32C of counts or ranks that all give alike
  bool operator==(const Signature&) const = default;
};

// "allreduce sum of 5 float32, ring, tag 0".
std::string Describe(const Signature& signature);

enum class MessageKind : uint8_t {
  kHello = 0,  // sequence: digest of all addresses; both ways, once
  kEager = 1,  // a small piece, kept by the receiver until it wants it
  kReady = 2,  // this rank takes data of this collective now
  kData = 3,   // only after kReady
  kAbort = 4,  // payload: why; index: exit code
  // In kSend the sequence is the message's number among its sender's; kEager
  // has index 1 and the payload, or 0 and waits for kReady.
};

struct Header {
  MessageKind kind = MessageKind::kHello;
  uint32_t rank = 0;  // the sender's
  uint32_t index = 0;
  uint64_t sequence = 0;
  Signature signature = {};
};

constexpr size_t kHeaderBytes = 48;
std::array<std::byte, kHeaderBytes> Encode(const Header& header);
// InvalidArgument for what no rank of this version sends.
absl::StatusOr<Header> Decode(ConstBytes bytes);

}  // namespace telegrad::collective
