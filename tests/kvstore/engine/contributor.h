#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "kernels/device_scope.h"
#include "kvstore/engine/codec/floats.h"
#include "kvstore/engine/codec/tensor_codec.h"
#include "tests/testing/status_matchers.h"

namespace telegrad::testing {

// One contributor's side of one tensor, with a gradient and an output where the
// settings say, driven step by step.
class Contributor {
 public:
  // `config` lives at least as long.
  Contributor(const TensorSpec& spec, const TensorLayout& layout,
              const EngineConfig& config)
      : lane_(config.lane),
        codec_(*TensorCodec::Make(spec, layout, config)),
        grad_(Make(SizeOf(spec.dtype) * spec.num_elems)),
        out_(Make(SizeOf(spec.dtype) * spec.num_elems)) {
    TensorCodec* const codec = codec_.get();
    EXPECT_THAT(TensorCodec::Place({&codec, 1}), IsOk());
  }

  TensorCodec& codec() { return *codec_; }
  const Buffer& grad() const { return grad_; }

  void Fill(const std::vector<float>& values) {
    EncodeStats stats;
    Buffer halves(grad_.size());
    Narrow(kernels::CpuKernels(), values.data(), values.size(), halves.view(),
           dtype(), &stats, {});
    Copy(grad_.view(), halves.view());
  }
  std::vector<std::byte> Output() const { return ContentOf(out_.view()); }

  ChunkWish Wish() {
    if (lane_ == nullptr) return codec_->Wish(grad_.view());
    EXPECT_THAT(Run([&] {
                  const absl::Status status = codec_->BeginWish(grad_.view());
                  codec_->CopyWish();
                  return status;
                }),
                IsOk());
    return codec_->EndWish();
  }
  // All chunks' payloads, as copies.
  absl::StatusOr<std::vector<std::vector<std::byte>>> Encode(uint64_t step,
                                                             uint64_t source) {
    std::vector<std::vector<std::byte>> payloads;
    const absl::Status begun = Run([&] { return Begin(step, source); });
    RETURN_IF_ERROR(begun);
    const absl::Status copied = Run([&] { return CopyCodes(); });
    RETURN_IF_ERROR(copied);
    for (size_t i = 0; i < codec_->chunks().size(); ++i) {
      ChunkCodec& chunk = codec_->chunks()[i];
      EncodedChunk encoded;
      if (lane_ != nullptr) {
        encoded = codec_->on_device(i).EndEncode();
      } else {
        ASSIGN_OR_RETURN(encoded, chunk.Encode(step, source,
                                               PartOf(ConstBytes(grad_.view()),
                                                      chunk.chunk(), dtype())));
      }
      if (encoded.is_refused) return absl::DataLossError("refused");
      codec_->CountNonFinite(encoded.num_nonfinite);
      payloads.push_back(ContentOf(encoded.payload));
    }
    return payloads;
  }
  // Decodes on the host; on a device DecodeArrived does.
  absl::Status Decode(size_t i, const ReplyRecord& record, ConstBytes payload) {
    ChunkCodec& chunk = codec_->chunks()[i];
    if (lane_ == nullptr) return chunk.Decode(record, payload, OutOf(i));
    if (Bytes there = codec_->on_device(i).TargetOf(record); there.size > 0) {
      there.size = payload.size;
      Copy(there, payload);  // as the network would
      payload = there;
    }
    if (payload.device == Device{}) {
      RETURN_IF_ERROR(chunk.CheckPayload(record, payload));
    }
    Arrived arrived = {i, record, payload, Buffer()};
    if (record.format == ReplyFormat::kDense) {
      arrived.dense = Buffer(payload.size);
      Copy(arrived.dense.view(), payload);
      arrived.payload = arrived.dense.view();
    }
    arrived_.push_back(std::move(arrived));
    return absl::OkStatus();
  }
  absl::Status DecodeArrived() {
    const std::vector<Arrived> arrived = std::exchange(arrived_, {});
    return Run([&] {
      for (const Arrived& each : arrived) {
        RETURN_IF_ERROR(
            codec_->on_device(each.chunk)
                .BeginDecode(each.record, each.payload, OutOf(each.chunk)));
      }
      lane_->EndUp();
      for (const Arrived& each : arrived) {
        RETURN_IF_ERROR(
            codec_->on_device(each.chunk)
                .EndDecode(each.record, each.payload.size, OutOf(each.chunk)));
      }
      return absl::OkStatus();
    });
  }

 private:
  struct Arrived {
    size_t chunk;
    ReplyRecord record;
    ConstBytes payload;
    Buffer dense;  // `payload`, where it is dense
  };
  Bytes OutOf(size_t i) const {
    return PartOf(out_.view(), codec_->chunks()[i].chunk(), dtype());
  }
  Dtype dtype() const { return codec_->spec().dtype; }
  Buffer Make(size_t size) const {
    return lane_ == nullptr ? Buffer(size) : *lane_->MakeMemory(size);
  }
  void Copy(Bytes to, ConstBytes from) const {
    if (from.size == 0) return;
    if (to.device == from.device) {
      std::memcpy(to.data, from.data, from.size);
    } else {
      EXPECT_THAT(lane_->CopyNow(to, from, {}), IsOk());
    }
  }
  std::vector<std::byte> ContentOf(ConstBytes from) const {
    Buffer bytes(from.size);
    Copy(bytes.view(), from);
    return {bytes.data(), bytes.data() + bytes.size()};
  }
  template <typename Queue>
  absl::Status Run(Queue queue) {
    if (lane_ == nullptr) return absl::OkStatus();
    const kernels::DeviceScope scope(lane_->device());
    const absl::Status queued = queue();
    RETURN_IF_ERROR(queued);
    const DeviceLane::Events events = lane_->Submit();
    const absl::Status waited =
        lane_->Wait(events.copies, Clock::now() + std::chrono::seconds(30));
    lane_->Return(events.kernels);
    lane_->Return(events.copies);
    RETURN_IF_ERROR(waited);
    return lane_->status();
  }
  absl::Status Begin(uint64_t step, uint64_t source) {
    for (size_t i = 0; i < codec_->chunks().size(); ++i) {
      RETURN_IF_ERROR(codec_->on_device(i).BeginEncode(
          step, source,
          PartOf(ConstBytes(grad_.view()), codec_->chunks()[i].chunk(),
                 dtype())));
    }
    return absl::OkStatus();
  }
  absl::Status CopyCodes() {
    for (size_t i = 0; i < codec_->chunks().size(); ++i) {
      RETURN_IF_ERROR(codec_->on_device(i).CopyCodes().status());
    }
    return absl::OkStatus();
  }

  DeviceLane* const lane_;
  std::unique_ptr<TensorCodec> codec_;
  Buffer grad_;
  Buffer out_;
  std::vector<Arrived> arrived_;
};

}  // namespace telegrad::testing
