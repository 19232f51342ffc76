#include "kvstore/ps/server/server_timeline.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/atomic_file.h"
#include "kvstore/trace_ring.h"

namespace telegrad {

ServerTimeline::ServerTimeline(std::string prefix)
    : prefix_(std::move(prefix)) {
  notes_.Switch(!prefix_.empty());
}

void ServerTimeline::End(const Chunk& chunk, uint64_t round, const char* stage,
                         TimePoint begin) {
  if (prefix_.empty()) return;
  NoteSpan(&last_, chunk.key, chunk.index, stage, begin);
  if (IsNoted(round)) {
    NoteSpan(&notes_, chunk.key, chunk.index, stage, begin);
  }
}

std::function<void()> ServerTimeline::EndsWhenSent(const Chunk& chunk,
                                                   uint64_t round) {
  if (prefix_.empty()) return nullptr;
  return [this, chunk, round, begin = Clock::now()] {
    End(chunk, round, "send", begin);
  };
}

std::string ServerTimeline::PathOf(int rank, const char* ending) const {
  return absl::StrCat(prefix_, "-server", rank, ending);
}

void ServerTimeline::KeepLast(int rank, const std::vector<std::string>& names) {
  if (prefix_.empty()) return;
  KeepLastIn(last_, PathOf(rank, ""), kFirstPid + rank,
             absl::StrCat("server", rank), names);
}

absl::Status ServerTimeline::Write(int rank,
                                   const std::vector<std::string>& names) {
  if (prefix_.empty()) return absl::OkStatus();
  uint64_t num_left_out = 0;
  const std::vector<Timeline::Span> spans = notes_.Take(&num_left_out);
  last_.ForgetLast();
  return WriteFileAtomically(
      PathOf(rank, ".json"),
      ChromeTrace(spans, kFirstPid + rank, absl::StrCat("server", rank), names,
                  num_left_out));
}

}  // namespace telegrad
