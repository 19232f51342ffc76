#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/collective/mesh.h"
#include "kvstore/collective/nccl/library.h"

namespace telegrad::collective {

// OK when this machine has the CUDA device `device`; Unavailable without any
// device, InvalidArgument names those that there are.
absl::Status CheckDevice(const Library& library, int device);

// Time since the first look that found a rank gone.
class LostPeers {
 public:
  // Ranks that are done may leave while others still work, so a lost rank is an
  // error only when the others do not end soon after it.
  absl::Status Check(const Mesh& mesh, TimePoint now);

 private:
  TimePoint since_ = {};
};

// An NCCL communicator that does not block, and a stream. Whoever waits listens
// to the mesh too: what other ranks say and whether they live. Errors are for
// Mesh::Fail, after Abort.
class Communicator {
 public:
  Communicator(const Library& library, int device);
  // Ends at most 2 * kCloseGrace later.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int device() const { return device_; }
  // Connects all ranks of `mesh`.
  absl::Status Init(Mesh& mesh, const ncclUniqueId& id);
  // Hands `issue` to NCCL and returns when the GPU has done it; with a stream
  // of the caller's when it is queued there.
  using Issue = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;
  absl::Status Run(Mesh& mesh, const Issue& issue, cudaStream_t stream);
  // What has become of all that was queued so far.
  absl::Status Check(Mesh& mesh);
  // Ends what runs on the GPU. Nothing can be run afterwards.
  void Abort();

 private:
  using Poll = std::function<absl::StatusOr<bool>()>;
  absl::Status Await(Mesh& mesh, const std::string& what, const Poll& is_done);
  absl::StatusOr<bool> IsReady() const;       // NCCL has taken all in
  absl::StatusOr<bool> IsStreamDone() const;  // the GPU has
  // On a thread of its own, which is left behind where a driver hangs.
  void End(bool is_whole);

  const Library library_;
  const int device_;
  cudaStream_t stream_ = nullptr;
  ncclComm_t communicator_ = nullptr;
  bool is_whole_ = false;
  LostPeers lost_;  // since the last Run
};

}  // namespace telegrad::collective
