#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/mutex.h"
#include "transport/node.h"

namespace telegrad {

// The last operations of a member, and the headers of its last frames with each
// peer: rings that are always written, for the day on which somebody asks who
// waited for whom. A note takes a short lock and no memory once its ring is
// there. Thread-safe.
class FlightRecorder {
 public:
  static constexpr size_t kMostOps = 4096;
  static constexpr size_t kMostFrames = 4096;  // one peer's
  // All peers' together; of many peers there are fewer of each.
  static constexpr size_t kMostFramesOfAll = size_t{1} << 18;

  struct Setup {
    NodeId self;
    std::string type;             // the store's: "dist_sync"
    std::vector<int> ranks = {};  // workers', those that push first
    size_t num_pushers = 0;       // who join each round
    size_t num_servers = 0;
    Duration timeout = {};
  };
  // Who takes part in an operation.
  enum class Among : uint8_t { kRound, kBroadcast, kAlone };
  struct Op {
    const char* what = "";  // a literal: "push-pull"
    Among among = Among::kAlone;
    Dtype dtype = Dtype::kFloat32;
    uint32_t key = 0;
    uint64_t step = 0;
    uint64_t num_elems = 0;
    TimePoint created = {};
    TimePoint started = {};    // its first frame left; zero before
    TimePoint completed = {};  // zero before
    int64_t number = 0;        // among shared operations, else among the others
  };
  struct Frame {
    const char* what = "";  // a literal: "push"
    uint64_t step = 0;
    uint32_t key = 0;
    uint32_t chunk = 0;
    uint32_t num_bytes = 0;
    bool is_sent = false;
    TimePoint at = {};
  };

  explicit FlightRecorder(Setup setup);

  const Setup& setup() const { return setup_; }
  // Tensors in the order of their keys, from `first` on.
  void SetName(uint32_t key, absl::string_view name);
  // One operation of a key at a time.
  void Begin(Op op);
  void End(uint32_t key);
  // `peer`: a server's rank, or a worker's place in `ranks`.
  void Note(size_t peer, Frame frame);

  // What Python's pickle reads, as PyTorch's flight recorder has it
  // (docs/when_a_machine_dies.md). `in_place_of`: what is known of a worker
  // that cannot tell, which has joined all rounds that have ended here.
  std::string Dump(std::optional<int> in_place_of = std::nullopt) const;

 private:
  template <typename Item>
  struct Ring {
    std::vector<Item> items;  // none before the first
    uint64_t num = 0;         // noted so far
    Item& Next(size_t most) {
      if (items.empty()) items.resize(most);
      return items[num++ % items.size()];
    }
    std::vector<Item> InOrder() const;
  };
  struct Copy;
  Copy Take() const;

  const Setup setup_;
  const size_t num_peers_;
  mutable Mutex mutex_;
  Ring<Op> ops_ ABSL_GUARDED_BY(mutex_);
  std::vector<Ring<Frame>> frames_ ABSL_GUARDED_BY(mutex_);  // by peer
  std::vector<std::string> names_ ABSL_GUARDED_BY(mutex_);   // by key
  // By key, 1 + the place of the operation under way among all; 0: none.
  std::vector<uint64_t> active_ ABSL_GUARDED_BY(mutex_);
  int64_t numbers_[2] ABSL_GUARDED_BY(mutex_) = {};  // shared ones, others
};

}  // namespace telegrad
