#include "kvstore/collective/dense_group.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "kvstore/collective/arguments.h"
#include "kvstore/collective/choose.h"
#include "kvstore/collective/eager.h"

namespace telegrad::collective {
namespace {

std::byte* AsBytes(void* memory) { return static_cast<std::byte*>(memory); }
const std::byte* AsBytes(const void* memory) {
  return static_cast<const std::byte*>(memory);
}

// Calls `each(piece, offset, bytes)` for pieces that go without asking, until
// one fails.
template <typename Each>
absl::Status ForEagerPieces(size_t bytes, const Each& each) {
  uint32_t piece = 0;
  for (size_t begin = 0; begin < bytes; begin += kMaxEagerBytes, ++piece) {
    RETURN_IF_ERROR(
        each(piece, begin, std::min(kMaxEagerBytes, bytes - begin)));
  }
  return absl::OkStatus();
}

size_t LargestOf(const Blocks& blocks) {
  size_t largest = 0;
  for (const Block& block : blocks) largest = std::max(largest, block.bytes);
  return largest;
}

absl::Status HasNoCourier() {
  return absl::FailedPreconditionError(
      "point to point: this group was made without GroupOptions::sends");
}

// A number for each rank; without knowledge of hosts each has its own.
std::vector<int> HostsOf(const GroupOptions& options) {
  std::vector<int> hosts = options.hosts;
  if (hosts.empty()) {
    hosts.resize(static_cast<size_t>(options.world_size));
    std::iota(hosts.begin(), hosts.end(), 0);
  }
  return hosts;
}

void CopyUnlessThere(const void* from, void* to, size_t bytes) {
  if (from != to && bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

DenseGroup::DenseGroup(std::unique_ptr<Mesh> mesh,
                       std::unique_ptr<Courier> courier)
    : mesh_(std::move(mesh)),
      place_({.rank = mesh_->rank(),
              .world_size = mesh_->world_size(),
              .chunk_bytes = mesh_->options().chunk_bytes}),
      hosts_(HostsOf(mesh_->options())),
      courier_(std::move(courier)) {}

void DenseGroup::set_timeout(Duration timeout) {
  const Mesh::Turn turn(*mesh_, /*drives=*/false);
  mesh_->set_timeout(timeout);
  if (courier_ != nullptr) courier_->set_timeout(timeout);
}

absl::Status DenseGroup::Send(const void* data, size_t count, Dtype type,
                              int to, uint32_t tag) {
  if (courier_ == nullptr) return HasNoCourier();
  return courier_->Send(data, count, type, to, tag);
}

absl::StatusOr<int> DenseGroup::Receive(void* data, size_t count, Dtype type,
                                        int from, uint32_t tag) {
  if (courier_ == nullptr) return HasNoCourier();
  return courier_->Receive(data, count, type, from, tag);
}

absl::Status DenseGroup::Begin(Signature& signature,
                               CollectiveSettings settings, size_t bytes) {
  ASSIGN_OR_RETURN(
      signature.algorithm,
      Choose(signature.operation, settings.algorithm, bytes, mesh_->options()));
  signature.tag = settings.tag;
  const absl::Status begun = mesh_->Begin(signature);
  return begun.ok() ? begun : mesh_->Fail(begun);
}

absl::Status DenseGroup::End(absl::Status status) {
  if (status.ok()) status = mesh_->End();
  return status.ok() ? status : mesh_->Fail(status);
}

absl::Status DenseGroup::Run(Schedule schedule) {
  return Bulk(*mesh_, std::move(schedule)).Run();
}

absl::Status DenseGroup::Allreduce(void* data, size_t count, Dtype type,
                                   ReduceOp op, CollectiveSettings settings) {
  const Mesh::Turn turn(*mesh_);
  RETURN_IF_ERROR(CheckMemory(data, count, 1, type));
  Signature signature{.operation = Operation::kAllreduce,
                      .type = type,
                      .op = op,
                      .count = count};
  RETURN_IF_ERROR(Begin(signature, settings, count * SizeOf(type)));
  if (world_size() == 1) return absl::OkStatus();
  if (count == 0) return End(Disseminate(*mesh_));
  if (signature.algorithm == CollectiveAlgorithm::kRecursiveDoubling) {
    return End(AllreducePieces(AsBytes(data), count, type, op));
  }
  const Reduction reduction{
      .type = type, .op = op, .data = AsBytes(data), .count = count};
  switch (signature.algorithm) {
    case CollectiveAlgorithm::kHalvingDoubling:
      return Run(HalvingDoubling(place_, reduction));
    case CollectiveAlgorithm::kTree:
      return Run(TreeAllreduce(place_, reduction));
    case CollectiveAlgorithm::kTwoLevel:
      return Run(TwoLevelAllreduce(
          place_, reduction, hosts_,
          ChooseAcross(count * SizeOf(type), mesh_->options())));
    default:
      return Run(RingAllreduce(place_, reduction));
  }
}

absl::Status DenseGroup::AllreducePieces(std::byte* data, size_t count,
                                         Dtype type, ReduceOp op) {
  return ForEagerPieces(
      count * SizeOf(type), [&](uint32_t piece, size_t offset, size_t bytes) {
        return RecursiveDoubling(*mesh_, piece, type, op, data + offset,
                                 bytes / SizeOf(type));
      });
}

absl::Status DenseGroup::ReduceScatter(const void* in, void* out, size_t count,
                                       Dtype type, ReduceOp op,
                                       CollectiveSettings settings) {
  const auto n = static_cast<size_t>(world_size());
  RETURN_IF_ERROR(CheckMemory(in, count, n, type));
  RETURN_IF_ERROR(CheckMemory(out, count, 1, type));
  return ScatterBlocks(in, out, Divide(n * count, SizeOf(type), world_size()),
                       {.operation = Operation::kReduceScatter,
                        .type = type,
                        .op = op,
                        .count = count},
                       settings);
}

absl::Status DenseGroup::ReduceScatterv(const void* in, void* out,
                                        std::span<const size_t> counts,
                                        Dtype type, ReduceOp op,
                                        CollectiveSettings settings) {
  ASSIGN_OR_RETURN(const std::vector<size_t> bytes,
                   BytesOf(in, counts, world_size(), type));
  RETURN_IF_ERROR(CheckMemory(out, counts[rank()], 1, type));
  Signature signature = WithCounts(Operation::kReduceScatter, counts, type);
  signature.op = op;
  return ScatterBlocks(in, out, Concatenate(bytes), signature, settings);
}

absl::Status DenseGroup::ScatterBlocks(const void* in, void* out,
                                       const Blocks& blocks,
                                       Signature signature,
                                       CollectiveSettings settings) {
  const Mesh::Turn turn(*mesh_);
  const size_t largest = LargestOf(blocks);
  RETURN_IF_ERROR(Begin(signature, settings, largest));
  if (largest == 0) return End(Disseminate(*mesh_));
  const Block& own = blocks[rank()];
  const bool is_alone = world_size() == 1;
  if (!is_alone && signature.algorithm == CollectiveAlgorithm::kDirect) {
    return End(DirectReduceScatter(*mesh_, signature.type, signature.op,
                                   AsBytes(in), AsBytes(out), blocks));
  }
  CopyUnlessThere(AsBytes(in) + own.offset, out, own.bytes);
  if (is_alone) return absl::OkStatus();
  return Run(RingReduceScatter(place_, signature.type, signature.op,
                               AsBytes(in), AsBytes(out), blocks));
}

absl::Status DenseGroup::Allgather(const void* in, void* out, size_t count,
                                   Dtype type, CollectiveSettings settings) {
  const auto n = static_cast<size_t>(world_size());
  RETURN_IF_ERROR(CheckMemory(in, count, 1, type));
  RETURN_IF_ERROR(CheckMemory(out, count, n, type));
  return GatherBlocks(
      in, out, Divide(n * count, SizeOf(type), world_size()),
      {.operation = Operation::kAllgather, .type = type, .count = count},
      settings);
}

absl::Status DenseGroup::Allgatherv(const void* in, void* out,
                                    std::span<const size_t> counts, Dtype type,
                                    CollectiveSettings settings) {
  ASSIGN_OR_RETURN(const std::vector<size_t> bytes,
                   BytesOf(out, counts, world_size(), type));
  RETURN_IF_ERROR(CheckMemory(in, counts[rank()], 1, type));
  return GatherBlocks(in, out, Concatenate(bytes),
                      WithCounts(Operation::kAllgather, counts, type),
                      settings);
}

absl::Status DenseGroup::GatherBlocks(const void* in, void* out,
                                      const Blocks& blocks, Signature signature,
                                      CollectiveSettings settings) {
  const Mesh::Turn turn(*mesh_);
  const size_t largest = LargestOf(blocks);
  RETURN_IF_ERROR(Begin(signature, settings, largest));
  if (largest == 0) return End(Disseminate(*mesh_));
  const Block& own = blocks[rank()];
  CopyUnlessThere(in, AsBytes(out) + own.offset, own.bytes);
  if (world_size() == 1) return absl::OkStatus();
  if (signature.algorithm == CollectiveAlgorithm::kRing) {
    return Run(RingAllgather(place_, AsBytes(out), blocks));
  }
  const bool is_one_message =
      blocks.back().offset + blocks.back().bytes <= kMaxEagerBytes;
  if (signature.algorithm == CollectiveAlgorithm::kBruck && is_one_message) {
    return End(BruckAllgather(*mesh_, AsBytes(out), blocks));
  }
  if (largest > kMaxEagerBytes) {
    return Run(collective::DirectAllgather(place_, AsBytes(out), blocks));
  }
  return End(collective::DirectAllgather(*mesh_, AsBytes(out), blocks));
}

absl::Status DenseGroup::Broadcast(void* data, size_t count, Dtype type,
                                   int root, CollectiveSettings settings) {
  const Mesh::Turn turn(*mesh_);
  RETURN_IF_ERROR(CheckMemory(data, count, 1, type));
  RETURN_IF_ERROR(CheckRoot(root, world_size()));
  const size_t bytes = count * SizeOf(type);
  Signature signature{.operation = Operation::kBroadcast,
                      .type = type,
                      .root = root,
                      .count = count};
  RETURN_IF_ERROR(Begin(signature, settings, bytes));
  if (world_size() == 1) return absl::OkStatus();
  if (count == 0) return End(Disseminate(*mesh_));
  if (signature.algorithm == CollectiveAlgorithm::kBinomial) {
    return End(BroadcastPieces(AsBytes(data), bytes, root));
  }
  if (signature.algorithm == CollectiveAlgorithm::kTree) {
    return Run(TreeBroadcast(place_, AsBytes(data), bytes, root));
  }
  return Run(ChainBroadcast(place_, AsBytes(data), bytes, root));
}

absl::Status DenseGroup::BroadcastPieces(std::byte* data, size_t bytes,
                                         int root) {
  return ForEagerPieces(bytes, [&](uint32_t piece, size_t offset,
                                   size_t piece_bytes) {
    return BinomialBroadcast(*mesh_, piece, data + offset, piece_bytes, root);
  });
}

absl::Status DenseGroup::Alltoall(const void* in, void* out, size_t count,
                                  Dtype type, CollectiveSettings settings) {
  const Mesh::Turn turn(*mesh_);
  const auto n = static_cast<size_t>(world_size());
  RETURN_IF_ERROR(CheckMemory(in, count, n, type));
  RETURN_IF_ERROR(CheckMemory(out, count, n, type));
  const size_t bytes = count * SizeOf(type);
  Signature signature{
      .operation = Operation::kAlltoall, .type = type, .count = count};
  RETURN_IF_ERROR(Begin(signature, settings, bytes));
  if (count == 0) return End(Disseminate(*mesh_));
  const size_t own = static_cast<size_t>(rank()) * bytes;
  CopyUnlessThere(AsBytes(in) + own, AsBytes(out) + own, bytes);
  if (n == 1) return absl::OkStatus();
  if (signature.algorithm == CollectiveAlgorithm::kDirect &&
      bytes <= kMaxEagerBytes) {
    return End(DirectAlltoall(*mesh_, AsBytes(in), AsBytes(out), bytes));
  }
  const Blocks blocks = Divide(n * count, SizeOf(type), world_size());
  return Run(
      PairwiseAlltoall(place_, AsBytes(in), blocks, AsBytes(out), blocks));
}

absl::Status DenseGroup::Alltoallv(const void* in,
                                   std::span<const size_t> sends, void* out,
                                   std::span<const size_t> receives, Dtype type,
                                   CollectiveSettings settings) {
  const Mesh::Turn turn(*mesh_);
  ASSIGN_OR_RETURN(const std::vector<size_t> send_bytes,
                   BytesOf(in, sends, world_size(), type));
  ASSIGN_OR_RETURN(const std::vector<size_t> receive_bytes,
                   BytesOf(out, receives, world_size(), type));
  RETURN_IF_ERROR(CheckOwnBlock(sends[rank()], receives[rank()]));
  Signature signature{.operation = Operation::kAlltoallv, .type = type};
  RETURN_IF_ERROR(Begin(signature, settings, 0));
  Blocks to = Concatenate(send_bytes);
  Blocks from = Concatenate(receive_bytes);
  CopyUnlessThere(AsBytes(in) + to[rank()].offset,
                  AsBytes(out) + from[rank()].offset, to[rank()].bytes);
  const bool is_direct = signature.algorithm == CollectiveAlgorithm::kDirect;
  to[rank()].bytes = from[rank()].bytes = 0;
  RETURN_IF_ERROR(End(SwapBlocks(*mesh_, AsBytes(in), &to, AsBytes(out), &from,
                                 is_direct ? kMaxEagerBytes : 0)));
  if (LargestOf(to) == 0 && LargestOf(from) == 0) return absl::OkStatus();
  return Run(PairwiseAlltoall(place_, AsBytes(in), to, AsBytes(out), from));
}

absl::Status DenseGroup::Barrier(CollectiveSettings settings) {
  const Mesh::Turn turn(*mesh_);
  Signature signature{.operation = Operation::kBarrier};
  RETURN_IF_ERROR(Begin(signature, settings, 0));
  return End(Disseminate(*mesh_));
}

}  // namespace telegrad::collective
