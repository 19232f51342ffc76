#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "kvstore/kvstore.h"
#include "kvstore/ticket_state.h"

namespace telegrad::testing {

// The values as this type has them.
std::vector<float> RoundedTo(Dtype dtype, std::vector<float> values);

// A store of tensors of 16-bit floats, for checks that have float32: what they
// give is rounded once, and what they get is widened, so that checks of numbers
// that the type has need not know.
class TypedStore : public KVStore {
 public:
  TypedStore(KVStore& inner, Dtype dtype);
  ~TypedStore() override;

  const StoreTraits& traits() const override { return inner_.traits(); }
  WorkerGroup& group() override { return inner_.group(); }
  absl::Status SetCompression(const CompressionConfig& config) override {
    return inner_.SetCompression(config);
  }
  absl::Status SetOptimizer(const OptimizerConfig& config) override {
    return inner_.SetOptimizer(config);
  }
  absl::StatusOr<std::vector<Key>> Init(std::span<const TensorSpec> tensors,
                                        TensorViews values) override;
  Ticket PushPull(Key key, TensorViews grads, TensorViews outs,
                  int priority) override;
  Ticket Push(Key key, TensorViews grads, int priority) override;
  Ticket Pull(Key key, TensorViews outs, int priority) override;
  Ticket Broadcast(Key key, int root, TensorViews values,
                   int priority) override;
  CodecControl& codecs() override { return inner_.codecs(); }
  StateAccess* states() override { return inner_.states(); }
  StoreStats stats() const override { return inner_.stats(); }
  void Close() override { inner_.Close(); }

 private:
  // Memory of the type for views of float32, with their values or not.
  struct Shadows {
    std::vector<Buffer> buffers = {};
    std::vector<TensorView> views = {};
  };
  struct Op {
    Shadows in = {};
    Shadows out = {};
    std::vector<TensorView> targets = {};  // the caller's
    Ticket inner = {};
    std::shared_ptr<Ticket::State> ticket = nullptr;
    Mutex mutex = {};
    bool is_released ABSL_GUARDED_BY(mutex) = false;
  };

  Shadows Shadow(TensorViews views, bool has_values) const;
  void Widen(const Shadows& from, TensorViews to) const;
  std::shared_ptr<Op> Make(TensorViews grads, TensorViews outs) const;
  Ticket Await(const std::shared_ptr<Op>& op, Ticket inner);
  void End(Op& op) const;
  void RunEnds();

  KVStore& inner_;
  const Dtype dtype_;
  CompletionQueue done_;
  Mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Op>> ops_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread ends_;
};

}  // namespace telegrad::testing
