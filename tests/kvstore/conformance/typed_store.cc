#include "tests/kvstore/conformance/typed_store.h"

#include <algorithm>
#include <utility>

#include "base/device_access.h"
#include "kernels/dispatch.h"
#include "kvstore/engine/codec/floats.h"

namespace telegrad::testing {
namespace {

constexpr uint64_t kEndOfOps = 0;  // no tag

void NarrowTo(Dtype dtype, ConstBytes from, Bytes to) {
  EncodeStats stats;
  Narrow(kernels::CpuKernels(), Floats(from), from.size / 4, to, dtype, &stats,
         {});
}

}  // namespace

std::vector<float> RoundedTo(Dtype dtype, std::vector<float> values) {
  const Bytes floats(values.data(), 4 * values.size());
  const Buffer narrow(SizeOf(dtype) * values.size());
  NarrowTo(dtype, floats, narrow.view());
  Widen(kernels::CpuKernels(), narrow.view(), dtype, values.size(),
        values.data(), {});
  return values;
}

TypedStore::TypedStore(KVStore& inner, Dtype dtype)
    : ForwardingStore(inner), dtype_(dtype), ends_([this] { RunEnds(); }) {}

TypedStore::~TypedStore() {
  FinishedTicket(absl::OkStatus()).NotifyTo(done_, kEndOfOps);
  ends_.join();
}

TypedStore::Shadows TypedStore::Shadow(TensorViews views,
                                       bool has_values) const {
  Shadows made;
  for (const TensorView& view : views) {
    const size_t bytes = view.bytes.size / 4 * SizeOf(dtype_);
    const bool is_on_host = view.bytes.device == Device{};
    made.buffers.push_back(is_on_host ? Buffer(bytes)
                                      : MakeEmulatedBuffer(bytes));
    const Bytes memory = made.buffers.back().view();
    if (has_values) NarrowTo(dtype_, Reach(view.bytes), Reach(memory));
    made.views.push_back(
        {.bytes = memory, .dtype = dtype_, .num_elems = view.num_elems});
  }
  return made;
}

void TypedStore::Widen(const Shadows& from, TensorViews to) const {
  for (size_t i = 0; i < to.size(); ++i) {
    telegrad::Widen(kernels::CpuKernels(), Reach(from.views[i].bytes), dtype_,
                    to[i].bytes.size / 4, Floats(Reach(to[i].bytes)), {});
  }
}

absl::StatusOr<std::vector<Key>> TypedStore::Init(
    std::span<const TensorSpec> tensors, TensorViews values) {
  std::vector<TensorSpec> typed(tensors.begin(), tensors.end());
  for (TensorSpec& tensor : typed) tensor.dtype = dtype_;
  const Shadows shadows = Shadow(values, /*has_values=*/true);
  auto keys = inner_.Init(typed, shadows.views);
  if (keys.ok()) Widen(shadows, values);
  return keys;
}

std::shared_ptr<TypedStore::Op> TypedStore::Make(TensorViews grads,
                                                 TensorViews outs) const {
  const auto op = std::make_shared<Op>();
  op->in = Shadow(grads, /*has_values=*/true);
  op->out = Shadow(outs, /*has_values=*/false);
  op->targets.assign(outs.begin(), outs.end());
  return op;
}

Ticket TypedStore::PushPull(Key key, TensorViews grads, TensorViews outs,
                            int priority) {
  const auto op = Make(grads, outs);
  return Await(op, inner_.PushPull(key, op->in.views, op->out.views, priority));
}

Ticket TypedStore::Push(Key key, TensorViews grads, int priority) {
  const auto op = Make(grads, {});
  return Await(op, inner_.Push(key, op->in.views, priority));
}

Ticket TypedStore::Pull(Key key, TensorViews outs, int priority) {
  const auto op = Make({}, outs);
  return Await(op, inner_.Pull(key, op->out.views, priority));
}

Ticket TypedStore::Broadcast(Key key, int root, TensorViews values,
                             int priority) {
  const auto op = Make({}, values);
  op->out = Shadow(values, /*has_values=*/true);
  return Await(op, inner_.Broadcast(key, root, op->out.views, priority));
}

Ticket TypedStore::Await(const std::shared_ptr<Op>& op, Ticket inner) {
  op->inner = std::move(inner);
  op->ticket = std::make_shared<Ticket::State>();
  op->ticket->describe = [held = op->inner] { return held.Missing(); };
  op->ticket->release = [weak = std::weak_ptr(op)] {
    const auto live = weak.lock();
    if (live == nullptr) return;
    live->inner.Cancel();
    MutexLock lock(&live->mutex);
    live->is_released = true;
  };
  if (op->inner.is_done()) {
    End(*op);
    return Ticket(op->ticket);
  }
  uint64_t tag = 0;
  {
    MutexLock lock(&mutex_);
    tag = ++last_;
    ops_[tag] = op;
  }
  op->inner.NotifyTo(done_, tag);
  return Ticket(op->ticket);
}

void TypedStore::End(Op& op) const {
  const absl::Status status = op.inner.Wait(Clock::now());
  {
    MutexLock lock(&op.mutex);
    if (status.ok() && !op.is_released) Widen(op.out, op.targets);
  }
  op.ticket->Finish(status);
}

void TypedStore::RunEnds() {
  for (;;) {
    const auto tag = done_.Next(Clock::now() + std::chrono::seconds(60));
    if (!tag.has_value()) continue;
    if (*tag == kEndOfOps) return;
    std::shared_ptr<Op> op;
    {
      MutexLock lock(&mutex_);
      op = std::move(ops_[*tag]);
      ops_.erase(*tag);
    }
    End(*op);
  }
}

}  // namespace telegrad::testing
