#include "kvstore/ps/server/server_metrics.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kvstore/metrics.h"

namespace telegrad {
namespace {

constexpr size_t kMostWorkers = 20;  // who are waited for most

}  // namespace

void ServerMetrics::CountPush(const FrameHeader& header, size_t raw_bytes,
                              ServedChunk& chunk, bool is_last) {
  const TimePoint now = Clock::now();
  ++num_frames_;
  pushed_.Add(header.codec, raw_bytes,
              kFrameHeaderBytes + header.payload_bytes);
  if (chunk.num_arrived == 1) chunk.first_at = now;
  if (is_last) waited_for_[header.source] += (now - chunk.last_at).count();
  chunk.last_at = now;
}

void ServerMetrics::CountAnswer(const FrameHeader& header, size_t raw_bytes) {
  ++num_frames_;
  pulled_.Add(CodecOfResult(header), raw_bytes,
              kFrameHeaderBytes + header.payload_bytes);
}

void ServerMetrics::Collect(MetricsPage& page) const {
  pushed_.Collect(metric::kPushRaw, metric::kPushWire, page);
  pulled_.Collect(metric::kPullRaw, metric::kPullWire, page);
  page.Add(metric::kFrames, static_cast<double>(num_frames_));
  page.Add(metric::kRoundSeconds, rounds_, {{"collective", "Sum"}});
  page.Add(metric::kDuplicates, static_cast<double>(num_duplicates_));
  page.Add(metric::kRefused, static_cast<double>(num_refused_connections_),
           {{"what", "connection"}});
  page.Add(metric::kRefused, static_cast<double>(num_refused_frames_),
           {{"what", "frame"}});
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (late_[i] == 0 || i >= kMostWorkers) continue;
    page.Add(metric::kLatePushes, static_cast<double>(late_[i]),
             {{"worker", absl::StrCat(ranks_[i])}});
  }
  std::vector<std::pair<Duration::rep, int>> workers;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    workers.emplace_back(waited_for_[i], ranks_[i]);
  }
  std::ranges::sort(workers, std::greater<>());
  for (size_t i = 0; i < std::min(workers.size(), kMostWorkers); ++i) {
    page.Add(metric::kWaitedFor, ToSeconds(Duration(workers[i].first)),
             {{"worker", absl::StrCat(workers[i].second)}});
  }
}

}  // namespace telegrad
