#pragma once

#include <memory>
#include <vector>

#include "kvstore/collective/bulk.h"
#include "kvstore/collective/collective.h"
#include "kvstore/collective/courier.h"
#include "kvstore/collective/mesh.h"
#include "kvstore/collective/schedules.h"
#include "kvstore/collective/split.h"

namespace telegrad::collective {

// Checks arguments, chooses algorithms, and runs them over a mesh.
class DenseGroup : public Group {
 public:
  // Without a courier it neither sends nor receives.
  DenseGroup(std::unique_ptr<Mesh> mesh, std::unique_ptr<Courier> courier);

  int rank() const override { return mesh_->rank(); }
  int world_size() const override { return mesh_->world_size(); }
  TransportInfo info() const override {
    const Mesh::Turn turn(*mesh_, /*drives=*/false);
    return mesh_->info();
  }
  GroupTraffic traffic() const override {
    const Mesh::Turn turn(*mesh_, /*drives=*/false);
    return mesh_->traffic();
  }

  absl::Status Allreduce(void* data, size_t count, Dtype type, ReduceOp op,
                         CollectiveSettings settings) override;
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
  absl::Status Barrier(CollectiveSettings settings) override;

  absl::StatusOr<std::unique_ptr<Group>> Split(
      std::span<const int> ranks) override {
    return collective::Split(*mesh_, ranks);
  }
  void set_timeout(Duration timeout) override;
  absl::Status Send(const void* data, size_t count, Dtype type, int to,
                    uint32_t tag) override;
  absl::StatusOr<int> Receive(void* data, size_t count, Dtype type, int from,
                              uint32_t tag) override;

 private:
  absl::Status Begin(Signature& signature, CollectiveSettings settings,
                     size_t bytes);
  absl::Status End(absl::Status status);
  absl::Status Run(Schedule schedule);
  absl::Status GatherBlocks(const void* in, void* out, const Blocks& blocks,
                            Signature signature, CollectiveSettings settings);
  absl::Status ScatterBlocks(const void* in, void* out, const Blocks& blocks,
                             Signature signature, CollectiveSettings settings);
  absl::Status AllreducePieces(std::byte* data, size_t count, Dtype type,
                               ReduceOp op);
  absl::Status BroadcastPieces(std::byte* data, size_t bytes, int root);

  const std::unique_ptr<Mesh> mesh_;
  const Place place_;
  const std::vector<int> hosts_;  // by rank
  const std::unique_ptr<Courier> courier_;
};

}  // namespace telegrad::collective
