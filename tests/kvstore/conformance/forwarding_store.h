#pragma once

#include <vector>

#include "kvstore/kvstore.h"

namespace telegrad::testing {

// Does what another store does; what a test changes of that it overrides.
class ForwardingStore : public KVStore {
 public:
  explicit ForwardingStore(KVStore& inner) : inner_(inner) {}

  const StoreTraits& traits() const override { return inner_.traits(); }
  WorkerGroup& group() override { return inner_.group(); }
  absl::Status SetCompression(const CompressionConfig& config) override {
    return inner_.SetCompression(config);
  }
  absl::Status SetOptimizer(const OptimizerConfig& config) override {
    return inner_.SetOptimizer(config);
  }
  absl::StatusOr<std::vector<Key>> Init(std::span<const TensorSpec> tensors,
                                        TensorViews values) override {
    return inner_.Init(tensors, values);
  }
  Ticket PushPull(Key key, TensorViews grads, TensorViews outs,
                  int priority) override {
    return inner_.PushPull(key, grads, outs, priority);
  }
  Ticket Push(Key key, TensorViews grads, int priority) override {
    return inner_.Push(key, grads, priority);
  }
  Ticket Pull(Key key, TensorViews outs, int priority) override {
    return inner_.Pull(key, outs, priority);
  }
  Ticket Broadcast(Key key, int root, TensorViews values,
                   int priority) override {
    return inner_.Broadcast(key, root, values, priority);
  }
  CodecControl& codecs() override { return inner_.codecs(); }
  StoreExtras extras() override { return inner_.extras(); }
  StoreStats stats() const override { return inner_.stats(); }
  void Close() override { inner_.Close(); }

 protected:
  KVStore& inner_;
};

}  // namespace telegrad::testing
