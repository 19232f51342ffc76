#include "perf/payload_memory.h"

#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "kernels/device_queue.h"

namespace telegrad::perf {
namespace {

constexpr int kMostGpus = 1024;

absl::Status CheckGpu(absl::string_view memory, int ordinal) {
  std::string why_not;
  const Device device{DeviceKind::kCuda, ordinal};
  if (kernels::MakeDeviceQueue(device, &why_not) != nullptr) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--memory ", memory, ": ", why_not));
}

int NumGpus() {
  int count = 0;
  while (count < kMostGpus &&
         kernels::MakeDeviceQueue({DeviceKind::kCuda, count}, nullptr)) {
    ++count;
  }
  return count;
}

}  // namespace

absl::StatusOr<Device> PayloadDevice(absl::string_view memory, int rank) {
  if (memory == "host") return Device{};
  if (memory == "cuda") {
    RETURN_IF_ERROR(CheckGpu(memory, 0));
    return Device{DeviceKind::kCuda, rank % NumGpus()};
  }
  absl::string_view number = memory;
  int ordinal = -1;
  if (!absl::ConsumePrefix(&number, "cuda:") ||
      !absl::SimpleAtoi(number, &ordinal) || ordinal < 0 ||
      ordinal >= kMostGpus) {
    return absl::InvalidArgumentError(
        absl::StrCat("--memory ", memory, " is none of host, cuda, cuda:1"));
  }
  RETURN_IF_ERROR(CheckGpu(memory, ordinal));
  return Device{DeviceKind::kCuda, ordinal};
}

absl::StatusOr<std::unique_ptr<PayloadMemory>> PayloadMemory::Make(
    Device device, size_t size) {
  std::unique_ptr<PayloadMemory> made(new PayloadMemory());
  if (device == Device{}) {
    made->memory_ = Buffer(size);
    return made;
  }
  ASSIGN_OR_RETURN(made->lane_, DeviceLane::Make(device));
  ASSIGN_OR_RETURN(made->memory_, made->lane_->MakeMemory(size));
  made->pinned_ = made->lane_->MakeHostMemory(size);
  return made;
}

Bytes PayloadMemory::view(size_t size) const {
  return Bytes(memory_.data(), size, memory_.view().device);
}

absl::Status PayloadMemory::Write(ConstBytes from) {
  if (from.size == 0) return absl::OkStatus();
  std::memcpy(lane_ == nullptr ? memory_.data() : pinned_.data(), from.data,
              from.size);
  if (lane_ == nullptr) return absl::OkStatus();
  return lane_->CopyNow(view(from.size), {pinned_.data(), from.size}, {});
}

absl::Status PayloadMemory::Read(Bytes to) {
  if (to.size == 0) return absl::OkStatus();
  if (lane_ != nullptr) {
    RETURN_IF_ERROR(
        lane_->CopyNow({pinned_.data(), to.size}, view(to.size), {}));
  }
  std::memcpy(to.data, lane_ == nullptr ? memory_.data() : pinned_.data(),
              to.size);
  return absl::OkStatus();
}

}  // namespace telegrad::perf
