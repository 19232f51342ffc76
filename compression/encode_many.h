#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/event.h"
#include "base/status_macros.h"
#include "base/stream.h"
#include "compression/codec.h"
#include "kernels/batch.h"
#include "kernels/device_queue.h"
#include "kernels/dispatch.h"

// Many chunks in few launches. In order of use: a BatchTable for a stream, then
// EncodeMany for each group of chunks.
namespace telegrad {

// What PreparedCodec::Encode takes, or EncodeHalf.
struct EncodeItem {
  const PreparedCodec* codec = nullptr;
  std::optional<HalfFormat> half = std::nullopt;  // what `grad` is made of
  ConstBytes grad = {};
  CodecState* state = nullptr;
  EncodeParams params = {};
  Bytes out = {};
  EncodeResult* result = nullptr;
  // EncodeSpan's, of each stride-th element. Only with a part of a launch.
  float* samples = nullptr;
  size_t sample_stride = 1;
};

// One item in a launch with others; see PreparedCodec::BatchPartOf.
struct BatchPart {
  kernels::EncodeManyFn* encode = nullptr;
  kernels::BlockFormat format = {};
  size_t tile_elems = kernels::kBatchTile;
  kernels::EncodeSpan span = {};
};

// What PreparedCodec::Decode takes, or DecodeSum.
struct DecodeItem {
  const PreparedCodec* codec = nullptr;
  ConstBytes payload = {};
  uint32_t num_payloads = 0;  // in a packed sum; 0: it is a payload
  float threshold = 0;
  Bytes out = {};
  float scale = 1;  // then `out` is multiplied by it
  // What `out` is made of: then it is rounded. Only with a part of a launch.
  std::optional<HalfFormat> half = std::nullopt;
};

// One item in a launch with others; see PreparedCodec::DecodePartOf.
struct DecodePart {
  kernels::DecodeManyFn* decode = nullptr;
  kernels::BlockFormat format = {};
  size_t tile_elems = kernels::kDecodeTile;
  kernels::DecodeSpan span = {};
};

// Sampled mean squares, as the kernel of the codec's name gives them.
struct PowerItem {
  ConstBytes grad = {};      // [n] f32, or what `half` says on a GPU
  ConstBytes residual = {};  // [n] f32, or empty
  double* mean_square = nullptr;
  std::optional<HalfFormat> half = std::nullopt;
};

// Descriptions of chunks on a device. They are written to pinned memory and
// copied; what is in use is left alone until an event says that it is over, so
// that nothing waits. Grows with the first groups, and allocates no more. One
// thread.
class BatchTable {
 public:
  // `queue` outlives it; `stream` is what all is queued on.
  BatchTable(kernels::DeviceQueue* queue, Stream stream);
  BatchTable(const BatchTable&) = delete;
  BatchTable& operator=(const BatchTable&) = delete;
  ~BatchTable();

  kernels::DeviceQueue& queue() const { return *queue_; }
  Stream stream() const { return stream_; }

  // Makes room for `count` uploads under way, of at most so many bytes of
  // pinned memory and of the device's: with these nothing is allocated later.
  absl::Status Reserve(size_t count, size_t pinned, size_t memory);

  // Copies of `size` bytes of `from` for what is queued on the stream until
  // Release: where they are on the device, behind them `scratch` bytes.
  // ResourceExhausted, Internal: what the device says.
  absl::StatusOr<std::byte*> Upload(const void* from, size_t size,
                                    size_t scratch);
  template <typename Span>
  absl::StatusOr<const Span*> Upload(const Span* spans, size_t count) {
    ASSIGN_OR_RETURN(auto* memory, Upload(spans, sizeof(Span) * count, 0));
    return reinterpret_cast<const Span*>(memory);
  }
  absl::Status Release();
  // At least `count` words of the device that are 0, and left so.
  absl::StatusOr<uint32_t*> Tickets(size_t count);

 private:
  struct Slot;
  absl::StatusOr<Slot*> TakeSlot(size_t pinned, size_t memory);
  Slot* AddSlot();
  absl::Status Grow(Slot& slot, size_t pinned, size_t memory);

  kernels::DeviceQueue* const queue_;
  const Stream stream_;
  std::vector<std::unique_ptr<Slot>> slots_;
  Slot* used_ = nullptr;
  Buffer tickets_;
};

// Encodes all items, whose states, outputs and results are all different, as
// Encode or EncodeHalf would: one launch for each kind of codec that has such a
// kernel, and of these one more for arrays that are not aligned to what a
// thread reads at once; a call for each other item. All of it is queued on the
// table's stream. With an error some may have been queued.
absl::Status EncodeMany(std::span<const EncodeItem> items, BatchTable& table);

absl::Status DecodeOne(const DecodeItem& item,
                       const kernels::KernelTable& kernels, Stream stream);
// What the encoder of `state` learns of a packed sum.
absl::Status LearnOf(const DecodeItem& item, CodecState& state, Stream stream);
// Decodes all items, whose outputs are all different, in the same way.
absl::Status DecodeMany(std::span<const DecodeItem> items, BatchTable& table);

// The powers of all items in one launch, where the device has that.
absl::Status SampledPowerMany(std::span<const PowerItem> items,
                              BatchTable& table);

// What workers push who keep momentum, of all arrays in one launch, likewise.
absl::Status PushMomentumMany(std::span<const kernels::MomentumSpan> items,
                              BatchTable& table);

}  // namespace telegrad
