#pragma once

#include <array>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "transport/transport.h"

// Who stages a large payload sends it in fragments, each a message of the inner
// transport, one behind the other. Their header, little-endian:
//   fragment = kind:u8 version:u8 header_bytes:u16 payload_bytes:u32 offset:u32
//           zero:u32 header, filled up with zeros to kMaxHeaderBytes
// so it is longer than that of any whole message, and any peer puts them
// together, whether it stages itself or not.
namespace telegrad::bounce {

constexpr size_t kFragmentPrefixBytes = 16;
constexpr size_t kFragmentHeaderBytes = kFragmentPrefixBytes + kMaxHeaderBytes;
static_assert(kFragmentPrefixBytes <= kMaxPrefixBytes);

using Header = std::array<std::byte, kMaxHeaderBytes>;
using FragmentHeader = std::array<std::byte, kFragmentHeaderBytes>;

inline bool IsFragment(ConstBytes header) {
  return header.size > kMaxHeaderBytes;
}

// A message of which a fragment was sent or has begun to come.
struct Whole {
  Header header = {};
  size_t header_bytes = 0;
  size_t payload_bytes = 0;
  size_t begun = 0;  // bytes, of the fragments so far

  ConstBytes header_view() const { return {header.data(), header_bytes}; }
  bool is_whole() const { return begun == payload_bytes; }
};

FragmentHeader PackFragment(const Whole& message, size_t offset);

// InvalidArgument: no fragment, or one that cannot be. `begun`: up to its end.
absl::StatusOr<Whole> ParseFragment(ConstBytes header, size_t fragment_bytes);

// InvalidArgument, each: `fragment`, of so many bytes, is not the first of its
// message; it is not the next of `message`, which it is added to; something
// else comes where a fragment of `message` is due.
absl::Status CheckFirst(const Whole& fragment, size_t fragment_bytes);
absl::Status AddFragment(const Whole& fragment, size_t fragment_bytes,
                         Whole* message);
absl::Status CheckWhole(const Whole& message);

}  // namespace telegrad::bounce
