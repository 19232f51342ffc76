#pragma once

#include <memory>
#include <string>

#include "kvstore/collective/collective.h"
#include "kvstore/collective/mesh.h"
#include "kvstore/collective/nccl/communicator.h"
#include "kvstore/collective/nccl/library.h"
#include "kvstore/collective/schedules.h"
#include "kvstore/collective/split.h"

namespace telegrad::collective {

ncclDataType_t NcclType(Dtype type);
ncclRedOp_t NcclOp(ReduceOp op, Dtype type);

// Ranks compare what they do over a mesh, by a dissemination of headers, and
// then let NCCL move the data between their GPUs.
class NcclGroup : public Group {
 public:
  static absl::StatusOr<std::unique_ptr<Group>> Make(
      const GroupOptions& options, const AddressExchange& exchange,
      const Library& library);

  int rank() const override { return mesh_->rank(); }
  int world_size() const override { return mesh_->world_size(); }
  TransportInfo info() const override;
  GroupTraffic traffic() const override {
    const Mesh::Turn turn(*mesh_, /*drives=*/false);
    return mesh_->traffic();
  }

  absl::Status Allreduce(void* data, size_t count, Dtype type, ReduceOp op,
                         CollectiveSettings settings) override;
  absl::Status AllreduceAll(std::span<const Part> parts, Dtype type,
                            ReduceOp op, CollectiveSettings settings) override;
  absl::Status ReduceScatter(const void* in, void* out, size_t count,
                             Dtype type, ReduceOp op,
                             CollectiveSettings settings) override;
  absl::Status ReduceScatterv(const void* in, void* out,
                              std::span<const size_t> counts, Dtype type,
                              ReduceOp op,
                              CollectiveSettings settings) override;
  absl::Status Allgather(const void* in, void* out, size_t count, Dtype type,
                         CollectiveSettings settings) override;
  absl::Status Allgatherv(const void* in, void* out,
                          std::span<const size_t> counts, Dtype type,
                          CollectiveSettings settings) override;
  absl::Status Broadcast(void* data, size_t count, Dtype type, int root,
                         CollectiveSettings settings) override;
  absl::Status Alltoall(const void* in, void* out, size_t count, Dtype type,
                        CollectiveSettings settings) override;
  absl::Status Alltoallv(const void* in, std::span<const size_t> sends,
                         void* out, std::span<const size_t> receives,
                         Dtype type, CollectiveSettings settings) override;
  absl::Status Check() override;
  absl::Status Barrier(CollectiveSettings settings) override;

  absl::StatusOr<std::unique_ptr<Group>> Split(
      std::span<const int> ranks) override {
    return collective::Split(*mesh_, ranks);
  }
  void set_timeout(Duration timeout) override {
    const Mesh::Turn turn(*mesh_, /*drives=*/false);
    mesh_->set_timeout(timeout);
  }
  absl::Status Send(const void*, size_t, Dtype, int, uint32_t) override {
    return absl::UnimplementedError(kSendsNothing);
  }
  absl::StatusOr<int> Receive(void*, size_t, Dtype, int, uint32_t) override {
    return absl::UnimplementedError(kSendsNothing);
  }

 private:
  static constexpr char kSendsNothing[] =
      "nccl: no point to point; groups with backend \"host\" send and receive";

  NcclGroup(const Library& library, int version, std::unique_ptr<Mesh> mesh,
            int device, std::string ours);

  absl::Status CheckMemory(const void* memory, size_t count, size_t blocks,
                           Dtype type) const;
  // All ranks mean `signature` when it returns OK.
  absl::Status Compare(Signature signature, CollectiveSettings settings);
  absl::Status Run(const Signature& signature, CollectiveSettings settings,
                   const Communicator::Issue& issue);
  absl::Status Fail(const absl::Status& why);
  ncclResult_t Exchange(const void* in, const Blocks& sends, void* out,
                        const Blocks& receives, ncclComm_t communicator,
                        cudaStream_t stream) const;

  const Library library_;
  const int version_;
  const std::string ours_;  // variables that were set for it
  const std::unique_ptr<Mesh> mesh_;
  Communicator communicator_;
};

}  // namespace telegrad::collective
