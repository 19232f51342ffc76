#include "kvstore/tier_one/tier_one_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "kernels/dispatch.h"
#include "kvstore/engine/codec/checks.h"
#include "kvstore/engine/codec/floats.h"
#include "kvstore/engine/rows/rows.h"
#include "kvstore/job/path/job_options.h"

namespace telegrad {
namespace {

// The tag that ends the thread of results: no key.
constexpr uint64_t kEnd = UINT64_MAX;

bool IsOnGpus(const TensorSpec& spec) {
  return !std::all_of(spec.devices.begin(), spec.devices.end(),
                      [](Device device) { return device == Device{}; });
}

absl::Status CheckOnHost(const TensorSpec& spec) {
  if (!IsOnGpus(spec)) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "tensor ", spec.name,
      " on a GPU: workers of a host are summed in host memory, and tensors "
      "that "
      "come together on GPUs only if all are there; join with gdr, which says "
      "where tensors are, or with tier1 off"));
}

}  // namespace

TierOneStore::TierOneStore(const StoreOptions& options,
                           std::unique_ptr<KVStore> second, bool on_gpus)
    : options_(options),
      num_devices_(static_cast<size_t>(options.num_devices)),
      on_gpus_(on_gpus),
      second_(std::move(second)),
      pool_(std::make_unique<ThreadPool>(options.num_threads)),
      results_(StartThread([this] { RunResults(); })) {}

TierOneStore::~TierOneStore() { Close(); }

absl::Status TierOneStore::SetCompression(const CompressionConfig& config) {
  return second_->SetCompression(config);
}

absl::Status TierOneStore::SetOptimizer(const OptimizerConfig& config) {
  RETURN_IF_ERROR(second_->SetOptimizer(config));
  optimizer_ = config;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Key>> TierOneStore::Init(
    std::span<const TensorSpec> tensors, TensorViews values) {
  RETURN_IF_ERROR(CheckTensors(tensors));
  RETURN_IF_ERROR(CheckPlaces(tensors, options_.num_devices));
  RETURN_IF_ERROR(
      CheckValues(tensors, values, options_.num_devices, optimizer_));
  if (on_gpus_ && !tensors.empty() && IsOnGpus(tensors[0])) {
    return InitOnGpus(tensors, values);
  }
  // The other store has float32, in memory that is here anyway.
  std::vector<std::unique_ptr<Tensor>> added;
  std::vector<TensorSpec> specs(tensors.begin(), tensors.end());
  for (TensorSpec& spec : specs) {
    RETURN_IF_ERROR(CheckOnHost(spec));
    const bool widens = spec.dtype != Dtype::kFloat32 && num_devices_ > 1;
    added.push_back(std::make_unique<Tensor>());
    added.back()->spec = spec;
    added.back()->value = Buffer(4 * spec.num_elems);
    added.back()->wide = Buffer(widens ? 4 * spec.num_elems : 0);
    spec.devices.clear();
    spec.dtype = Dtype::kFloat32;
  }
  std::vector<TensorView> firsts;
  for (size_t i = 0; i < values.size(); i += num_devices_) {
    Tensor& tensor = *added[i / num_devices_];
    Widen(kernels::CpuKernels(), values[i].bytes, tensor.spec.dtype,
          tensor.spec.num_elems, tensor.value.as<float>(), {});
    firsts.push_back(FloatTensor(tensor.value.view()));
  }
  ASSIGN_OR_RETURN(const std::vector<Key> keys, second_->Init(specs, firsts));
  for (size_t i = 0; i < values.size(); ++i) {
    NarrowTo(values[i].bytes, *added[i / num_devices_]);
  }
  MutexLock lock(&mutex_);
  for (auto& tensor : added) tensors_.push_back(std::move(tensor));
  return keys;
}

absl::StatusOr<std::vector<Key>> TierOneStore::InitOnGpus(
    std::span<const TensorSpec> tensors, TensorViews values) {
  if (gpus_ == nullptr) {
    const StoreTraits traits = {.type = "nccl", .takes_devices = true};
    gpus_ = std::make_unique<GroupStore>(options_, traits, nullptr, "nccl");
    RETURN_IF_ERROR(
        gpus_->SetCompression({.nonfinite = NonFinitePolicy::kPropagate}));
  }
  ASSIGN_OR_RETURN(const std::vector<Key> there, gpus_->Init(tensors, values));
  std::vector<std::unique_ptr<Tensor>> added;
  std::vector<TensorSpec> specs(tensors.begin(), tensors.end());
  std::vector<TensorView> firsts;
  for (size_t i = 0; i < specs.size(); ++i) {
    added.push_back(std::make_unique<Tensor>());
    added.back()->spec = specs[i];
    added.back()->on_gpus = there[i];
    specs[i].devices.resize(1);
    specs[i].dtype = Dtype::kFloat32;
    if (!values.empty()) firsts.push_back(gpus_->first(there[i]));
  }
  ASSIGN_OR_RETURN(const std::vector<Key> keys, second_->Init(specs, firsts));
  for (size_t i = 0; i < firsts.size(); ++i) {
    const TensorViews outs = values.subspan(i * num_devices_, num_devices_);
    RETURN_IF_ERROR(
        gpus_->Spread(there[i], outs, 0)
            .Wait(Clock::now() + group().options().operation_timeout));
  }
  MutexLock lock(&mutex_);
  for (auto& tensor : added) tensors_.push_back(std::move(tensor));
  return keys;
}

Ticket TierOneStore::PushPull(Key key, TensorViews grads, TensorViews outs,
                              int priority) {
  return Start({.kind = Kind::kPushPull,
                .key = key,
                .priority = priority,
                .has_in = true,
                .has_out = true},
               grads, outs);
}

Ticket TierOneStore::Push(Key key, TensorViews grads, int priority) {
  return Start(
      {.kind = Kind::kPush, .key = key, .priority = priority, .has_in = true},
      grads, {});
}

Ticket TierOneStore::Pull(Key key, TensorViews outs, int priority) {
  return Start(
      {.kind = Kind::kPull, .key = key, .priority = priority, .has_out = true},
      {}, outs);
}

Ticket TierOneStore::Broadcast(Key key, int root, TensorViews values,
                               int priority) {
  return Start({.kind = Kind::kBroadcast,
                .key = key,
                .root = root,
                .priority = priority,
                .has_in = root == group().rank(),
                .has_out = true},
               values, values);
}

absl::Status TierOneStore::Check(const Op& op, TensorViews grads,
                                 TensorViews outs) const {
  RETURN_IF_ERROR(CheckKey(op.key, tensors_.size()));
  const Tensor& tensor = *tensors_[op.key];
  if (op.rows.has_value()) {
    RETURN_IF_ERROR(CheckRowViews(tensor.spec, op.has_in ? grads : outs,
                                  options_.num_devices));
  } else {
    if (op.has_in) {
      RETURN_IF_ERROR(CheckViews(tensor.spec, grads, options_.num_devices));
    }
    if (op.has_out) {
      RETURN_IF_ERROR(CheckViews(tensor.spec, outs, options_.num_devices));
    }
  }
  if (is_closed_) return absl::FailedPreconditionError("the store is closed");
  return CheckTurn(tensor.spec, /*lacks_value=*/false,
                   tensor.active != nullptr);
}

Ticket TierOneStore::Start(Op started, TensorViews grads, TensorViews outs) {
  const TensorViews rows = started.kind == Kind::kPush   ? grads
                           : started.kind == Kind::kPull ? outs
                                                         : TensorViews();
  if (HasRows(rows)) started.rows.emplace();
  for (const TensorView& view : rows) {
    if (!view.rows.has_value()) continue;
    started.rows->insert(started.rows->end(), view.rows->begin(),
                         view.rows->end());
  }
  Tensor* tensor = nullptr;
  std::shared_ptr<Op> op;
  {
    MutexLock lock(&mutex_);
    const absl::Status status = Check(started, grads, outs);
    if (!status.ok()) return FinishedTicket(status);
    tensor = tensors_[started.key].get();
    if (tensor->spec.num_elems > 0) {
      op = Lend(*tensor, std::move(started), grads, outs);
    }
  }
  // There is nothing to sum, and no memory.
  if (op == nullptr) return HandOn(*tensor, started);
  if (op->is_on_gpus) {
    BeginOnGpus(*tensor, op, grads);
    return Ticket(op->ticket);
  }
  // A pool without threads runs it here.
  pool_->Post(op->priority, [this, tensor, op] { Begin(*tensor, op); });
  return Ticket(op->ticket);
}

std::shared_ptr<TierOneStore::Op> TierOneStore::Lend(Tensor& tensor, Op started,
                                                     TensorViews grads,
                                                     TensorViews outs) {
  const auto op = std::make_shared<Op>(std::move(started));
  if (op->rows.has_value()) {
    op->row_values = Buffer(4 * tensor.spec.row_elems * op->rows->size());
  }
  op->is_on_gpus = tensor.on_gpus.has_value() && !op->rows.has_value();
  if (op->is_on_gpus) op->outs.assign(outs.begin(), outs.end());
  for (size_t i = 0; i < num_devices_ && !op->is_on_gpus; ++i) {
    op->memory.push_back(std::make_unique<BorrowedMemory>(
        op->has_in ? ConstBytes(grads[i].bytes) : ConstBytes(),
        op->has_out ? outs[i].bytes : Bytes()));
  }
  op->ticket = std::make_shared<Ticket::State>();
  op->ticket->describe = [this, &tensor, weak = std::weak_ptr(op)] {
    std::string missing;
    if (const auto live = weak.lock()) {
      MutexLock describing(&mutex_);
      if (live->stage == Stage::kSecond) missing = live->under_way.Missing();
    }
    return missing.empty() ? absl::StrCat("tensor ", tensor.spec.name,
                                          ": its devices are being summed")
                           : missing;
  };
  op->ticket->release = [this, weak = std::weak_ptr(op)] {
    const auto live = weak.lock();
    if (live == nullptr) return;
    // Uses end with the sums and copies that run.
    AwaitRelease(group(), live->ticket,
                 [&](TimePoint deadline) { return LetGo(*live, deadline); });
  };
  tensor.active = op;
  ++num_ops_;
  return op;
}

// Whether nothing of the caller's is in use, by `deadline`.
bool TierOneStore::LetGo(Op& op, TimePoint deadline) {
  bool is_released = true;
  for (const auto& memory : op.memory) is_released &= memory->Release(deadline);
  Ticket of_gpus;  // they are done in a moment
  {
    MutexLock lock(&mutex_);
    op.is_let_go = true;
    if (op.stage != Stage::kSecond) of_gpus = op.under_way;
  }
  return of_gpus.WaitUntil(deadline) && is_released;
}

void TierOneStore::Begin(Tensor& tensor, const std::shared_ptr<Op>& op) {
  if (op->has_in) Sum(tensor, *op);
  Follow(op, Stage::kSecond, HandOn(tensor, *op));
}

// By the thread that calls the store, whose streams are followed.
void TierOneStore::BeginOnGpus(const Tensor& tensor,
                               const std::shared_ptr<Op>& op,
                               TensorViews grads) {
  const Key key = *tensor.on_gpus;
  if (!op->has_in) return Follow(op, Stage::kSecond, HandOn(tensor, *op));
  Follow(op, Stage::kSum,
         op->kind == Kind::kBroadcast
             ? gpus_->Broadcast(key, 0, grads, op->priority)
             : gpus_->Push(key, grads, op->priority));
}

void TierOneStore::Follow(const std::shared_ptr<Op>& op, Stage stage,
                          const Ticket& ticket) {
  {
    MutexLock lock(&mutex_);
    op->stage = stage;
    op->under_way = ticket;
  }
  ticket.NotifyTo(done_, op->key);
}

// Whether there is anybody to give the result to.
bool TierOneStore::Spread(const Tensor& tensor, const std::shared_ptr<Op>& op) {
  MutexLock lock(&mutex_);
  if (op->is_let_go) return false;
  op->stage = Stage::kSpread;
  op->under_way = gpus_->Spread(*tensor.on_gpus, op->outs, op->priority);
  op->under_way.NotifyTo(done_, op->key);
  return true;
}

void TierOneStore::CopyRows(const Op& op, bool is_out) {
  std::byte* at = op.row_values.data();
  for (const auto& memory : op.memory) {
    const BorrowedMemory::Use use = memory->Begin();
    const size_t size = is_out ? use.out.size : use.in.size;
    if (size > 0 && is_out) std::memcpy(use.out.data, at, size);
    if (size > 0 && !is_out) std::memcpy(at, use.in.data, size);
    at += size;
    memory->End(use.is_borrowed);
  }
}

// A broadcast's value is that of the first device.
void TierOneStore::Sum(Tensor& tensor, const Op& op) {
  if (op.rows.has_value()) return CopyRows(op, /*is_out=*/false);
  const kernels::KernelTable& kernels = kernels::CpuKernels();
  const size_t num_elems = tensor.spec.num_elems;
  float* const sum = tensor.value.as<float>();
  const size_t count = op.kind == Kind::kBroadcast ? 1 : op.memory.size();
  for (size_t i = 0; i < count; ++i) {
    const BorrowedMemory::Use use = op.memory[i]->Begin();
    const bool is_float32 = tensor.spec.dtype == Dtype::kFloat32;
    if (i == 0 || !is_float32) {
      Widen(kernels, use.in, tensor.spec.dtype, num_elems,
            i == 0 ? sum : tensor.wide.as<float>(), {});
    }
    if (i > 0) {
      kernels.add_f32(is_float32 ? Floats(use.in) : tensor.wide.as<float>(),
                      num_elems, sum, {});
    }
    op.memory[i]->End(use.is_borrowed);
  }
}

Ticket TierOneStore::HandOn(const Tensor& tensor, const Op& op) {
  TensorView view = tensor.on_gpus.has_value()
                        ? gpus_->first(*tensor.on_gpus)
                        : FloatTensor(tensor.value.view());
  if (op.rows.has_value()) {
    view = FloatTensor(op.row_values.view());
    view.rows = *op.rows;
  }
  const TensorViews one(&view, 1);
  switch (op.kind) {
    case Kind::kPush:
      return second_->Push(op.key, one, op.priority);
    case Kind::kPull:
      return second_->Pull(op.key, one, op.priority);
    case Kind::kPushPull:
      return second_->PushPull(op.key, one, one, op.priority);
    case Kind::kBroadcast:
      return second_->Broadcast(op.key, op.root, one, op.priority);
  }
  return FinishedTicket(absl::InternalError("no such operation"));
}

void TierOneStore::RunResults() {
  for (;;) {
    const auto tag = done_.Next(Clock::now() + std::chrono::seconds(60));
    if (!tag.has_value()) continue;
    if (*tag == kEnd) return;
    Tensor* tensor = nullptr;
    std::shared_ptr<Op> op;
    Stage stage = Stage::kSecond;
    Ticket ticket;
    {
      MutexLock lock(&mutex_);
      tensor = tensors_[*tag].get();
      op = tensor->active;
      stage = op->stage;
      ticket = op->under_way;
    }
    const absl::Status status = ticket.Wait(Clock::now());  // it is done
    if (status.ok() && stage == Stage::kSum) {
      Follow(op, Stage::kSecond, HandOn(*tensor, *op));
      continue;
    }
    if (status.ok() && stage == Stage::kSecond && op->has_out) {
      if (op->is_on_gpus && Spread(*tensor, op)) continue;
      if (!op->is_on_gpus) HandOut(*tensor, *op);
    }
    // The others wait for what this worker's GPUs have not summed.
    if (!status.ok() && stage != Stage::kSecond) group().Fail(status);
    {
      MutexLock lock(&mutex_);
      tensor->active = nullptr;
    }
    op->ticket->Finish(status);
    MutexLock lock(&mutex_);
    if (--num_ops_ == 0) ops_changed_.NotifyAll();
  }
}

void TierOneStore::NarrowTo(Bytes out, const Tensor& tensor) {
  EncodeStats stats;
  Narrow(kernels::CpuKernels(), tensor.value.as<float>(), tensor.spec.num_elems,
         out, tensor.spec.dtype, &stats, {});
}

void TierOneStore::HandOut(Tensor& tensor, const Op& op) {
  if (op.rows.has_value()) return CopyRows(op, /*is_out=*/true);
  for (const auto& memory : op.memory) {
    const BorrowedMemory::Use use = memory->Begin();
    NarrowTo(use.out, tensor);
    memory->End(use.is_borrowed);
  }
}

void TierOneStore::Close() {
  {
    MutexLock lock(&mutex_);
    if (is_closed_) return;
    is_closed_ = true;
  }
  second_->Close();  // its tickets end with it
  {
    MutexLock lock(&mutex_);
    while (num_ops_ > 0) {
      ops_changed_.WaitUntil(&mutex_, Clock::now() + std::chrono::seconds(1));
    }
  }
  FinishedTicket(absl::OkStatus()).NotifyTo(done_, kEnd);
  results_.join();
  if (gpus_ != nullptr) gpus_->Close();
}

}  // namespace telegrad
