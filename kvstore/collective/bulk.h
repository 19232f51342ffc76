#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kvstore/collective/mesh.h"

namespace telegrad::collective {

enum class Combine : uint8_t {
  kStore = 0,   // into `place`
  kReduce = 1,  // place = place op what came
  kKeep = 2,    // what came = what came op place, kept for one send
};

// The first `count` receives from rank `peer` have been combined; without a
// peer nothing must have been.
struct Mark {
  int peer = -1;
  size_t count = 0;
};

// Counts, and is combined, after those before it from the same rank and after
// `after`. What is stored lies at its place as soon as it has come.
struct Receive {
  size_t bytes = 0;
  std::byte* place = nullptr;
  Combine combine = Combine::kStore;
  Mark after = {};
};

struct PieceSend {
  size_t bytes = 0;
  const std::byte* from = nullptr;  // null: what the last of `after` has kept
  Mark after = {};
};

// What one rank sends to and receives from each other, in the same order on
// both sides.
struct Schedule {
  struct Peer {
    std::vector<Receive> receives = {};
    std::vector<PieceSend> sends = {};
  };
  std::vector<Peer> peers = {};  // by rank
  Dtype type = Dtype::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool is_ordered = false;  // receives wait for others
};

// Runs a schedule: each receiver says that it is ready, then pieces flow as
// they become known, several at a time. Receiving never waits for sending.
class Bulk : public DataSink {
 public:
  Bulk(Mesh& mesh, Schedule schedule);
  // Returns the group's error if there is one; then the group is closed.
  absl::Status Run();

  absl::StatusOr<Bytes> OnDataHeader(int from, uint32_t index,
                                     size_t bytes) override;
  void OnData(int from) override;

 private:
  struct Flow {
    bool is_ready = false;
    size_t num_sent = 0;
    size_t num_in_flight = 0;
    size_t num_announced = 0;
    size_t num_arrived = 0;
    size_t num_combined = 0;
    std::deque<Buffer> arriving = {};  // data of kReduce and kKeep, in order
    std::vector<Buffer> kept = {};     // by receive; empty unless kKeep
  };

  absl::Status Drive();
  absl::Status Pump();
  absl::Status PumpTo(int to);
  absl::Status SendNext(int to);
  bool Has(const Mark& mark) const;
  bool CombineFrom(int from);
  void CombineNext(int from);
  bool IsDone() const;
  std::string Awaited() const;
  absl::Status CheckPeers() const;

  Mesh& mesh_;
  const Schedule schedule_;
  std::vector<Flow> flows_;    // by rank
  std::vector<int> partners_;  // ranks with anything to do, next rank first
};

}  // namespace telegrad::collective
