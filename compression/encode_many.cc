#include "compression/encode_many.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/payload_views.h"
#include "kernels/device_scope.h"
#include "kernels/dispatch.h"

namespace telegrad {
namespace {

using kernels::EncodeBatch;
using kernels::EncodeSpan;

// Rounded up, so that what lies behind is aligned for every array.
size_t Aligned(size_t size) { return (size + 15) / 16 * 16; }

absl::Status NoRoom(kernels::DeviceQueue& queue, size_t wanted) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "table of chunks of ", wanted, " bytes: ", queue.TakeError()));
}

// Items that one launch can take.
struct Group {
  kernels::EncodeManyFn* encode = nullptr;
  kernels::BlockFormat format = {};
  size_t tile_elems = 0;
  NonFinite nonfinite = NonFinite::kZero;
  std::vector<EncodeSpan> spans = {};

  bool Takes(const BatchPart& part, NonFinite policy) const {
    return encode == part.encode && tile_elems == part.tile_elems &&
           nonfinite == policy && format.block == part.format.block &&
           format.bits == part.format.bits &&
           format.levels == part.format.levels;
  }
};

bool IsAligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// The table's content: spans, then the span of each tile.
std::vector<std::byte> Describe(Group& group, EncodeBatch* batch) {
  std::vector<uint32_t> span_of_tile;
  batch->is_aligned = true;
  for (EncodeSpan& span : group.spans) {
    const size_t tiles =
        (span.num_elems + group.tile_elems - 1) / group.tile_elems;
    const auto index = static_cast<uint32_t>(&span - group.spans.data());
    span.first_tile = static_cast<uint32_t>(span_of_tile.size());
    span_of_tile.insert(span_of_tile.end(), tiles, index);
    batch->is_aligned &= IsAligned(span.grad, 16) &&
                         IsAligned(span.residual, 16) &&
                         IsAligned(span.codes, 8);
  }
  batch->num_tiles = static_cast<uint32_t>(span_of_tile.size());
  batch->tile_elems = static_cast<uint32_t>(group.tile_elems);
  batch->nonfinite = group.nonfinite;
  batch->format = group.format;
  const size_t spans_bytes = Aligned(sizeof(EncodeSpan) * group.spans.size());
  std::vector<std::byte> bytes(spans_bytes + 4 * span_of_tile.size());
  std::memcpy(bytes.data(), group.spans.data(),
              sizeof(EncodeSpan) * group.spans.size());
  std::memcpy(bytes.data() + spans_bytes, span_of_tile.data(),
              4 * span_of_tile.size());
  return bytes;
}

absl::Status Launch(Group& group, BatchTable& table) {
  EncodeBatch batch;
  const std::vector<std::byte> bytes = Describe(group, &batch);
  ASSIGN_OR_RETURN(batch.tickets, table.Tickets(group.spans.size()));
  ASSIGN_OR_RETURN(std::byte* const memory,
                   table.Upload(bytes.data(), bytes.size(),
                                sizeof(EncodeStats) * batch.num_tiles));
  batch.spans = reinterpret_cast<const EncodeSpan*>(memory);
  batch.span_of_tile = reinterpret_cast<const uint32_t*>(
      memory + Aligned(sizeof(EncodeSpan) * group.spans.size()));
  batch.tile_stats =
      reinterpret_cast<EncodeStats*>(memory + Aligned(bytes.size()));
  group.encode(batch, table.stream());
  return table.Release();
}

absl::Status EncodeOne(const EncodeItem& item, Stream stream) {
  if (!item.half.has_value()) {
    return item.codec->Encode(item.grad, *item.state, item.params, item.out,
                              item.result, stream);
  }
  return item.codec->EncodeHalf(*item.half, item.grad, *item.state, item.params,
                                item.out, item.result, stream);
}

absl::Status StatusOf(kernels::DeviceQueue& queue) {
  const std::string error = queue.TakeError();
  return error.empty() ? absl::OkStatus() : LaunchFault(error);
}

}  // namespace

struct BatchTable::Slot {
  Buffer pinned;
  Buffer memory;
  Event event;
  bool is_used = false;  // until the event
};

BatchTable::BatchTable(kernels::DeviceQueue* queue, Stream stream)
    : queue_(queue), stream_(stream) {}

BatchTable::~BatchTable() = default;

absl::StatusOr<BatchTable::Slot*> BatchTable::TakeSlot(size_t pinned,
                                                       size_t memory) {
  Slot* slot = nullptr;
  for (const auto& each : slots_) {
    using State = kernels::DeviceQueue::State;
    if (each->is_used && queue_->Poll(each->event) == State::kRunning) continue;
    slot = each.get();
    break;
  }
  if (slot == nullptr) slot = AddSlot();
  // With room to grow, so that groups of all sizes are soon served.
  if (slot->pinned.size() < pinned || slot->memory.size() < memory) {
    RETURN_IF_ERROR(Grow(*slot, 2 * pinned, 2 * memory));
  }
  return slot;
}

BatchTable::Slot* BatchTable::AddSlot() {
  slots_.push_back(std::make_unique<Slot>());
  slots_.back()->event = queue_->MakeEvent();
  return slots_.back().get();
}

absl::Status BatchTable::Grow(Slot& slot, size_t pinned, size_t memory) {
  if (slot.pinned.size() < pinned) {
    slot.pinned = kernels::HostMemory(*queue_, pinned);
  }
  if (slot.memory.size() < memory) {
    slot.memory = queue_->MakeMemory(memory, stream_);
    if (slot.memory.size() < memory) return NoRoom(*queue_, memory);
  }
  return absl::OkStatus();
}

absl::Status BatchTable::Reserve(size_t count, size_t pinned, size_t memory) {
  while (slots_.size() < count) AddSlot();
  for (const auto& slot : slots_) {
    RETURN_IF_ERROR(Grow(*slot, pinned, memory));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> BatchTable::Upload(const void* from, size_t size,
                                              size_t scratch) {
  ASSIGN_OR_RETURN(used_, TakeSlot(size, Aligned(size) + scratch));
  std::memcpy(used_->pinned.data(), from, size);
  if (!queue_->Copy(used_->memory.view(), {used_->pinned.data(), size},
                    stream_)) {
    return StatusOf(*queue_);
  }
  return used_->memory.data();
}

absl::Status BatchTable::Release() {
  used_->is_used = true;
  queue_->Record(used_->event, stream_);
  used_ = nullptr;
  return StatusOf(*queue_);
}

absl::StatusOr<uint32_t*> BatchTable::Tickets(size_t count) {
  if (tickets_.size() < 4 * count) {
    tickets_ = queue_->MakeMemory(8 * count, stream_);
    if (tickets_.size() < 4 * count) return NoRoom(*queue_, 8 * count);
  }
  return tickets_.as<uint32_t>();
}

absl::Status EncodeMany(std::span<const EncodeItem> items, BatchTable& table) {
  const kernels::DeviceScope scope(table.queue().device());
  std::vector<Group> groups;
  for (const EncodeItem& item : items) {
    ASSIGN_OR_RETURN(const std::optional<BatchPart> part,
                     item.codec->BatchPartOf(item, table.stream()));
    if (!part.has_value()) {
      RETURN_IF_ERROR(EncodeOne(item, table.stream()));
      continue;
    }
    const NonFinite policy = item.params.nonfinite;
    auto group = std::find_if(
        groups.begin(), groups.end(),
        [&](const Group& each) { return each.Takes(*part, policy); });
    if (group == groups.end()) {
      group = groups.insert(
          group, {part->encode, part->format, part->tile_elems, policy});
    }
    group->spans.push_back(part->span);
  }
  for (Group& group : groups) RETURN_IF_ERROR(Launch(group, table));
  return StatusOf(table.queue());
}

absl::Status SampledPowerMany(std::span<const PowerItem> items,
                              BatchTable& table) {
  if (items.empty()) return absl::OkStatus();
  const Device device = table.queue().device();
  const kernels::DeviceScope scope(device);
  ASSIGN_OR_RETURN(const kernels::KernelTable* const kernels,
                   KernelsFor(1, device));
  std::vector<kernels::PowerSpan> spans;
  spans.reserve(items.size());
  for (const PowerItem& item : items) {
    if (item.residual.size != 0 && item.residual.size != item.grad.size) {
      return absl::InvalidArgumentError(
          absl::StrCat("residual of ", item.residual.size,
                       " bytes, gradient of ", item.grad.size));
    }
    spans.push_back(
        {AsFloats(item.grad),
         item.residual.size == 0 ? nullptr : AsFloats(item.residual),
         item.grad.size / 4, item.mean_square});
  }
  if (kernels->batch.sampled_power == nullptr) {
    for (const kernels::PowerSpan& span : spans) {
      kernels->sampled_power(span.grad, span.residual, span.num_elems,
                             span.mean_square, table.stream());
    }
    return StatusOf(table.queue());
  }
  ASSIGN_OR_RETURN(
      std::byte* const memory,
      table.Upload(spans.data(), sizeof(kernels::PowerSpan) * spans.size(), 0));
  kernels->batch.sampled_power(
      reinterpret_cast<const kernels::PowerSpan*>(memory),
      static_cast<uint32_t>(spans.size()), table.stream());
  return table.Release();
}

absl::Status PushMomentumMany(std::span<const kernels::MomentumSpan> items,
                              BatchTable& table) {
  if (items.empty()) return absl::OkStatus();
  const Device device = table.queue().device();
  const kernels::DeviceScope scope(device);
  ASSIGN_OR_RETURN(const kernels::KernelTable* const kernels,
                   KernelsFor(1, device));
  bool is_aligned = true;
  uint64_t most = 0;
  for (const kernels::MomentumSpan& item : items) {
    most = std::max(most, item.num_elems);
    is_aligned &= IsAligned(item.grad, 16) && IsAligned(item.momentum, 16) &&
                  IsAligned(item.out, 16);
    if (kernels->batch.push_momentum != nullptr) continue;
    kernels->optimizer.push_momentum(item.grad, item.num_elems, item.rate,
                                     item.leads, item.momentum, item.out,
                                     table.stream());
  }
  if (kernels->batch.push_momentum == nullptr) return StatusOf(table.queue());
  ASSIGN_OR_RETURN(std::byte* const memory,
                   table.Upload(items.data(), items.size_bytes(), 0));
  kernels->batch.push_momentum(
      reinterpret_cast<const kernels::MomentumSpan*>(memory),
      static_cast<uint32_t>(items.size()), most, is_aligned, table.stream());
  return table.Release();
}

}  // namespace telegrad
