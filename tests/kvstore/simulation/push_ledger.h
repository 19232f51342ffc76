#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kvstore/job/control/membership.h"
#include "tests/kvstore/simulation/reference_sums.h"
#include "tests/kvstore/simulation/simulated_job.h"

namespace telegrad::testing {

// What the workers of a dist_async job have pushed, and whether weights show
// each push once. Weights grow by what is pushed; each worker pushes to
// elements of its own, its place among the workers modulo their number, so that
// these tell which of its pushes are in. Threads of one VirtualWorld.
class PushLedger {
 public:
  using Say = std::function<void(std::string)>;
  PushLedger(const Scenario& scenario, Say say);

  static float Gradient(size_t place, int64_t number, size_t tensor, size_t i) {
    return GradientAt(static_cast<int>(place), number, tensor, i);
  }
  bool is_of(size_t place, size_t i) const { return i % num_places_ == place; }

  // What the eldest worker of an epoch gives servers that have nothing.
  void OnGiven(uint64_t epoch, const OfTensors& weights);
  // What a worker has at the beginning of an epoch: what the one before ended
  // with, where a push that was never answered may be in or not; or what was
  // given, of servers that have died.
  void OnBegin(const Membership& membership, const OfTensors& weights);

  // A worker sends its push `number`. By place, how many pushes of a tensor are
  // known to be in by now.
  std::vector<size_t> OnPush(uint64_t epoch, size_t place, int64_t number,
                             size_t tensor);
  // The weights that it gets for it.
  void OnAnswer(uint64_t epoch, size_t place, size_t tensor,
                const std::vector<size_t>& known, const Values& weights);
  // All pushes were answered, and nobody pushes any more.
  void OnEnd(uint64_t epoch, size_t tensor, const Values& weights);

 private:
  // Of one worker and tensor in an epoch.
  struct Pushes {
    std::vector<Values> sums;  // of none, the first, the first two
    Values residual;
    size_t num_answered = 0;
    size_t num_sent() const { return sums.size() - 1; }
  };
  struct Epoch {
    OfTensors begin;
    std::vector<int> servers;                  // their processes
    std::vector<std::vector<Pushes>> tensors;  // by tensor and place
  };
  Values Coded(Values& residual, size_t place, int64_t number,
               size_t tensor) const;
  bool MayBe(const Epoch& epoch, size_t tensor, size_t i, float value,
             size_t least, size_t most) const;

  const std::string codec_;
  const size_t num_places_;
  const std::vector<size_t> sizes_;
  const Say say_;
  std::map<uint64_t, Epoch> epochs_;  // that some worker has seen begin
  std::map<uint64_t, OfTensors> given_;
};

}  // namespace telegrad::testing
