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

bool IsAligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

bool IsAligned(const EncodeSpan& span) {
  return IsAligned(span.grad, 16) && IsAligned(span.residual, 16) &&
         IsAligned(span.codes, 8);
}

bool IsSame(const kernels::BlockFormat& a, const kernels::BlockFormat& b) {
  return a.block == b.block && a.bits == b.bits && a.levels == b.levels &&
         a.natural == b.natural && a.odd == b.odd;
}

// Items that one launch can take.
struct Group {
  kernels::EncodeManyFn* encode = nullptr;
  kernels::BlockFormat format = {};
  size_t tile_elems = 0;
  NonFinite nonfinite = NonFinite::kZero;
  bool is_aligned = false;
  std::vector<EncodeSpan> spans = {};

  bool Takes(const BatchPart& part, NonFinite policy) const {
    return encode == part.encode && tile_elems == part.tile_elems &&
           nonfinite == policy && IsSame(format, part.format) &&
           is_aligned == IsAligned(part.span);
  }
};

struct DecodeGroup {
  kernels::DecodeManyFn* decode = nullptr;
  kernels::BlockFormat format = {};
  size_t tile_elems = 0;
  uint32_t num_frames = 0;
  kernels::GradFormat out = kernels::GradFormat::kFloat32;
  bool is_aligned = false;
  std::vector<kernels::DecodeSpan> spans = {};

  bool Takes(const DecodeGroup& other) const {
    return decode == other.decode && tile_elems == other.tile_elems &&
           num_frames == other.num_frames && out == other.out &&
           is_aligned == other.is_aligned && IsSame(format, other.format);
  }
};

// The table's content: spans, then the span of each tile.
template <typename Span>
std::vector<std::byte> Describe(std::vector<Span>& spans, size_t tile_elems,
                                uint32_t* num_tiles) {
  std::vector<uint32_t> span_of_tile;
  for (Span& span : spans) {
    const size_t tiles = (span.num_elems + tile_elems - 1) / tile_elems;
    const auto index = static_cast<uint32_t>(&span - spans.data());
    span.first_tile = static_cast<uint32_t>(span_of_tile.size());
    span_of_tile.insert(span_of_tile.end(), tiles, index);
  }
  *num_tiles = static_cast<uint32_t>(span_of_tile.size());
  const size_t spans_bytes = Aligned(sizeof(Span) * spans.size());
  std::vector<std::byte> bytes(spans_bytes + 4 * span_of_tile.size());
  std::memcpy(bytes.data(), spans.data(), sizeof(Span) * spans.size());
  std::memcpy(bytes.data() + spans_bytes, span_of_tile.data(),
              4 * span_of_tile.size());
  return bytes;
}

// Where Describe has put the spans of tiles.
template <typename Span>
const uint32_t* SpanOfTile(const std::byte* memory,
                           const std::vector<Span>& spans) {
  return reinterpret_cast<const uint32_t*>(
      memory + Aligned(sizeof(Span) * spans.size()));
}

absl::Status Launch(Group& group, BatchTable& table) {
  EncodeBatch batch = {
      .tile_elems = static_cast<uint32_t>(group.tile_elems),
      .nonfinite = group.nonfinite,
      .is_aligned = group.is_aligned,
      .format = group.format,
  };
  const std::vector<std::byte> bytes =
      Describe(group.spans, group.tile_elems, &batch.num_tiles);
  ASSIGN_OR_RETURN(batch.tickets, table.Tickets(group.spans.size()));
  ASSIGN_OR_RETURN(std::byte* const memory,
                   table.Upload(bytes.data(), bytes.size(),
                                sizeof(EncodeStats) * batch.num_tiles));
  batch.spans = reinterpret_cast<const EncodeSpan*>(memory);
  batch.span_of_tile = SpanOfTile(memory, group.spans);
  batch.tile_stats =
      reinterpret_cast<EncodeStats*>(memory + Aligned(bytes.size()));
  group.encode(batch, table.stream());
  return table.Release();
}

absl::Status Launch(DecodeGroup& group, BatchTable& table) {
  kernels::DecodeBatch batch = {
      .num_frames = group.num_frames,
      .is_aligned = group.is_aligned,
      .format = group.format,
      .tile_elems = static_cast<uint32_t>(group.tile_elems),
      .out = group.out};
  const std::vector<std::byte> bytes =
      Describe(group.spans, group.tile_elems, &batch.num_tiles);
  ASSIGN_OR_RETURN(std::byte* const memory,
                   table.Upload(bytes.data(), bytes.size(),
                                sizeof(uint64_t) * batch.num_tiles));
  batch.spans = reinterpret_cast<const kernels::DecodeSpan*>(memory);
  batch.span_of_tile = SpanOfTile(memory, group.spans);
  batch.parts = reinterpret_cast<uint64_t*>(memory + Aligned(bytes.size()));
  group.decode(batch, table.stream());
  return table.Release();
}

absl::Status EncodeOne(const EncodeItem& item, Stream stream) {
  if (item.samples != nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("codec ", item.codec->traits().name,
                     " is encoded by itself, which takes no samples"));
  }
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
      group =
          groups.insert(group, {part->encode, part->format, part->tile_elems,
                                policy, IsAligned(part->span)});
    }
    group->spans.push_back(part->span);
  }
  for (Group& group : groups) RETURN_IF_ERROR(Launch(group, table));
  return StatusOf(table.queue());
}

absl::Status DecodeOne(const DecodeItem& item,
                       const kernels::KernelTable& kernels, Stream stream) {
  const PreparedCodec& codec = *item.codec;
  if (item.half.has_value()) {
    return absl::UnimplementedError(absl::StrCat("codec ", codec.traits().name,
                                                 " decodes to float32 only"));
  }
  RETURN_IF_ERROR(
      item.num_payloads == 0
          ? codec.Decode(item.payload, item.threshold, item.out, stream)
          : codec.DecodeSum(item.payload, item.num_payloads, item.threshold,
                            item.out, stream));
  if (item.scale != 1) {
    kernels.scale_f32(item.scale, codec.num_elems(), AsFloats(item.out),
                      stream);
  }
  return absl::OkStatus();
}

absl::Status LearnOf(const DecodeItem& item, CodecState& state, Stream stream) {
  if (item.num_payloads == 0) return absl::OkStatus();
  return item.codec->Learn(item.payload, item.num_payloads, state, stream);
}

absl::Status DecodeMany(std::span<const DecodeItem> items, BatchTable& table) {
  if (items.empty()) return absl::OkStatus();
  const Device device = table.queue().device();
  const kernels::DeviceScope scope(device);
  ASSIGN_OR_RETURN(const kernels::KernelTable* const kernels,
                   KernelsFor(1, device));
  std::vector<DecodeGroup> groups;
  for (const DecodeItem& item : items) {
    ASSIGN_OR_RETURN(const std::optional<DecodePart> part,
                     item.codec->DecodePartOf(item));
    if (!part.has_value()) {
      RETURN_IF_ERROR(DecodeOne(item, *kernels, table.stream()));
      continue;
    }
    const DecodeGroup wanted = {
        part->decode,
        part->format,
        part->tile_elems,
        item.num_payloads,
        FormatOf(item.half),
        IsAligned(part->span.out, item.half.has_value() ? 8 : 16) &&
            IsAligned(part->span.codes, 8)};
    auto group = std::find_if(
        groups.begin(), groups.end(),
        [&](const DecodeGroup& each) { return each.Takes(wanted); });
    if (group == groups.end()) group = groups.insert(group, wanted);
    group->spans.push_back(part->span);
  }
  for (DecodeGroup& group : groups) RETURN_IF_ERROR(Launch(group, table));
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
    const size_t num_elems = item.grad.size / (item.half.has_value() ? 2 : 4);
    if (item.residual.size != 0 && item.residual.size != 4 * num_elems) {
      return absl::InvalidArgumentError(
          absl::StrCat("residual of ", item.residual.size,
                       " bytes, gradient of ", item.grad.size));
    }
    spans.push_back(
        {item.grad.data,
         item.residual.size == 0 ? nullptr : AsFloats(item.residual), num_elems,
         item.mean_square, FormatOf(item.half)});
  }
  if (kernels->batch.sampled_power == nullptr) {
    for (const kernels::PowerSpan& span : spans) {
      if (span.format != kernels::GradFormat::kFloat32) {
        return absl::UnimplementedError("powers of 16-bit floats on a CPU");
      }
      kernels->sampled_power(static_cast<const float*>(span.grad),
                             span.residual, span.num_elems, span.mean_square,
                             table.stream());
    }
    return StatusOf(table.queue());
  }
  ASSIGN_OR_RETURN(const auto* const uploaded,
                   table.Upload(spans.data(), spans.size()));
  kernels->batch.sampled_power(uploaded, static_cast<uint32_t>(spans.size()),
                               table.stream());
  return table.Release();
}

absl::Status PushMomentumMany(std::span<const kernels::MomentumSpan> items,
                              BatchTable& table) {
  if (items.empty()) return absl::OkStatus();
  const Device device = table.queue().device();
  const kernels::DeviceScope scope(device);
  ASSIGN_OR_RETURN(const kernels::KernelTable* const kernels,
                   KernelsFor(1, device));
  if (kernels->batch.push_momentum == nullptr) {
    for (const kernels::MomentumSpan& item : items) {
      kernels->optimizer.push_momentum(item.grad, item.num_elems, item.rate,
                                       item.leads, item.momentum, item.out,
                                       table.stream());
    }
    return StatusOf(table.queue());
  }
  bool is_aligned = true;
  uint64_t most = 0;
  for (const kernels::MomentumSpan& item : items) {
    most = std::max(most, item.num_elems);
    is_aligned &= IsAligned(item.grad, 16) && IsAligned(item.momentum, 16) &&
                  IsAligned(item.out, 16);
  }
  ASSIGN_OR_RETURN(const auto* const uploaded,
                   table.Upload(items.data(), items.size()));
  kernels->batch.push_momentum(uploaded, static_cast<uint32_t>(items.size()),
                               most, is_aligned, table.stream());
  return table.Release();
}

}  // namespace telegrad
