#include "kvstore/nccl/group_device.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "kernels/device_scope.h"
#include "kvstore/engine/codec/checks.h"
#include "kvstore/engine/codec/floats.h"

namespace telegrad {
namespace {

using kernels::EncodeStats;
using State = kernels::DeviceQueue::State;

constexpr size_t kWarmElems = 64;

Bytes PlaceOfStats(EncodeStats* stats, Device device) {
  return {stats, sizeof(EncodeStats), device};
}

}  // namespace

GroupDevice::GroupDevice(std::unique_ptr<DeviceLane> lane,
                         const GroupOptions& options,
                         const OptimizerConfig& optimizer,
                         bool counts_nonfinite)
    : lane_(std::move(lane)),
      index_(static_cast<size_t>(options.rank)),
      timeout_(options.timeout),
      optimizer_(optimizer),
      counts_nonfinite_(counts_nonfinite) {}

absl::StatusOr<std::unique_ptr<GroupDevice>> GroupDevice::Make(
    const GroupOptions& options, Device place, const OptimizerConfig& optimizer,
    bool counts_nonfinite, const AddressExchange& exchange) {
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceLane> lane, DeviceLane::Make(place));
  std::unique_ptr<GroupDevice> device(
      new GroupDevice(std::move(lane), options, optimizer, counts_nonfinite));
  RETURN_IF_ERROR(device->WarmUp());
  ASSIGN_OR_RETURN(device->members_, Group::Make(options, exchange));
  return device;
}

// A driver loads a kernel when it is launched first, which may wait for all
// that the device does: for a sum, which waits for other devices.
absl::Status GroupDevice::WarmUp() {
  ASSIGN_OR_RETURN(scratch_, lane_->MakeMemory(sizeof(EncodeStats)));
  ASSIGN_OR_RETURN(const Buffer floats, lane_->MakeMemory(4 * kWarmElems));
  ASSIGN_OR_RETURN(const Buffer halves, lane_->MakeMemory(4 * kWarmElems));
  const kernels::DeviceScope scope(lane_->device());
  const kernels::KernelTable& table = lane_->kernels();
  auto* const stats = scratch_.as<EncodeStats>();
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    for (const size_t skew : {size_t{0}, size_t{1}}) {
      const Bytes at(halves.data() + SizeOf(dtype) * skew,
                     SizeOf(dtype) * kWarmElems, halves.view().device);
      Widen(table, at, dtype, kWarmElems, floats.as<float>(), lane_->stream());
      Narrow(table, floats.as<float>(), kWarmElems, at, dtype, stats,
             lane_->stream());
    }
  }
  table.count_nonfinite(floats.as<float>(), kWarmElems, stats, lane_->stream());
  table.scale_f32(1, kWarmElems, floats.as<float>(), lane_->stream());
  const DeviceLane::Events events = lane_->Submit();
  absl::Status status = lane_->Wait(events.copies, Clock::now() + timeout_);
  lane_->Return(events.kernels);
  lane_->Return(events.copies);
  status.Update(lane_->status());
  return status;
}

absl::Status GroupDevice::Place(
    std::span<const std::unique_ptr<GroupTensor>> tensors) {
  const size_t bytes = tensors.size() * sizeof(EncodeStats);
  ASSIGN_OR_RETURN(Buffer counted, lane_->MakeMemory(bytes));
  Buffer copied = lane_->MakeHostMemory(bytes);
  std::fill_n(copied.as<EncodeStats>(), tensors.size(), EncodeStats{});
  RETURN_IF_ERROR(lane_->CopyNow(counted.view(), copied.view(), {}));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& spec = tensors[i]->spec;
    absl::StatusOr<Buffer> values = lane_->MakeMemory(4 * spec.num_elems);
    if (!values.ok()) {
      const absl::Status& why = values.status();
      return WithExitCode(
          ExitCodeOf(why),
          absl::Status(why.code(), absl::StrCat("tensor ", spec.name, ": ",
                                                why.message())));
    }
    tensors[i]->places.push_back(
        {*std::move(values), counted.as<EncodeStats>() + i,
         copied.as<EncodeStats>() + i, counted.data()});
  }
  blocks_.push_back(std::move(counted));
  blocks_.push_back(std::move(copied));
  return absl::OkStatus();
}

bool GroupDevice::Queue(std::shared_ptr<GroupBucket> bucket,
                        void (*wake)(void*), void* argument) {
  if (under_way_.empty()) since_ = Clock::now();
  UnderWay& added = under_way_.emplace_back();
  added.bucket = std::move(bucket);
  if (status_.ok()) {
    status_.Update(Begin(*added.bucket));
    added.events = lane_->Submit();
    status_.Update(lane_->status());
    lane_->Notify(wake, argument);
  }
  added.status = status_;
  return status_.ok();
}

absl::Status GroupDevice::Begin(const GroupBucket& bucket) {
  if (bucket.ops[0]->kind != GroupKind::kPull) RETURN_IF_ERROR(Sum(bucket));
  for (const auto& op : bucket.ops) {
    if (!op->outs.empty()) {
      lane_->Follow(op->events[index_].out);
      Narrow(lane_->kernels(), op->tensor->places[index_].values.as<float>(),
             op->tensor->spec.num_elems, op->outs[index_].bytes,
             op->tensor->spec.dtype, scratch_.as<EncodeStats>(),
             lane_->stream());
    }
    lane_->Record(op->events[index_].ended, lane_->stream());
  }
  return absl::OkStatus();
}

// All take part in the sum before the host knows that a gradient is none.
absl::Status GroupDevice::Sum(const GroupBucket& bucket) {
  const kernels::KernelTable& table = lane_->kernels();
  const Stream stream = lane_->stream();
  const bool is_broadcast = bucket.ops[0]->kind == GroupKind::kBroadcast ||
                            bucket.ops[0]->kind == GroupKind::kSpread;
  std::vector<Group::Part> parts;
  for (const auto& op : bucket.ops) {
    const GroupTensor::Place& place = op->tensor->places[index_];
    const size_t count = op->tensor->spec.num_elems;
    auto* const floats = place.values.as<float>();
    parts.push_back({floats, count});
    if (!op->grads.empty()) {
      lane_->Follow(op->events[index_].grad);
      Widen(table, op->grads[index_].bytes, op->tensor->spec.dtype, count,
            floats, stream);
    }
    if (!counts_nonfinite_ || is_broadcast) continue;
    table.count_nonfinite(floats, count, place.stats, stream);
    lane_->Down(PlaceOfStats(place.copied, {}),
                PlaceOfStats(place.stats, lane_->device()), place.block);
  }
  RETURN_IF_ERROR(lane_->status());
  const CollectiveSettings settings = {.stream = stream};
  if (is_broadcast) {
    for (const Group::Part& part : parts) {
      RETURN_IF_ERROR(members_->Broadcast(part.data, part.count,
                                          Dtype::kFloat32, 0, settings));
    }
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(
      members_->AllreduceAll(parts, Dtype::kFloat32, ReduceOp::kSum, settings));
  for (const Group::Part& part : parts) {
    ScaleResult(optimizer_, table, part.count, static_cast<float*>(part.data),
                stream);
  }
  return absl::OkStatus();
}

std::optional<GroupDevice::Ended> GroupDevice::TakeEnded() {
  if (under_way_.empty()) {
    // The others hear of it, after who has called this.
    if (!status_.ok()) members_.reset();
    return std::nullopt;
  }
  UnderWay& first = under_way_.front();
  if (lane_->Poll(first.events.copies) != State::kPassed) {
    if (!IsLost(first)) return std::nullopt;
    first.status.Update(status_);
  }
  Ended ended = {std::move(first.bucket), {}};
  for (const auto& op : ended.bucket->ops) {
    absl::Status& status = ended.statuses.emplace_back(first.status);
    const EncodeStats& seen = *op->tensor->places[index_].copied;
    if (!status.ok() || seen.num_nonfinite == 0) continue;
    status = NonFiniteError(absl::StrCat("device/", index_),
                            static_cast<int>(index_), op->tensor->spec,
                            op->step, seen);
  }
  lane_->Return(first.events.kernels);
  lane_->Return(first.events.copies);
  under_way_.pop_front();
  since_ = Clock::now();
  return ended;
}

// The device has not done it: will it ever? If not, the group's part is ended,
// so that nothing uses the caller's memory any more.
bool GroupDevice::IsLost(const UnderWay& first) {
  absl::Status why;
  if (lane_->Poll(first.events.copies) == State::kFailed) {
    why = lane_->status();
    if (why.ok()) why = DeviceFault("what was queued failed");
  } else {
    why = members_ == nullptr ? status_ : members_->Check();
  }
  if (why.ok() && Clock::now() >= since_ + timeout_) {
    why = absl::DeadlineExceededError("a device did not end in time");
  }
  if (why.ok()) return false;
  status_.Update(why);
  members_.reset();
  lane_->Wait(first.events.copies, Clock::now() + kCancelGrace).IgnoreError();
  return true;
}

void GroupDevice::Close() {
  if (members_ != nullptr) members_->Barrier().IgnoreError();
  members_.reset();
}

}  // namespace telegrad
