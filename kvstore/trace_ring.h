#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/timeline.h"

namespace telegrad {

// The last spans of a process, in a file that is there whatever ends the
// process, kill -9 included: a ring in mapped memory. One thread.
//
//   file   = magic begin most num head *%x20 ring
//   magic  = "telegrad trace 1"
//   begin  = u64, where the ring is; most = u64, its spans
//   num    = u64, spans noted so far: number i is at i modulo most
//   head   = JSON {"pid", "process", "zero_us", "names"}
//   ring   = most of: what (char[24], zeros behind it), key u32, chunk u32,
//            begin i64, end i64 (nanoseconds since Clock's zero, which is
//            zero_us microseconds after 1970)
//
// All little-endian; python/telegrad/launch/traces.py reads it.
class TraceRing {
 public:
  static constexpr uint64_t kMostSpans = uint64_t{1} << 16;

  // Replaces the file. Errors: what the file system says; ResourceExhausted
  // where it has no room for the ring.
  static absl::StatusOr<std::unique_ptr<TraceRing>> Make(
      std::string path, int pid, const std::string& process,
      const std::vector<std::string>& names, uint64_t most = kMostSpans);
  ~TraceRing();  // the file stays
  TraceRing(const TraceRing&) = delete;
  TraceRing& operator=(const TraceRing&) = delete;

  void Note(const Timeline::Span& span);
  // The run has ended well: takes the file away.
  void Remove();

 private:
  TraceRing(std::string path, std::byte* map, size_t size, uint64_t begin,
            uint64_t most)
      : path_(std::move(path)),
        map_(map),
        size_(size),
        begin_(begin),
        most_(most) {}

  const std::string path_;
  std::byte* const map_;
  const size_t size_;
  const uint64_t begin_;
  const uint64_t most_;
  uint64_t num_ = 0;
};

// Keeps the last spans of `timeline` in BASE.last, and takes away BASE.json,
// which an earlier run has left. Where there is no room the run goes on
// without, with a warning.
void KeepLastIn(Timeline& timeline, const std::string& base, int pid,
                const std::string& process,
                const std::vector<std::string>& names);

}  // namespace telegrad
