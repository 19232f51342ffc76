#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kvstore/engine/codec/shard_plan.h"
#include "kvstore/timeline.h"

namespace telegrad {

// Notes what a server does in the rounds of each chunk that are the noted steps
// of a training (kvstore/timeline.h), and in a ring of its own the last ones,
// for a job that does not end well. Any thread.
class ServerTimeline {
 public:
  // The first process number in traces, which no worker has, so that traces of
  // a job can be shown together.
  static constexpr int kFirstPid = 100000;

  // Nothing is noted where `prefix` is empty.
  explicit ServerTimeline(std::string prefix);

  // When the tensors are known, and again when there are more. Without `prefix`
  // nothing is done.
  void KeepLast(int rank, const std::vector<std::string>& names);
  // When a stage begins; without meaning where nothing is noted.
  TimePoint Begin() const {
    return prefix_.empty() ? TimePoint() : Clock::now();
  }
  void End(const Chunk& chunk, uint64_t round, const char* stage,
           TimePoint begin);
  // Called when a frame has left; null where nothing is noted.
  std::function<void()> EndsWhenSent(const Chunk& chunk, uint64_t round);

  // The Chrome trace PREFIX-server<rank>.json; `names` by key.
  absl::Status Write(int rank, const std::vector<std::string>& names);

 private:
  static bool IsNoted(uint64_t round) {
    return round >= kFirstNotedStep && round < kFirstNotedStep + kNumNotedSteps;
  }
  std::string PathOf(int rank, const char* ending) const;

  const std::string prefix_;
  Timeline notes_;
  Timeline last_;
};

}  // namespace telegrad
