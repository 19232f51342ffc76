#include "kvstore/collective/message.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/endian.h"

namespace telegrad::collective {
namespace {

constexpr uint32_t kMagic = 0x33434754;  // "TGC3"

const char* Name(Operation operation) {
  switch (operation) {
    case Operation::kNone:
      return "nothing";
    case Operation::kAllreduce:
      return "allreduce";
    case Operation::kReduceScatter:
      return "reduce-scatter";
    case Operation::kAllgather:
      return "allgather";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kAlltoall:
      return "alltoall";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kAlltoallv:
      return "alltoallv";
    case Operation::kSplit:
      return "split";
    case Operation::kSend:
      return "send";
  }
  return "unknown";
}

template <typename Enum>
bool TakeEnum(std::byte value, Enum last, Enum* out) {
  *out = static_cast<Enum>(value);
  return value <= static_cast<std::byte>(last);
}

}  // namespace

std::string Describe(const Signature& s) {
  std::string text = Name(s.operation);
  if (s.operation == Operation::kNone) return text;
  if (s.operation == Operation::kAllreduce ||
      s.operation == Operation::kReduceScatter) {
    absl::StrAppend(&text, " ", ToString(s.op));
  }
  if (s.operation == Operation::kSplit) {
    return absl::StrCat(text, " into ", s.count, " ranks, list ",
                        absl::Hex(s.layout));
  }
  if (s.operation == Operation::kAlltoallv) {
    absl::StrAppend(&text, " of ", ToString(s.type));
  } else if (s.operation != Operation::kBarrier) {
    absl::StrAppend(&text, " of ", s.count, " ", ToString(s.type));
  }
  if (s.operation == Operation::kBroadcast) {
    absl::StrAppend(&text, ", root ", s.root);
  }
  if (s.layout != 0) absl::StrAppend(&text, ", counts ", absl::Hex(s.layout));
  return absl::StrCat(text, ", ", ToString(s.algorithm), ", tag ", s.tag);
}

std::array<std::byte, kHeaderBytes> Encode(const Header& header) {
  const Signature& s = header.signature;
  std::array<std::byte, kHeaderBytes> bytes{};
  std::byte* at = bytes.data();
  StoreLittleEndian(at, kMagic);
  at[4] = static_cast<std::byte>(header.kind);
  at[5] = static_cast<std::byte>(s.operation);
  at[6] = static_cast<std::byte>(s.type);
  at[7] = static_cast<std::byte>(s.op);
  at[8] = static_cast<std::byte>(s.algorithm);
  StoreLittleEndian(at + 12, header.rank);
  StoreLittleEndian(at + 16, header.index);
  StoreLittleEndian(at + 20, s.tag);
  StoreLittleEndian(at + 24, header.sequence);
  StoreLittleEndian(at + 32, s.count);
  StoreLittleEndian(at + 40, s.root);
  StoreLittleEndian(at + 44, s.layout);
  return bytes;
}

absl::StatusOr<Header> Decode(ConstBytes bytes) {
  if (bytes.size != kHeaderBytes ||
      LoadLittleEndian<uint32_t>(bytes.data) != kMagic) {
    return absl::InvalidArgumentError(
        absl::StrCat("header of ", bytes.size, " bytes is no collective's"));
  }
  const std::byte* at = bytes.data;
  Header header;
  Signature& s = header.signature;
  if (!TakeEnum(at[4], MessageKind::kAbort, &header.kind) ||
      !TakeEnum(at[5], Operation::kSend, &s.operation) ||
      !TakeEnum(at[6], Dtype::kBool, &s.type) ||
      !TakeEnum(at[7], ReduceOp::kProduct, &s.op) ||
      !TakeEnum(at[8], CollectiveAlgorithm::kBruck, &s.algorithm) ||
      LoadLittleEndian<uint16_t>(at + 9) != 0 || at[11] != std::byte{0}) {
    return absl::InvalidArgumentError("header has unknown values");
  }
  header.rank = LoadLittleEndian<uint32_t>(at + 12);
  header.index = LoadLittleEndian<uint32_t>(at + 16);
  s.tag = LoadLittleEndian<uint32_t>(at + 20);
  header.sequence = LoadLittleEndian<uint64_t>(at + 24);
  s.count = LoadLittleEndian<uint64_t>(at + 32);
  s.root = LoadLittleEndian<int32_t>(at + 40);
  s.layout = LoadLittleEndian<uint32_t>(at + 44);
  return header;
}

}  // namespace telegrad::collective
