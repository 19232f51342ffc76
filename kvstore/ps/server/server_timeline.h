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
// of a training (kvstore/timeline.h). Any thread.
class ServerTimeline {
 public:
  // The first process number in traces, which no worker has, so that traces of
  // a job can be shown together.
  static constexpr int kFirstPid = 100000;

  // Nothing is noted where `prefix` is empty.
  explicit ServerTimeline(std::string prefix);

  bool notes(uint64_t round) const {
    return !prefix_.empty() && round >= kFirstNotedStep &&
           round < kFirstNotedStep + kNumNotedSteps;
  }
  // When a stage begins; without meaning in rounds that are not noted.
  TimePoint Begin(uint64_t round) const {
    return notes(round) ? Clock::now() : TimePoint();
  }
  void End(const Chunk& chunk, uint64_t round, const char* stage,
           TimePoint begin);
  // Called when a frame has left; null in rounds that are not noted.
  std::function<void()> EndsWhenSent(const Chunk& chunk, uint64_t round);

  // The Chrome trace PREFIX-server<rank>.json; `names` by key.
  absl::Status Write(int rank, const std::vector<std::string>& names);

 private:
  const std::string prefix_;
  Timeline notes_;
};

}  // namespace telegrad
