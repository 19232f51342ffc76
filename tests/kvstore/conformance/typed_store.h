#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "kvstore/ticket_state.h"
#include "tests/kvstore/conformance/forwarding_store.h"

namespace telegrad::testing {

// The values as this type has them.
std::vector<float> RoundedTo(Dtype dtype, std::vector<float> values);

// A store of tensors of 16-bit floats, for checks that have float32: what they
// give is rounded once, and what they get is widened, so that checks of numbers
// that the type has need not know.
class TypedStore : public ForwardingStore {
 public:
  TypedStore(KVStore& inner, Dtype dtype);
  ~TypedStore() override;

  absl::StatusOr<std::vector<Key>> Init(std::span<const TensorSpec> tensors,
                                        TensorViews values) override;
  Ticket PushPull(Key key, TensorViews grads, TensorViews outs,
                  int priority) override;
  Ticket Push(Key key, TensorViews grads, int priority) override;
  Ticket Pull(Key key, TensorViews outs, int priority) override;
  Ticket Broadcast(Key key, int root, TensorViews values,
                   int priority) override;

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

  const Dtype dtype_;
  CompletionQueue done_;
  Mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Op>> ops_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread ends_;
};

}  // namespace telegrad::testing
