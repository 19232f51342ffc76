#include "kvstore/collective/nccl/nccl_group.h"

#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/collective/arguments.h"
#include "kvstore/collective/eager.h"
#include "kvstore/collective/nccl/environment.h"
#include "kvstore/collective/nccl/greeting.h"
#include "kvstore/collective/nccl_group.h"

namespace telegrad::collective {
namespace {

std::byte* Offset(void* memory, size_t bytes) {
  return static_cast<std::byte*>(memory) + bytes;
}
const std::byte* Offset(const void* memory, size_t bytes) {
  return static_cast<const std::byte*>(memory) + bytes;
}

size_t Sum(std::span<const size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

cudaStream_t StreamOf(const CollectiveSettings& settings) {
  return static_cast<cudaStream_t>(settings.stream.handle);
}

// Calls that NCCL takes as one; the first error of any.
class Together {
 public:
  explicit Together(const Library& library)
      : library_(library), result_(library.group_start()) {}

  template <typename Call>
  void Add(const Call& call) {
    if (is_good()) result_ = call();
  }
  // Ends the group in any case, else NCCL would wait for more.
  ncclResult_t End() {
    const ncclResult_t ended = library_.group_end();
    return is_good() ? ended : result_;
  }

 private:
  bool is_good() const {
    return result_ == ncclSuccess || result_ == ncclInProgress;
  }

  const Library& library_;
  ncclResult_t result_;
};

}  // namespace

ncclDataType_t NcclType(Dtype type) {
  switch (type) {
    case Dtype::kFloat32:
      return ncclFloat32;
    case Dtype::kFloat16:
      return ncclFloat16;
    case Dtype::kBfloat16:
      return ncclBfloat16;
    case Dtype::kInt32:
      return ncclInt32;
    case Dtype::kInt64:
      return ncclInt64;
    case Dtype::kFloat64:
      return ncclFloat64;
    case Dtype::kUint8:
    case Dtype::kBool:
      return ncclUint8;
    case Dtype::kInt8:
      return ncclInt8;
  }
  return ncclNumTypes;  // NCCL refuses it
}

// Bools are 0 or 1.
ncclRedOp_t NcclOp(ReduceOp op, Dtype type) {
  const bool is_bool = type == Dtype::kBool;
  switch (op) {
    case ReduceOp::kSum:
      return is_bool ? ncclMax : ncclSum;
    case ReduceOp::kProduct:
      return is_bool ? ncclMin : ncclProd;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
  }
  return ncclMaxRedOp;
}

absl::StatusOr<std::unique_ptr<Group>> MakeNcclGroup(
    const GroupOptions& options, const AddressExchange& exchange) {
  ASSIGN_OR_RETURN(const Library library, LoadNccl(options.nccl_library));
  return NcclGroup::Make(options, exchange, library);
}

absl::StatusOr<std::unique_ptr<Group>> NcclGroup::Make(
    const GroupOptions& options, const AddressExchange& exchange,
    const Library& library) {
  RETURN_IF_ERROR(CheckDevice(library, options.device));
  const std::string ours = SetNcclEnvironment(options.transport);
  ASSIGN_OR_RETURN(const int version, VersionOf(library));
  ncclUniqueId id = {};
  if (options.rank == 0) {
    RETURN_IF_ERROR(
        FromNccl(library, library.get_unique_id(&id), "ncclGetUniqueId"));
  }
  const auto greet =
      [&](const std::string& mine,
          TimePoint deadline) -> absl::StatusOr<std::vector<std::string>> {
    ASSIGN_OR_RETURN(
        std::vector<std::string> texts,
        exchange(Greet(version, options.rank == 0 ? &id : nullptr, mine),
                 deadline));
    RETURN_IF_ERROR(ReceiveGreetings(version, &texts, &id));
    return texts;
  };
  ASSIGN_OR_RETURN(std::unique_ptr<Mesh> mesh, Mesh::Make(options, greet));
  std::unique_ptr<NcclGroup> group(
      new NcclGroup(library, version, std::move(mesh), options.device, ours));
  const Mesh::Turn turn(*group->mesh_);
  const absl::Status connected = group->communicator_.Init(*group->mesh_, id);
  if (!connected.ok()) return group->Fail(connected);
  return group;
}

NcclGroup::NcclGroup(const Library& library, int version,
                     std::unique_ptr<Mesh> mesh, int device, std::string ours)
    : library_(library),
      version_(version),
      ours_(std::move(ours)),
      mesh_(std::move(mesh)),
      communicator_(library, device) {}

TransportInfo NcclGroup::info() const {
  const Mesh::Turn turn(*mesh_, /*drives=*/false);
  const TransportInfo compared = mesh_->info();
  return {"nccl", absl::StrCat("NCCL ", VersionText(version_), ", device ",
                               communicator_.device(),
                               ours_.empty() ? "" : ", set by us ", ours_,
                               "; compared over ", compared.name, " (",
                               compared.details, ")")};
}

absl::Status NcclGroup::CheckMemory(const void* memory, size_t count,
                                    size_t blocks, Dtype type) const {
  RETURN_IF_ERROR(collective::CheckMemory(memory, count, blocks, type));
  if (count == 0) return absl::OkStatus();
  cudaPointerAttributes attributes = {};
  const cudaError_t error =
      library_.pointer_get_attributes(&attributes, memory);
  if (error != cudaSuccess) (void)library_.get_last_error();
  const bool is_device = attributes.type == cudaMemoryTypeDevice ||
                         attributes.type == cudaMemoryTypeManaged;
  if (error != cudaSuccess || !is_device ||
      attributes.device != communicator_.device()) {
    return absl::InvalidArgumentError(
        absl::StrCat("nccl: memory of ", count, " ", ToString(type),
                     " is not of CUDA ", "device ", communicator_.device(),
                     "; host memory is for groups with ", "backend \"host\""));
  }
  return absl::OkStatus();
}

absl::Status NcclGroup::Fail(const absl::Status& why) {
  communicator_.Abort();
  return mesh_->Fail(why);
}

absl::Status NcclGroup::Compare(Signature signature,
                                CollectiveSettings settings) {
  if (settings.algorithm != CollectiveAlgorithm::kAuto) {
    return absl::InvalidArgumentError(
        absl::StrCat("nccl: algorithm ", ToString(settings.algorithm),
                     " cannot be asked for, NCCL chooses itself: take auto"));
  }
  signature.tag = settings.tag;
  absl::Status status = mesh_->Begin(signature);
  if (status.ok()) status = Disseminate(*mesh_);
  if (status.ok()) status = mesh_->End();
  return status.ok() ? status : Fail(status);
}

absl::Status NcclGroup::Run(const Signature& signature,
                            CollectiveSettings settings,
                            const Communicator::Issue& issue) {
  const Mesh::Turn turn(*mesh_);
  RETURN_IF_ERROR(Compare(signature, settings));
  if (signature.count == 0) return absl::OkStatus();
  const absl::Status status =
      communicator_.Run(*mesh_, issue, StreamOf(settings));
  return status.ok() ? status : Fail(status);
}

absl::Status NcclGroup::Allreduce(void* data, size_t count, Dtype type,
                                  ReduceOp op, CollectiveSettings settings) {
  RETURN_IF_ERROR(CheckMemory(data, count, 1, type));
  return Run({.operation = Operation::kAllreduce,
              .type = type,
              .op = op,
              .count = count},
             settings, [&](ncclComm_t communicator, cudaStream_t stream) {
               return library_.all_reduce(data, data, count, NcclType(type),
                                          NcclOp(op, type), communicator,
                                          stream);
             });
}

absl::Status NcclGroup::AllreduceAll(std::span<const Part> parts, Dtype type,
                                     ReduceOp op, CollectiveSettings settings) {
  size_t count = 0;
  for (const Part& part : parts) {
    RETURN_IF_ERROR(CheckMemory(part.data, part.count, 1, type));
    count += part.count;
  }
  return Run({.operation = Operation::kAllreduce,
              .type = type,
              .op = op,
              .count = count},
             settings, [&](ncclComm_t communicator, cudaStream_t stream) {
               Together together(library_);
               for (const Part& part : parts) {
                 if (part.count == 0) continue;
                 together.Add([&] {
                   return library_.all_reduce(part.data, part.data, part.count,
                                              NcclType(type), NcclOp(op, type),
                                              communicator, stream);
                 });
               }
               return together.End();
             });
}

absl::Status NcclGroup::ReduceScatter(const void* in, void* out, size_t count,
                                      Dtype type, ReduceOp op,
                                      CollectiveSettings settings) {
  const auto n = static_cast<size_t>(world_size());
  RETURN_IF_ERROR(CheckMemory(in, count, n, type));
  RETURN_IF_ERROR(CheckMemory(out, count, 1, type));
  return Run({.operation = Operation::kReduceScatter,
              .type = type,
              .op = op,
              .count = count},
             settings, [&](ncclComm_t communicator, cudaStream_t stream) {
               return library_.reduce_scatter(in, out, count, NcclType(type),
                                              NcclOp(op, type), communicator,
                                              stream);
             });
}

// NCCL has none: each rank gets its block's reduction.
absl::Status NcclGroup::ReduceScatterv(const void* in, void* out,
                                       std::span<const size_t> counts,
                                       Dtype type, ReduceOp op,
                                       CollectiveSettings settings) {
  RETURN_IF_ERROR(BytesOf(in, counts, world_size(), type).status());
  RETURN_IF_ERROR(CheckMemory(in, Sum(counts), 1, type));
  RETURN_IF_ERROR(CheckMemory(out, counts[rank()], 1, type));
  Signature signature = WithCounts(Operation::kReduceScatter, counts, type);
  signature.op = op;
  return Run(signature, settings,
             [&](ncclComm_t communicator, cudaStream_t stream) {
               Together together(library_);
               size_t offset = 0;
               for (int root = 0; root < world_size(); ++root) {
                 const size_t count = counts[root];
                 const std::byte* const from = Offset(in, offset);
                 offset += count * SizeOf(type);
                 if (count == 0) continue;
                 together.Add([&] {
                   return library_.reduce(from, out, count, NcclType(type),
                                          NcclOp(op, type), root, communicator,
                                          stream);
                 });
               }
               return together.End();
             });
}

absl::Status NcclGroup::Allgather(const void* in, void* out, size_t count,
                                  Dtype type, CollectiveSettings settings) {
  const auto n = static_cast<size_t>(world_size());
  RETURN_IF_ERROR(CheckMemory(in, count, 1, type));
  RETURN_IF_ERROR(CheckMemory(out, count, n, type));
  return Run({.operation = Operation::kAllgather, .type = type, .count = count},
             settings, [&](ncclComm_t communicator, cudaStream_t stream) {
               return library_.all_gather(in, out, count, NcclType(type),
                                          communicator, stream);
             });
}

// NCCL has none: each rank broadcasts its block.
absl::Status NcclGroup::Allgatherv(const void* in, void* out,
                                   std::span<const size_t> counts, Dtype type,
                                   CollectiveSettings settings) {
  RETURN_IF_ERROR(BytesOf(out, counts, world_size(), type).status());
  RETURN_IF_ERROR(CheckMemory(out, Sum(counts), 1, type));
  RETURN_IF_ERROR(CheckMemory(in, counts[rank()], 1, type));
  return Run(WithCounts(Operation::kAllgather, counts, type), settings,
             [&](ncclComm_t communicator, cudaStream_t stream) {
               Together together(library_);
               size_t offset = 0;
               for (int root = 0; root < world_size(); ++root) {
                 const size_t count = counts[root];
                 std::byte* const to = Offset(out, offset);
                 offset += count * SizeOf(type);
                 if (count == 0) continue;
                 together.Add([&] {
                   return library_.broadcast(root == rank() ? in : to, to,
                                             count, NcclType(type), root,
                                             communicator, stream);
                 });
               }
               return together.End();
             });
}

absl::Status NcclGroup::Broadcast(void* data, size_t count, Dtype type,
                                  int root, CollectiveSettings settings) {
  RETURN_IF_ERROR(CheckMemory(data, count, 1, type));
  RETURN_IF_ERROR(CheckRoot(root, world_size()));
  return Run({.operation = Operation::kBroadcast,
              .type = type,
              .root = root,
              .count = count},
             settings, [&](ncclComm_t communicator, cudaStream_t stream) {
               return library_.broadcast(data, data, count, NcclType(type),
                                         root, communicator, stream);
             });
}

absl::Status NcclGroup::Alltoall(const void* in, void* out, size_t count,
                                 Dtype type, CollectiveSettings settings) {
  const auto n = static_cast<size_t>(world_size());
  RETURN_IF_ERROR(CheckMemory(in, count, n, type));
  RETURN_IF_ERROR(CheckMemory(out, count, n, type));
  const Blocks blocks = Divide(n * count, SizeOf(type), world_size());
  return Run({.operation = Operation::kAlltoall, .type = type, .count = count},
             settings, [&](ncclComm_t communicator, cudaStream_t stream) {
               return Exchange(in, blocks, out, blocks, communicator, stream);
             });
}

absl::Status NcclGroup::Alltoallv(const void* in, std::span<const size_t> sends,
                                  void* out, std::span<const size_t> receives,
                                  Dtype type, CollectiveSettings settings) {
  ASSIGN_OR_RETURN(const std::vector<size_t> send_bytes,
                   BytesOf(in, sends, world_size(), type));
  ASSIGN_OR_RETURN(const std::vector<size_t> receive_bytes,
                   BytesOf(out, receives, world_size(), type));
  RETURN_IF_ERROR(CheckMemory(in, Sum(sends), 1, type));
  RETURN_IF_ERROR(CheckMemory(out, Sum(receives), 1, type));
  RETURN_IF_ERROR(CheckOwnBlock(sends[rank()], receives[rank()]));
  Blocks to = Concatenate(send_bytes);
  Blocks from = Concatenate(receive_bytes);
  const Mesh::Turn turn(*mesh_);
  RETURN_IF_ERROR(
      Compare({.operation = Operation::kAlltoallv, .type = type}, settings));
  absl::Status status =
      SwapBlocks(*mesh_, nullptr, &to, nullptr, &from, std::nullopt);
  if (status.ok()) status = mesh_->End();
  if (status.ok()) {
    status = communicator_.Run(
        *mesh_,
        [&](ncclComm_t communicator, cudaStream_t stream) {
          return Exchange(in, to, out, from, communicator, stream);
        },
        StreamOf(settings));
  }
  return status.ok() ? status : Fail(status);
}

ncclResult_t NcclGroup::Exchange(const void* in, const Blocks& sends, void* out,
                                 const Blocks& receives,
                                 ncclComm_t communicator,
                                 cudaStream_t stream) const {
  Together together(library_);
  for (int peer = 0; peer < world_size(); ++peer) {
    if (sends[peer].bytes > 0) {
      together.Add([&] {
        return library_.send(Offset(in, sends[peer].offset), sends[peer].bytes,
                             ncclUint8, peer, communicator, stream);
      });
    }
    if (receives[peer].bytes > 0) {
      together.Add([&] {
        return library_.recv(Offset(out, receives[peer].offset),
                             receives[peer].bytes, ncclUint8, peer,
                             communicator, stream);
      });
    }
  }
  return together.End();
}

absl::Status NcclGroup::Check() {
  const Mesh::Turn turn(*mesh_);
  const absl::Status status = communicator_.Check(*mesh_);
  return status.ok() ? status : Fail(status);
}

// Collectives are over when they return, or their stream's: nothing is left to
// wait for on the GPU.
absl::Status NcclGroup::Barrier(CollectiveSettings settings) {
  const Mesh::Turn turn(*mesh_);
  return Compare({.operation = Operation::kBarrier}, settings);
}

absl::Status FindNccl(const GroupOptions& options) {
  return LoadNccl(options.nccl_library).status();
}

}  // namespace telegrad::collective
