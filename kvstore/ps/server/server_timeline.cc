#include "kvstore/ps/server/server_timeline.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/atomic_file.h"

namespace telegrad {

ServerTimeline::ServerTimeline(std::string prefix)
    : prefix_(std::move(prefix)) {
  notes_.Switch(!prefix_.empty());
}

void ServerTimeline::End(const Chunk& chunk, uint64_t round, const char* stage,
                         TimePoint begin) {
  if (notes(round)) NoteSpan(&notes_, chunk.key, chunk.index, stage, begin);
}

std::function<void()> ServerTimeline::EndsWhenSent(const Chunk& chunk,
                                                   uint64_t round) {
  if (!notes(round)) return nullptr;
  return [this, key = chunk.key, index = chunk.index, begin = Clock::now()] {
    NoteSpan(&notes_, key, index, "send", begin);
  };
}

absl::Status ServerTimeline::Write(int rank,
                                   const std::vector<std::string>& names) {
  if (prefix_.empty()) return absl::OkStatus();
  uint64_t num_left_out = 0;
  const std::vector<Timeline::Span> spans = notes_.Take(&num_left_out);
  const std::string who = absl::StrCat("server", rank);
  return WriteFileAtomically(
      absl::StrCat(prefix_, "-", who, ".json"),
      ChromeTrace(spans, kFirstPid + rank, who, names, num_left_out));
}

}  // namespace telegrad
