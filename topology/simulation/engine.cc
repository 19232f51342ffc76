#include "topology/simulation/engine.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace telegrad {
namespace {

constexpr int kSettlingSteps = 2;
constexpr int kMeasuredSteps = 2;

struct Chunk {
  size_t tensor = 0;
  double elems = 0;
  size_t stage = 0;
  size_t pending = 0;  // uses of the stage that have not ended
};

struct Event {
  enum class Kind : uint8_t { kCompute, kUseEnds, kStageStarts };
  double time = 0;
  uint64_t order = 0;  // counts events as they are made; equal times keep it
  Kind kind = Kind::kCompute;
  size_t chunk = 0;
  size_t resource = 0;
  bool operator<(const Event& other) const {  // a heap's top is the largest
    return std::tie(other.time, other.order) < std::tie(time, order);
  }
};

// A chunk that waits for a resource; the least is served first.
struct Waiter {
  uint64_t rank = 0;
  uint64_t order = 0;
  size_t chunk = 0;
  double seconds = 0;
  bool operator<(const Waiter& other) const {
    return std::tie(other.rank, other.order) < std::tie(rank, order);
  }
};

struct Server {  // a queue before one resource
  bool is_busy = false;
  std::priority_queue<Waiter> waiting = {};
};

class Engine {
 public:
  explicit Engine(const Play& play)
      : play_(play),
        by_layer_(play.layers.size()),
        missing_(play.tensors.size(), 0) {
    for (size_t i = 0; i < play.tensors.size(); ++i) {
      by_layer_[play.tensors[i].layer].push_back(i);
    }
  }

  Played Run() {
    Compute();
    while (!events_.empty() && !IsOver()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      switch (event.kind) {
        case Event::Kind::kCompute:
          ComputeEnds();
          break;
        case Event::Kind::kUseEnds:
          UseEnds(event.chunk, event.resource);
          break;
        case Event::Kind::kStageStarts:
          StartStage(event.chunk);
          break;
      }
    }
    Played played;
    played.step_s =
        (starts_[kSettlingSteps + kMeasuredSteps] - starts_[kSettlingSteps]) /
        kMeasuredSteps;
    const double steps = kSettlingSteps + kMeasuredSteps;
    for (size_t r = 0; r < kNumResources; ++r) {
      played.busy_s[r] = busy_s_[r] / steps;
    }
    return played;
  }

 private:
  bool IsOver() const {
    return starts_.size() > kSettlingSteps + kMeasuredSteps;
  }

  void Push(double delay, Event::Kind kind, size_t chunk = 0,
            size_t resource = 0) {
    events_.push({now_ + delay, ++order_, kind, chunk, resource});
  }

  // The layer that is next: forward 0 .. L-1, then backward L-1 .. 0.
  bool IsForward() const { return position_ < play_.layers.size(); }
  size_t Layer() const {
    return IsForward() ? position_ : 2 * play_.layers.size() - 1 - position_;
  }

  // Starts the next layer, or waits for its tensors.
  void Compute() {
    if (IsForward() && MustWait()) {
      is_waiting_ = true;
      return;
    }
    is_waiting_ = false;
    if (position_ == 0) starts_.push_back(now_);
    const double pass = IsForward() ? play_.forward_s : play_.backward_s;
    Push(pass * play_.layers[Layer()], Event::Kind::kCompute);
  }

  bool MustWait() const {
    if (play_.overlap != Overlap::kFull) return num_missing_ > 0;
    const std::vector<size_t>& mine = by_layer_[Layer()];
    return std::any_of(mine.begin(), mine.end(),
                       [&](size_t each) { return missing_[each] > 0; });
  }

  void ComputeEnds() {
    if (!IsForward() && play_.overlap != Overlap::kNone) Release(Layer());
    if (++position_ == 2 * play_.layers.size()) {
      for (size_t layer = play_.layers.size();
           play_.overlap == Overlap::kNone && layer-- > 0;) {
        Release(layer);
      }
      position_ = 0;
    }
    Compute();
  }

  // The gradients of a layer are ready.
  void Release(size_t layer) {
    const std::vector<size_t>& mine = by_layer_[layer];
    for (auto each = mine.rbegin(); each != mine.rend(); ++each) {
      const size_t i = *each;
      const Play::Tensor& tensor = play_.tensors[i];
      if (tensor.pipeline->stages.empty()) continue;
      const int64_t count =
          NumChunks(*tensor.pipeline, tensor.elems, tensor.chunk_elems);
      missing_[i] = static_cast<size_t>(count);
      num_missing_ += missing_[i];
      for (int64_t c = 0; c < count; ++c) {
        chunks_.push_back({.tensor = i,
                           .elems = static_cast<double>(tensor.elems) /
                                    static_cast<double>(count)});
        StartStage(chunks_.size() - 1);
      }
    }
  }

  void StartStage(size_t id) {
    Chunk& chunk = chunks_[id];
    const std::vector<Stage>& stages =
        play_.tensors[chunk.tensor].pipeline->stages;
    if (chunk.stage == stages.size()) return ChunkEnds(chunk);
    const Stage& stage = stages[chunk.stage];
    chunk.pending = stage.uses.size();
    const uint64_t rank = play_.first_layers_first ? chunk.tensor : 0;
    for (const Stage::Use& use : stage.uses) {
      const auto r = static_cast<size_t>(use.resource);
      servers_[r].waiting.push({rank, ++order_, id, use.seconds(chunk.elems)});
      Serve(r);
    }
  }

  void Serve(size_t r) {
    Server& server = servers_[r];
    if (server.is_busy || server.waiting.empty()) return;
    const Waiter next = server.waiting.top();
    server.waiting.pop();
    server.is_busy = true;
    busy_s_[r] += next.seconds;
    Push(next.seconds, Event::Kind::kUseEnds, next.chunk, r);
  }

  void UseEnds(size_t id, size_t resource) {
    servers_[resource].is_busy = false;
    if (--chunks_[id].pending == 0) StageEnds(id);
    Serve(resource);
  }

  void StageEnds(size_t id) {
    Chunk& chunk = chunks_[id];
    const std::vector<Stage>& stages =
        play_.tensors[chunk.tensor].pipeline->stages;
    const double delay = stages[chunk.stage].delay_s;
    if (++chunk.stage == stages.size() && delay == 0) return ChunkEnds(chunk);
    Push(delay, Event::Kind::kStageStarts, id);
  }

  void ChunkEnds(const Chunk& chunk) {
    --missing_[chunk.tensor];
    --num_missing_;
    if (is_waiting_) Compute();
  }

  const Play& play_;
  double now_ = 0;
  uint64_t order_ = 0;
  std::priority_queue<Event> events_;
  std::array<Server, kNumResources> servers_;
  std::array<double, kNumResources> busy_s_{};
  std::vector<Chunk> chunks_;
  std::vector<std::vector<size_t>> by_layer_;
  std::vector<size_t> missing_;  // chunks of each tensor
  size_t num_missing_ = 0;
  size_t position_ = 0;  // the layer of the step, of 2 L
  bool is_waiting_ = false;
  std::vector<double> starts_;  // when forward passes began
};

}  // namespace

Played PlaySteps(const Play& play) { return Engine(play).Run(); }

}  // namespace telegrad
