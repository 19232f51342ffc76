#include "kvstore/ps/worker/round_times.h"

#include "kvstore/metrics.h"

namespace telegrad {
namespace {

constexpr const char* kKindNames[] = {"Broadcast", "Broadcast", "Pull", "Push",
                                      "PushPull"};
constexpr const char* kSizeNames[] = {"0-64KB", "64KB-1MB", "1MB-16MB",
                                      "16MB-256MB", "256MB-"};
constexpr size_t kFirstSize = size_t{64} << 10;

size_t SizeOf(size_t num_bytes) {
  size_t size = 0;
  for (size_t bound = kFirstSize; num_bytes >= bound && size < 4; bound *= 16) {
    ++size;
  }
  return size;
}

}  // namespace

void RoundTimes::Add(const WorkerOp& op, size_t num_bytes) {
  const OpKind kind =
      op.kind == OpKind::kGiveValue ? OpKind::kTakeValue : op.kind;
  OfKind& of = kinds_[static_cast<size_t>(kind)];
  of.durations.Add(Clock::now() - op.started);
  OfSize& size = of.sizes[SizeOf(num_bytes)];
  size.num.fetch_add(1, std::memory_order_relaxed);
  size.num_bytes.fetch_add(static_cast<int64_t>(num_bytes),
                           std::memory_order_relaxed);
}

void RoundTimes::Collect(const std::string& algo_proto,
                         MetricsPage& page) const {
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const OfKind& of = kinds_[kind];
    bool has_any = false;
    for (size_t size = 0; size < kSizes; ++size) {
      if (of.sizes[size].num == 0) continue;
      has_any = true;
      const MetricLabels labels = {{"collective", kKindNames[kind]},
                                   {"message_size", kSizeNames[size]},
                                   {"algo_proto", algo_proto}};
      page.Add(metric::kRounds, static_cast<double>(of.sizes[size].num),
               labels);
      page.Add(metric::kRoundBytes,
               static_cast<double>(of.sizes[size].num_bytes), labels);
    }
    if (!has_any) continue;
    page.Add(metric::kRoundSeconds, of.durations,
             {{"collective", kKindNames[kind]}});
  }
}

}  // namespace telegrad
