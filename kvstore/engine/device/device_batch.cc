#include "kvstore/engine/device/device_batch.h"

#include <utility>

#include "base/status_macros.h"
#include "kernels/device_scope.h"
#include "kernels/tool_range.h"

namespace telegrad {
namespace {

// Uploads of a group: samples before and after, powers, momentum, one for each
// kind of codec and one for answers; of as many groups as a store has under
// way.
constexpr size_t kUploads = 24;
// The smallest tile of a batch: that of sparse encoders.
constexpr size_t kLeastTile = kernels::kSparseTile;
static_assert(kLeastTile <= kernels::kBatchTile / 2, "tiles of whole blocks");

}  // namespace

DeviceBatch::DeviceBatch(kernels::DeviceQueue* queue,
                         const kernels::KernelTable* kernels, Stream stream)
    : kernels_(*kernels), table_(queue, stream) {}

void DeviceBatch::Expect(size_t num_chunks, size_t num_elems) {
  MutexLock lock(&mutex_);
  num_chunks_ += num_chunks;
  num_elems_ += num_elems;
}

absl::Status DeviceBatch::Prepare() {
  if (kernels_.batch.sampled_power == nullptr) return absl::OkStatus();
  MutexLock lock(&mutex_);
  // Two samples of a chunk are its gradient's and its residual's.
  const size_t num_spans = 2 * num_chunks_;
  const size_t num_tiles = num_chunks_ + num_elems_ / kLeastTile;
  const size_t table = sizeof(kernels::EncodeSpan) * num_spans + 4 * num_tiles;
  RETURN_IF_ERROR(table_.Tickets(num_spans).status());
  return table_.Reserve(kUploads, table + 64,
                        table + 64 + sizeof(EncodeStats) * num_tiles);
}

void DeviceBatch::Encode(const EncodeItem& item,
                         std::function<absl::Status()> then) {
  items_.push_back(item);
  thens_.push_back(std::move(then));
}

absl::Status DeviceBatch::LaunchPowers() {
  MutexLock lock(&mutex_);
  const absl::Status status = SampledPowerMany(powers_, table_);
  powers_.clear();
  return status;
}

absl::Status DeviceBatch::Launch() {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    status = LaunchAll();
    status.Update(LaunchDecodes());
  }
  gathers_.clear();
  powers_.clear();
  momenta_.clear();
  items_.clear();
  thens_.clear();
  decodes_.clear();
  decode_thens_.clear();
  kept_.clear();
  return status;
}

absl::Status DeviceBatch::LaunchAll() {
  if (gathers_.empty() && powers_.empty() && momenta_.empty() &&
      items_.empty()) {
    return absl::OkStatus();
  }
  const kernels::ToolRange range("encode");
  RETURN_IF_ERROR(SampledPowerMany(powers_, table_));
  RETURN_IF_ERROR(PushMomentumMany(momenta_, table_));
  RETURN_IF_ERROR(LaunchGathers());
  RETURN_IF_ERROR(EncodeMany(items_, table_));
  for (const auto& then : thens_) RETURN_IF_ERROR(then());
  return LaunchGathers();
}

absl::Status DeviceBatch::LaunchDecodes() {
  if (decodes_.empty()) return absl::OkStatus();
  const kernels::ToolRange range("decode");
  RETURN_IF_ERROR(DecodeMany(decodes_, table_));
  for (const auto& then : decode_thens_) RETURN_IF_ERROR(then());
  return absl::OkStatus();
}

absl::Status DeviceBatch::LaunchGathers() {
  if (gathers_.empty()) return absl::OkStatus();
  const auto count = static_cast<uint32_t>(gathers_.size());
  auto* const gather = kernels::GatherKernelsOf(kernels_.device).gather_many;
  if (kernels_.device == DeviceKind::kCpu) {
    gather(gathers_.data(), count, table_.stream());
  } else {
    ASSIGN_OR_RETURN(const auto* const spans,
                     table_.Upload(gathers_.data(), count));
    const kernels::DeviceScope scope(table_.queue().device());
    gather(spans, count, table_.stream());
    RETURN_IF_ERROR(table_.Release());
  }
  gathers_.clear();
  return absl::OkStatus();
}

}  // namespace telegrad
