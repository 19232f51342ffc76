#pragma once

#include <memory>

#include "kvstore/engine/codec/chunk_codec.h"

namespace telegrad {

// What ChunkCodec does where the gradient lies on a device, in steps between
// which the device works. The lane's thread calls these methods, within a
// kernels::DeviceScope, unless they say otherwise; they queue kernels and
// copies and wait for nothing.
class ChunkOnDevice {
 public:
  explicit ChunkOnDevice(ChunkCodec* codec) : codec_(*codec) {}

  // Kernels, which the lane's batch collects, and copies of what has a known
  // size: DeviceLane::Submit queues them.
  absl::Status BeginEncode(uint64_t step, uint64_t source, ConstBytes grad);
  // When these have passed: copies of what has not; whether there are any.
  absl::StatusOr<bool> CopyCodes();
  // When these have passed, on any thread.
  EncodedChunk EndEncode();

  // Where the network puts an answer that is not dense: on the device where its
  // payload needs no check, else on the host; empty for a dense one. Any
  // thread.
  Bytes TargetOf(const ReplyRecord& reply) const;
  // Begins to decode a payload that lies there, or one in host memory that
  // ChunkCodec::CheckPayload has let pass: this one is copied first. After
  // DeviceLane::EndUp EndDecode queues kernels, which the batch collects, too.
  absl::Status BeginDecode(const ReplyRecord& reply, ConstBytes payload,
                           Bytes out);
  absl::Status EndDecode(const ReplyRecord& reply, size_t payload_bytes,
                         Bytes out);

  // [num_elems] of the gradient's type to float32 in host memory.
  absl::Status CopyValue(ConstBytes from, Bytes to) {
    return CopyFloats(from, codec_.dtype_, to);
  }

 private:
  // Buffers of the lane, until the end of a step.
  struct Begun {
    bool is_dense = false;
    float threshold = 0;
    // Sampled elements: the gradient's, the residual's before and after, and
    // what codes decode to.
    std::shared_ptr<Buffer> samples = nullptr;
    std::shared_ptr<Buffer> host_samples = nullptr;
    bool encoder_samples = false;  // but what codes decode to
    // What is pushed, the gradient or the answer as float32 if they are not;
    // of a dense chunk, the residual that goes along, and this on the host.
    std::shared_ptr<Buffer> floats = nullptr;
    std::shared_ptr<Buffer> residual = nullptr;
    std::shared_ptr<Buffer> host_residual = nullptr;
  };
  DeviceLane& lane() const { return *codec_.config_->lane; }
  absl::StatusOr<std::shared_ptr<Buffer>> Room(size_t bytes) const;
  absl::StatusOr<std::shared_ptr<Buffer>> Widened(ConstBytes from) const;
  absl::StatusOr<ConstBytes> WithMomentum(ConstBytes grad);
  absl::Status CopyFloats(ConstBytes from, Dtype dtype, Bytes to);
  absl::Status BeginDense(ConstBytes grad, Dtype dtype);
  absl::Status BeginHalves(EncodeItem& item, bool* is_queued);
  absl::Status AfterEncode(const PreparedCodec& codec);
  absl::Status SampleBefore(EncodeItem& item);
  absl::Status SampleAfter(const PreparedCodec& codec);
  absl::StatusOr<bool> DecodeWithOthers(const ReplyRecord& reply,
                                        ConstBytes payload, Bytes out);
  // Into this one of Begun::samples.
  kernels::GatherSpan SampleOf(ConstBytes from, size_t array) const;
  // On the host, of a chunk that goes dense.
  Bytes dense() const;
  const EncodeResult& result() const {
    return *reinterpret_cast<const EncodeResult*>(
        codec_.memory_.host_result.data);
  }
  EncodeResult* result_on_device() const {
    return reinterpret_cast<EncodeResult*>(Reach(codec_.memory_.result).data);
  }

  ChunkCodec& codec_;
  Begun begun_;
};

// What goes dense instead of a gradient, of which `dense` [n] f32 is a copy:
// elements that are not finite count as 0, if there are any, and `residual`
// [n], unless null, is added.
void ChangeDense(size_t num_nonfinite, const float* residual, Bytes dense);

}  // namespace telegrad
