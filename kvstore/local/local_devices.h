#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/event.h"
#include "base/mutex.h"
#include "base/tensor_view.h"
#include "kvstore/engine/codec/chunk_sum.h"
#include "kvstore/engine/codec/tensor_codec.h"
#include "kvstore/engine/device/borrowed_memory.h"

namespace telegrad {

// A caller's views of one tensor, on each device: gradients and outputs, empty
// where there are none. As BorrowedMemory.
class LocalLoan {
 public:
  using Codecs = std::span<const std::unique_ptr<TensorCodec>>;  // by device
  using Uses = std::vector<BorrowedMemory::Use>;                 // by device

  // Views are ready when what their streams have been given has passed. The
  // codecs live longer.
  LocalLoan(Codecs codecs, std::span<const TensorView> grads,
            std::span<const TensorView> outs);
  ~LocalLoan();
  LocalLoan(const LocalLoan&) = delete;
  LocalLoan& operator=(const LocalLoan&) = delete;

  Uses Begin();
  void End(std::span<const BorrowedMemory::Use> uses);
  // As BorrowedMemory::Release, of all.
  bool Release(TimePoint deadline);
  // What is queued on the devices from now on comes after the views' streams.
  void Follow();

 private:
  const Codecs codecs_;
  std::vector<std::unique_ptr<BorrowedMemory>> memory_;
  std::vector<Event> ready_;
  std::vector<Event> out_ready_;
};

// The devices on which tensors of a process lie that are summed on its CPU, and
// what LocalStore does there: copies down what is to be summed, and results up.
// Waits for them. Methods that are not static are thread-safe; of one tensor
// the others are called one after the other.
class LocalDevices {
 public:
  using Codecs = LocalLoan::Codecs;
  using Uses = std::span<const BorrowedMemory::Use>;  // by device

  // The settings `host` for this place, which may be the host. Unimplemented,
  // with the reason, where there is no such device.
  absl::StatusOr<const EngineConfig*> Find(Device place,
                                           const EngineConfig& host);

  static absl::StatusOr<std::vector<ChunkWish>> Wishes(Codecs codecs,
                                                       Uses uses);
  // The first scale of a chunk, where it needs one.
  static absl::Status AgreeFirst(Codecs codecs,
                                 std::span<const ChunkWish> wishes,
                                 ChunkSum& sum);
  // So that ChunkOnDevice::EndEncode gives payloads; of devices alone.
  static absl::Status Encode(Codecs codecs, uint64_t step, Uses uses);
  // By chunk; of devices alone.
  static absl::Status Decode(Codecs codecs,
                             std::span<const ChunkResult> results, Uses uses);

  // A tensor's views [n], of `dtype`: the first one as float32 in host memory
  // [n]; all others become the same.
  absl::Status Spread(Dtype dtype, std::span<const TensorView> views, Bytes to);

  // Over the bus so far.
  int64_t up_bytes() const;
  int64_t down_bytes() const;

 private:
  struct Place {
    std::unique_ptr<DeviceLane> lane;
    EngineConfig config;
  };
  static absl::Status Copy(DeviceLane* lane, Stream stream, Bytes to,
                           ConstBytes from);
  DeviceLane* LaneOf(Device place) const;

  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Place>> places_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace telegrad
