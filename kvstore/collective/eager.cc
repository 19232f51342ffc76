#include "kvstore/collective/eager.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "kvstore/collective/reduce.h"

namespace telegrad::collective {
namespace {

constexpr uint32_t kIndicesPerPiece = 64;
constexpr uint32_t kAnnounce = 61;
constexpr uint32_t kFold = 62;
constexpr uint32_t kUnfold = 63;
// Pieces of alltoallv: a block, or the bytes of one that comes later.
constexpr uint32_t kWhole = 0;
constexpr uint32_t kSize = 1;

// What travels in allreduce: the reduction over the ranks met so far.
class Partial {
 public:
  Partial(Mesh& mesh, Dtype type, ReduceOp op, std::byte* data, size_t count)
      : mesh_(mesh),
        type_(type),
        op_(op),
        data_(data),
        count_(count),
        bytes_(count * SizeOf(type)) {}

  absl::Status SendTo(int to, uint32_t index) {
    return mesh_.SendEager(to, index, {data_, bytes_});
  }
  absl::Status ReplaceFrom(int from, uint32_t index) {
    ASSIGN_OR_RETURN(Buffer came, mesh_.Take(from, index, bytes_));
    std::memcpy(data_, came.data(), bytes_);
    mesh_.pool().Put(std::move(came));
    return absl::OkStatus();
  }
  absl::Status ReduceFrom(int from, uint32_t index) {
    ASSIGN_OR_RETURN(Buffer came, mesh_.Take(from, index, bytes_));
    if (from > mesh_.rank()) {
      Reduce(type_, op_, came.data(), count_, data_);
    } else {
      Reduce(type_, op_, data_, count_, came.data());
      std::memcpy(data_, came.data(), bytes_);
    }
    mesh_.pool().Put(std::move(came));
    return absl::OkStatus();
  }

 private:
  Mesh& mesh_;
  const Dtype type_;
  const ReduceOp op_;
  std::byte* const data_;
  const size_t count_;
  const size_t bytes_;
};

// Into `out`, which is left alone when there is nothing.
absl::Status TakeInto(Mesh& mesh, int from, uint32_t index, std::byte* out,
                      size_t bytes) {
  ASSIGN_OR_RETURN(Buffer came, mesh.Take(from, index, bytes));
  if (bytes > 0) std::memcpy(out, came.data(), bytes);
  mesh.pool().Put(std::move(came));
  return absl::OkStatus();
}

}  // namespace

absl::Status Disseminate(Mesh& mesh) {
  const int n = mesh.world_size();
  uint32_t round = 0;
  for (int distance = 1; distance < n; distance *= 2, ++round) {
    RETURN_IF_ERROR(
        mesh.SendEager((mesh.rank() + distance) % n, round, ConstBytes()));
    RETURN_IF_ERROR(
        mesh.Take((mesh.rank() - distance + n) % n, round, 0).status());
  }
  return absl::OkStatus();
}

// The even ones among the first 2 * extra ranks hand their data to the odd ones
// and wait for the result, so that a power of two is left.
absl::Status RecursiveDoubling(Mesh& mesh, uint32_t piece, Dtype type,
                               ReduceOp op, std::byte* data, size_t count) {
  const int rank = mesh.rank();
  const int power = static_cast<int>(
      std::bit_floor(static_cast<unsigned>(mesh.world_size())));
  const int extra = mesh.world_size() - power;
  const uint32_t base = piece * kIndicesPerPiece;
  Partial partial(mesh, type, op, data, count);
  if (rank < 2 * extra && rank % 2 == 0) {
    RETURN_IF_ERROR(partial.SendTo(rank + 1, base + kFold));
    return partial.ReplaceFrom(rank + 1, base + kUnfold);
  }
  if (rank < 2 * extra) {
    RETURN_IF_ERROR(partial.ReduceFrom(rank - 1, base + kFold));
  }
  const int place = rank < 2 * extra ? rank / 2 : rank - extra;
  uint32_t stage = 0;
  for (int bit = 1; bit < power; bit *= 2, ++stage) {
    const int other = place ^ bit;
    const int partner = other < extra ? 2 * other + 1 : other + extra;
    RETURN_IF_ERROR(partial.SendTo(partner, base + stage));
    RETURN_IF_ERROR(partial.ReduceFrom(partner, base + stage));
  }
  if (rank >= 2 * extra) return absl::OkStatus();
  return partial.SendTo(rank - 1, base + kUnfold);
}

absl::Status BinomialBroadcast(Mesh& mesh, uint32_t piece, std::byte* data,
                               size_t bytes, int root) {
  const int n = mesh.world_size();
  const int place = (mesh.rank() - root + n) % n;
  const auto rank_at = [&](int p) { return (p + root) % n; };
  const uint32_t base = piece * kIndicesPerPiece;
  // The lowest bit of a place tells its parent; the root has them all.
  int low = 1;
  while (low < n && (place & low) == 0) low *= 2;
  if (place > 0) {
    const int parent = rank_at(place - low);
    RETURN_IF_ERROR(mesh.SendEager(parent, base + kAnnounce, ConstBytes()));
    RETURN_IF_ERROR(TakeInto(mesh, parent, base, data, bytes));
  }
  for (int bit = low / 2; bit > 0; bit /= 2) {
    if (place + bit >= n) continue;
    RETURN_IF_ERROR(mesh.SendEager(rank_at(place + bit), base, {data, bytes}));
  }
  for (int bit = low / 2; bit > 0; bit /= 2) {
    if (place + bit >= n) continue;
    RETURN_IF_ERROR(
        mesh.Take(rank_at(place + bit), base + kAnnounce, 0).status());
  }
  return absl::OkStatus();
}

absl::Status DirectAllgather(Mesh& mesh, std::byte* out, const Blocks& blocks) {
  const int n = mesh.world_size();
  const Block& own = blocks[mesh.rank()];
  for (int distance = 1; distance < n; ++distance) {
    RETURN_IF_ERROR(mesh.SendEager((mesh.rank() + distance) % n, 0,
                                   {out + own.offset, own.bytes}));
  }
  for (int distance = 1; distance < n; ++distance) {
    const int from = (mesh.rank() - distance + n) % n;
    RETURN_IF_ERROR(
        TakeInto(mesh, from, 0, out + blocks[from].offset, blocks[from].bytes));
  }
  return absl::OkStatus();
}

// After k messages a rank has its block and those of the 2^k - 1 ranks after
// it.
absl::Status BruckAllgather(Mesh& mesh, std::byte* out, const Blocks& blocks) {
  const int n = mesh.world_size();
  const auto bytes_of = [&](int first, int num) {
    size_t bytes = 0;
    for (int i = 0; i < num; ++i) bytes += blocks[(first + i) % n].bytes;
    return bytes;
  };
  Buffer packed = mesh.pool().Get(bytes_of(0, n));
  uint32_t round = 0;
  for (int known = 1; known < n; known *= 2, ++round) {
    const int num = std::min(known, n - known);
    size_t packed_bytes = 0;
    for (int i = 0; i < num; ++i) {
      const Block& block = blocks[(mesh.rank() + i) % n];
      std::copy_n(out + block.offset, block.bytes,
                  packed.data() + packed_bytes);
      packed_bytes += block.bytes;
    }
    const int from = (mesh.rank() + known) % n;
    RETURN_IF_ERROR(mesh.SendEager((mesh.rank() - known + n) % n, round,
                                   {packed.data(), packed_bytes}));
    ASSIGN_OR_RETURN(Buffer came, mesh.Take(from, round, bytes_of(from, num)));
    const std::byte* at = came.data();
    for (int i = 0; i < num; ++i) {
      const Block& block = blocks[(from + i) % n];
      std::copy_n(at, block.bytes, out + block.offset);
      at += block.bytes;
    }
    mesh.pool().Put(std::move(came));
  }
  mesh.pool().Put(std::move(packed));
  return absl::OkStatus();
}

absl::Status DirectReduceScatter(Mesh& mesh, Dtype type, ReduceOp op,
                                 const std::byte* in, std::byte* out,
                                 const Blocks& blocks) {
  const int n = mesh.world_size();
  const size_t own = blocks[mesh.rank()].bytes;
  size_t largest = 0;
  for (const Block& block : blocks) largest = std::max(largest, block.bytes);
  // The first piece goes even if it is empty, so that all hear of all.
  const auto is_over = [](size_t bytes, size_t begin) {
    return begin > 0 && begin >= bytes;
  };
  uint32_t piece = 0;
  for (size_t begin = 0; begin < largest; begin += kMaxEagerBytes, ++piece) {
    for (int distance = 1; distance < n; ++distance) {
      const int to = (mesh.rank() + distance) % n;
      if (is_over(blocks[to].bytes, begin)) continue;
      RETURN_IF_ERROR(
          mesh.SendEager(to, piece,
                         {in + blocks[to].offset + begin,
                          std::min(kMaxEagerBytes, blocks[to].bytes - begin)}));
    }
    if (is_over(own, begin)) continue;
    const size_t bytes = std::min(kMaxEagerBytes, own - begin);
    const auto combine = [&](int from, const std::byte* x) {
      if (bytes == 0) return;
      if (from == 0) {
        std::memcpy(out + begin, x, bytes);
      } else {
        Reduce(type, op, x, bytes / SizeOf(type), out + begin);
      }
    };
    for (int from = 0; from < n; ++from) {
      if (from == mesh.rank()) {
        combine(from, in + blocks[from].offset + begin);
        continue;
      }
      ASSIGN_OR_RETURN(Buffer came, mesh.Take(from, piece, bytes));
      combine(from, came.data());
      mesh.pool().Put(std::move(came));
    }
  }
  return absl::OkStatus();
}

absl::Status DirectAlltoall(Mesh& mesh, const std::byte* in, std::byte* out,
                            size_t block_bytes) {
  const int n = mesh.world_size();
  for (int distance = 1; distance < n; ++distance) {
    const int to = (mesh.rank() + distance) % n;
    RETURN_IF_ERROR(mesh.SendEager(
        to, 0, {in + static_cast<size_t>(to) * block_bytes, block_bytes}));
  }
  for (int distance = 1; distance < n; ++distance) {
    const int from = (mesh.rank() - distance + n) % n;
    RETURN_IF_ERROR(TakeInto(mesh, from, 0,
                             out + static_cast<size_t>(from) * block_bytes,
                             block_bytes));
  }
  return absl::OkStatus();
}

absl::Status SwapBlocks(Mesh& mesh, const std::byte* in, Blocks* sends,
                        std::byte* out, Blocks* receives,
                        std::optional<size_t> most) {
  const int n = mesh.world_size();
  for (int distance = 1; distance < n; ++distance) {
    const int to = (mesh.rank() + distance) % n;
    Block& block = (*sends)[to];
    if (most.has_value() && block.bytes <= *most) {
      RETURN_IF_ERROR(
          mesh.SendEager(to, kWhole, {in + block.offset, block.bytes}));
      block.bytes = 0;
      continue;
    }
    std::array<std::byte, sizeof(uint64_t)> size;
    StoreLittleEndian(size.data(), uint64_t{block.bytes});
    RETURN_IF_ERROR(mesh.SendEager(to, kSize, {size.data(), size.size()}));
  }
  for (int distance = 1; distance < n; ++distance) {
    const int from = (mesh.rank() - distance + n) % n;
    Block& block = (*receives)[from];
    ASSIGN_OR_RETURN(Piece came, mesh.TakeNext(from));
    const bool is_size = came.index == kSize && came.bytes == sizeof(uint64_t);
    const uint64_t theirs =
        is_size ? LoadLittleEndian<uint64_t>(came.payload.data()) : came.bytes;
    if (theirs != block.bytes || (!is_size && came.index != kWhole)) {
      return WithExitCode(
          ExitCode::kMismatch,
          absl::FailedPreconditionError(absl::StrCat(
              "alltoallv: rank ", from, " sends ", theirs, " bytes to rank ",
              mesh.rank(), ", which expects ", block.bytes)));
    }
    if (is_size) continue;
    if (theirs > 0) {
      std::memcpy(out + block.offset, came.payload.data(), theirs);
    }
    block.bytes = 0;
    mesh.pool().Put(std::move(came.payload));
  }
  return absl::OkStatus();
}

}  // namespace telegrad::collective
