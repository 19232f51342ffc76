#include "kvstore/local/local_devices.h"

#include <cstring>
#include <utility>

#include "base/status_macros.h"
#include "kernels/device_scope.h"
#include "kvstore/engine/codec/floats.h"

namespace telegrad {
namespace {

constexpr Duration kFaultGrace = std::chrono::seconds(60);

// Queues by `begin` for one tensor, and waits.
template <typename BeginFn>
absl::Status Run(DeviceLane& lane, BeginFn begin) {
  const kernels::DeviceScope scope(lane.device());
  const absl::Status begun = begin();
  const DeviceLane::Events events = lane.Submit();
  const TimePoint deadline = Clock::now() + kFaultGrace;
  absl::Status status = lane.Wait(events.copies, deadline);
  lane.Return(events.kernels);
  lane.Return(events.copies);
  status.Update(begun);
  status.Update(lane.status());
  return status;
}

absl::Status EncodeOne(TensorCodec& codec, uint64_t step, uint64_t source,
                       ConstBytes grad) {
  const absl::Status begun = Run(*codec.lane(), [&] {
    for (const ChunkCodec& chunk : codec.chunks()) {
      RETURN_IF_ERROR(
          codec.on_device(chunk.chunk().index)
              .BeginEncode(step, source,
                           PartOf(grad, chunk.chunk(), codec.spec().dtype)));
    }
    return absl::OkStatus();
  });
  RETURN_IF_ERROR(begun);
  return Run(*codec.lane(), [&] {
    for (size_t i = 0; i < codec.chunks().size(); ++i) {
      RETURN_IF_ERROR(codec.on_device(i).CopyCodes().status());
    }
    return absl::OkStatus();
  });
}

absl::Status DecodeOne(TensorCodec& codec, std::span<const ChunkResult> results,
                       Bytes out) {
  const auto part = [&](size_t i) {
    return PartOf(out, codec.chunks()[i].chunk(), codec.spec().dtype);
  };
  return Run(*codec.lane(), [&] {
    for (size_t i = 0; i < results.size(); ++i) {
      RETURN_IF_ERROR(codec.on_device(i).BeginDecode(
          results[i].record, results[i].payload, part(i)));
    }
    codec.lane()->EndUp();
    for (size_t i = 0; i < results.size(); ++i) {
      RETURN_IF_ERROR(codec.on_device(i).EndDecode(
          results[i].record, results[i].payload.size, part(i)));
    }
    return absl::OkStatus();
  });
}

}  // namespace

LocalLoan::LocalLoan(Codecs codecs, std::span<const TensorView> grads,
                     std::span<const TensorView> outs)
    : codecs_(codecs) {
  for (size_t i = 0; i < codecs.size(); ++i) {
    DeviceLane* const lane = codecs[i]->lane();
    const ConstBytes in = grads.empty() ? Bytes() : grads[i].bytes;
    const Bytes out = outs.empty() ? Bytes() : outs[i].bytes;
    ready_.push_back(lane == nullptr ? Event() : lane->TakeEvent());
    out_ready_.push_back(lane == nullptr ? Event() : lane->TakeEvent());
    if (lane != nullptr && !grads.empty()) {
      lane->Record(ready_[i], grads[i].stream);
    }
    if (lane != nullptr && !outs.empty()) {
      lane->Record(out_ready_[i], outs[i].stream);
    }
    memory_.push_back(
        std::make_unique<BorrowedMemory>(in, out, lane, ready_[i]));
  }
}

LocalLoan::~LocalLoan() {
  for (size_t i = 0; i < codecs_.size(); ++i) {
    if (codecs_[i]->lane() == nullptr) continue;
    codecs_[i]->lane()->Return(ready_[i]);
    codecs_[i]->lane()->Return(out_ready_[i]);
  }
}

LocalLoan::Uses LocalLoan::Begin() {
  Uses uses;
  for (const auto& memory : memory_) uses.push_back(memory->Begin());
  return uses;
}

void LocalLoan::End(std::span<const BorrowedMemory::Use> uses) {
  for (size_t i = 0; i < uses.size(); ++i) {
    memory_[i]->End(uses[i].is_borrowed);
  }
}

bool LocalLoan::Release(TimePoint deadline) {
  bool is_released = true;
  for (const auto& memory : memory_) is_released &= memory->Release(deadline);
  return is_released;
}

void LocalLoan::Follow() {
  for (size_t i = 0; i < codecs_.size(); ++i) {
    if (codecs_[i]->lane() == nullptr) continue;
    codecs_[i]->lane()->Follow(ready_[i]);
    codecs_[i]->lane()->Follow(out_ready_[i]);
  }
}

absl::StatusOr<const EngineConfig*> LocalDevices::Find(
    Device device, const EngineConfig& host) {
  if (device == Device{}) return &host;
  MutexLock lock(&mutex_);
  for (const auto& place : places_) {
    if (place->lane->device() == device) return &place->config;
  }
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceLane> lane, DeviceLane::Make(device));
  EngineConfig config = host;
  config.lane = lane.get();
  config.buffers = &lane->host_buffers();
  places_.push_back(
      std::make_unique<Place>(Place{std::move(lane), std::move(config)}));
  return &places_.back()->config;
}

absl::StatusOr<std::vector<ChunkWish>> LocalDevices::Wishes(Codecs codecs,
                                                            Uses uses) {
  std::vector<ChunkWish> wishes;
  for (size_t i = 0; i < codecs.size(); ++i) {
    TensorCodec& codec = *codecs[i];
    if (codec.lane() == nullptr) {
      wishes.push_back(codec.Wish(uses[i].in));
      continue;
    }
    RETURN_IF_ERROR(Run(*codec.lane(), [&] {
      const absl::Status status = codec.BeginWish(uses[i].in);
      codec.CopyWish();
      return status;
    }));
    wishes.push_back(codec.EndWish());
  }
  return wishes;
}

absl::Status LocalDevices::AgreeFirst(Codecs codecs,
                                      std::span<const ChunkWish> wishes,
                                      ChunkSum& sum) {
  const size_t chunk = sum.chunk().index;
  for (size_t i = 0; i < codecs.size(); ++i) {
    if (!codecs[i]->chunks()[chunk].NeedsScale(sum.step())) break;
    ASSIGN_OR_RETURN(const bool is_agreed,
                     sum.Propose(static_cast<int>(i), wishes[i].scale));
    if (!is_agreed) continue;
    for (const auto& codec : codecs) {
      codec->chunks()[chunk].AgreeFirst(sum.scale());
    }
  }
  return absl::OkStatus();
}

absl::Status LocalDevices::Encode(Codecs codecs, uint64_t step, Uses uses) {
  for (size_t i = 0; i < codecs.size(); ++i) {
    if (codecs[i]->lane() == nullptr) continue;
    RETURN_IF_ERROR(EncodeOne(*codecs[i], step, i, uses[i].in));
  }
  return absl::OkStatus();
}

absl::Status LocalDevices::Decode(Codecs codecs,
                                  std::span<const ChunkResult> results,
                                  Uses uses) {
  for (size_t i = 0; i < codecs.size(); ++i) {
    if (codecs[i]->lane() == nullptr) continue;
    RETURN_IF_ERROR(DecodeOne(*codecs[i], results, uses[i].out));
  }
  return absl::OkStatus();
}

absl::Status LocalDevices::Spread(Dtype dtype,
                                  std::span<const TensorView> views, Bytes to) {
  const size_t n = to.size / sizeof(float);
  Buffer first(SizeOf(dtype) * n);
  for (const TensorView& view : views) {
    DeviceLane* const lane = LaneOf(view.bytes.device);
    const bool is_first = &view == &views[0];
    RETURN_IF_ERROR(Copy(lane, view.stream,
                         is_first ? first.view() : view.bytes,
                         is_first ? ConstBytes(view.bytes) : first.view()));
  }
  Widen(kernels::CpuKernels(), first.view(), dtype, n, Floats(to), {});
  return absl::OkStatus();
}

int64_t LocalDevices::up_bytes() const {
  MutexLock lock(&mutex_);
  int64_t bytes = 0;
  for (const auto& place : places_) bytes += place->lane->up_bytes();
  return bytes;
}

int64_t LocalDevices::down_bytes() const {
  MutexLock lock(&mutex_);
  int64_t bytes = 0;
  for (const auto& place : places_) bytes += place->lane->down_bytes();
  return bytes;
}

DeviceLane* LocalDevices::LaneOf(Device device) const {
  MutexLock lock(&mutex_);
  for (const auto& place : places_) {
    if (place->lane->device() == device) return place->lane.get();
  }
  return nullptr;
}

// One side is on the lane's device, if there is one.
absl::Status LocalDevices::Copy(DeviceLane* lane, Stream stream, Bytes to,
                                ConstBytes from) {
  if (lane == nullptr) {
    std::memcpy(to.data, from.data, from.size);
    return absl::OkStatus();
  }
  const Event ready = lane->TakeEvent();
  lane->Record(ready, stream);
  const absl::Status status = lane->CopyNow(to, from, ready);
  lane->Return(ready);
  return status;
}

}  // namespace telegrad
