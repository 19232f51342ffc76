#include "kvstore/operations/devices.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/device_access.h"
#include "base/status_macros.h"
#include "kernels/device_scope.h"
#include "kvstore/engine/device/device_lane.h"

namespace telegrad::operations {
namespace {

const kernels::CastFormatKernels& CastOn(const DeviceLane& lane, Dtype type) {
  const kernels::CastKernels& cast = lane.kernels().cast;
  return type == Dtype::kFloat16 ? cast.fp16 : cast.bf16;
}

// Whether the result has the shape of what it is of.
bool KeepsShape(Kind kind) {
  return kind == Kind::kAllreduce || kind == Kind::kBroadcast;
}

}  // namespace

Device DeviceOf(int number) {
  if (number == kEmulatedMemory) return kEmulatedDevice;
  return number == kHostMemory ? Device() : Device{DeviceKind::kCuda, number};
}

DevicePlace::DevicePlace(std::unique_ptr<DeviceLane> lane, Duration timeout)
    : lane_(std::move(lane)), timeout_(timeout) {}

DevicePlace::~DevicePlace() = default;

bool DevicePlace::Multiplies(Dtype type) {
  return type == Dtype::kFloat32 || type == Dtype::kFloat16 ||
         type == Dtype::kBfloat16;
}

void DevicePlace::Follow(Submission& mine) {
  lane_->Follow(mine.ready);
  lane_->Return(std::exchange(mine.ready, {}));
}

void DevicePlace::Copy(const void* from, size_t bytes, void* to) {
  if (bytes == 0 || from == to) return;
  const kernels::DeviceScope scope(lane_->device());
  lane_->kernels().copy(Reach(ConstBytes(from, bytes, lane_->device())).data,
                        bytes, Reach(Bytes(to, bytes, lane_->device())).data,
                        lane_->stream());
}

void DevicePlace::Multiply(Dtype type, double factor, size_t count,
                           void* data) {
  if (factor == 1 || count == 0) return;
  const kernels::DeviceScope scope(lane_->device());
  const auto by = static_cast<float>(factor);
  const Bytes all = Reach(Bytes(data, count * SizeOf(type), lane_->device()));
  if (type == Dtype::kFloat32) {
    lane_->kernels().scale_f32(by, count, reinterpret_cast<float*>(all.data),
                               lane_->stream());
  } else {
    MultiplyHalves(type, by, count, all.data);
  }
}

// As float32, behind which the memory has what the cast has seen.
void DevicePlace::MultiplyHalves(Dtype type, float factor, size_t count,
                                 void* data) {
  constexpr size_t kUnit = Buffer::kAlignment;
  const size_t floats = (count * sizeof(float) + kUnit - 1) / kUnit * kUnit;
  const size_t bytes = floats + sizeof(kernels::EncodeStats);
  if (wide_.size() < bytes) {
    auto made = Make(bytes);
    failed_.Update(made.status());
    if (!made.ok()) return;
    wide_ = *std::move(made);
  }
  std::byte* const memory = Reach(wide_.view()).data;
  auto* const wide = reinterpret_cast<float*>(memory);
  auto* const codes = static_cast<uint8_t*>(data);
  const kernels::CastFormatKernels& cast = CastOn(*lane_, type);
  cast.decode(codes, count, wide, lane_->stream());
  lane_->kernels().scale_f32(factor, count, wide, lane_->stream());
  cast.encode(wide, nullptr, count, kernels::NonFinite::kPropagate, codes,
              reinterpret_cast<kernels::EncodeStats*>(memory + floats),
              lane_->stream());
}

absl::StatusOr<Buffer> DevicePlace::Make(size_t bytes) {
  return lane_->MakeMemory(bytes);
}

absl::StatusOr<Group*> DevicePlace::Ready() {
  RETURN_IF_ERROR(Finish());
  return group_;
}

absl::StatusOr<std::vector<DevicePlace::Shared>> DevicePlace::CopyDown(
    const std::vector<Shared>& mine) {
  std::vector<Shared> copies(mine.size());
  for (size_t i = 0; i < mine.size(); ++i) {
    if (mine[i] == nullptr) continue;
    Follow(*mine[i]);
    const Request& request = mine[i]->request;
    const auto elems = static_cast<size_t>(NumElems(request.shape));
    const size_t bytes = elems * SizeOf(request.dtype);
    copies[i] = std::make_shared<Submission>();
    Submission& copy = *copies[i];
    copy.request = request;
    copy.request.device = kHostMemory;
    copy.pinned = lane_->host_buffers().Get(bytes);
    copy.in = copy.pinned->data();
    if (KeepsShape(request.kind)) {
      copy.out = copy.pinned->data();
      copy.out_elems = elems;
    }
    if (bytes == 0) continue;
    lane_->Down(copy.pinned->view(),
                ConstBytes(mine[i]->in, bytes, lane_->device()));
  }
  RETURN_IF_ERROR(Finish());
  return copies;
}

absl::Status DevicePlace::CopyUp(const std::vector<Shared>& copies,
                                 const std::vector<Shared>& mine) {
  for (size_t i = 0; i < mine.size(); ++i) {
    if (mine[i] == nullptr) continue;
    const auto elems = static_cast<size_t>(copies[i]->num_elems);
    ASSIGN_OR_RETURN(std::byte* const out, ResultOf(*mine[i], elems));
    mine[i]->rows = copies[i]->rows;
    const size_t bytes = elems * SizeOf(mine[i]->request.dtype);
    if (bytes == 0) continue;
    lane_->Up(Bytes(out, bytes, lane_->device()),
              ConstBytes(copies[i]->result, bytes));
  }
  return Finish();
}

absl::Status DevicePlace::Finish() {
  const kernels::DeviceScope scope(lane_->device());
  const DeviceLane::Events events = lane_->Submit();
  absl::Status status = lane_->Wait(events.copies, Clock::now() + timeout_);
  lane_->Return(events.kernels);
  lane_->Return(events.copies);
  status.Update(lane_->status());
  status.Update(std::exchange(failed_, absl::OkStatus()));
  return status;
}

absl::StatusOr<DevicePlace*> Devices::Find(int number) {
  MutexLock lock(&mutex_);
  std::unique_ptr<DevicePlace>& place = places_[number];
  if (place == nullptr) {
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceLane> lane,
                     DeviceLane::Make(DeviceOf(number)));
    place = std::make_unique<DevicePlace>(std::move(lane), timeout_);
  }
  return place.get();
}

absl::Status Devices::Note(Submission& mine) {
  const Device device = DeviceOf(mine.request.device);
  if (kernels::IsCaptured(device, mine.stream)) {
    return absl::InvalidArgumentError(absl::StrCat(
        ToString(mine.request.kind), " \"", mine.request.name,
        "\" on a stream that records a CUDA graph: what other ranks do is no "
        "part of one; submit it outside"));
  }
  ASSIGN_OR_RETURN(DevicePlace* const place, Find(mine.request.device));
  mine.ready = place->lane().TakeEvent();
  if (place->lane().Record(mine.ready, mine.stream)) return absl::OkStatus();
  return place->lane().status();
}

}  // namespace telegrad::operations
