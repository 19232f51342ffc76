#include "kvstore/nccl/group_store.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "kernels/device_scope.h"
#include "kernels/dispatch.h"
#include "kvstore/engine/codec/checks.h"
#include "kvstore/engine/codec/floats.h"
#include "kvstore/engine/device/device_lane.h"
#include "kvstore/job/path/job_options.h"
#include "kvstore/optimizer.h"

namespace telegrad {
namespace {

constexpr Duration kPollPause = std::chrono::microseconds(20);
// A bucket is closed with the tensor with which it has so many elements.
constexpr size_t kBucketElems = size_t{1} << 23;
constexpr size_t kMostInBucket = 64;

Device DeviceOf(const std::string& backend, size_t index) {
  if (backend != "nccl") return {};
  return {DeviceKind::kCuda, static_cast<int>(index)};
}

std::string PlaceName(Device device) {
  return device.kind == DeviceKind::kCuda ? absl::StrCat("GPU ", device.ordinal)
                                          : "the host";
}

// Ranks compare their calls by messages.
TransportOptions InProcess() {
  TransportOptions options;
  options.name = "inproc";
  return options;
}

// Where ranks that are threads of one process meet.
class Meeting {
 public:
  explicit Meeting(size_t size) : texts_(size), num_missing_(size) {}

  absl::StatusOr<std::vector<std::string>> Give(size_t rank,
                                                const std::string& text,
                                                TimePoint deadline) {
    MutexLock lock(&mutex_);
    texts_[rank] = text;
    if (--num_missing_ == 0) changed_.NotifyAll();
    while (num_missing_ > 0) {
      if (Clock::now() >= deadline) {
        return absl::DeadlineExceededError("a device did not join the others");
      }
      changed_.WaitUntil(&mutex_, deadline);
    }
    return texts_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> texts_ ABSL_GUARDED_BY(mutex_);
  size_t num_missing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

GroupStore::GroupStore(const StoreOptions& options, const StoreTraits& traits,
                       WorkerGroup* group, const std::string& backend)
    : options_(options),
      traits_(traits),
      backend_(backend),
      own_group_(group == nullptr ? MakeSoloGroup() : nullptr),
      group_(group == nullptr ? own_group_.get() : group) {
  group_->OnFailure([this](const absl::Status& why) {
    MutexLock lock(&mutex_);
    if (failure_.ok()) failure_ = why;
  });
}

GroupStore::~GroupStore() {
  Close();
  group_->OnFailure(nullptr);
}

absl::Status GroupStore::Check(const std::string& backend, int num_devices) {
  for (int i = 0; i < num_devices && backend == "nccl"; ++i) {
    std::string why_not;
    if (kernels::CudaKernels(i, &why_not) != nullptr) continue;
    return absl::UnavailableError(absl::StrCat("GPU ", i, ", device ", i + 1,
                                               " of ", num_devices,
                                               ", cannot be used: ", why_not));
  }
  // Alone, which needs the library and the first device.
  const GroupOptions alone = {.backend = backend, .transport = InProcess()};
  return Group::Make(alone,
                     [](const std::string& mine, TimePoint) {
                       return std::vector<std::string>{mine};
                     })
      .status();
}

absl::Status GroupStore::SetCompression(const CompressionConfig& config) {
  if (!ranks_.empty()) {
    return absl::FailedPreconditionError("SetCompression after Init");
  }
  if (config.nonfinite == NonFinitePolicy::kZero) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a store of type ", traits_.type,
        " leaves gradients as they are: policy zero is for other types, device "
        "among them"));
  }
  if (config.momentum != PushMomentum::kNone) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a store of type ", traits_.type,
        " leaves gradients as they are: momentum is the optimizer's there"));
  }
  nonfinite_ = config.nonfinite;
  if (config.type == "none" && config.rules.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a store of type ", traits_.type, " sums dense gradients: compression ",
      config.type, " is for other types, device among them"));
}

absl::Status GroupStore::SetOptimizer(const OptimizerConfig& config) {
  RETURN_IF_ERROR(CheckOptimizer(config));
  if (config.update_on == UpdateOn::kWorker) {
    if (!ranks_.empty()) return CheckOptimizerChange(optimizer_, config);
    optimizer_ = config;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a store of type ", traits_.type,
                   " runs no optimizer: run it on the devices"));
}

absl::Status GroupStore::OpenRank(size_t index,
                                  const AddressExchange& exchange) {
  Rank& rank = *ranks_[index];
  std::string why_not;
  rank.device = places_[index];
  rank.queue = kernels::MakeDeviceQueue(rank.device, &why_not);
  if (rank.queue == nullptr) return absl::UnavailableError(why_not);
  rank.kernels = rank.device.kind == DeviceKind::kCuda
                     ? kernels::CudaKernels(rank.device.ordinal, &why_not)
                     : &kernels::CpuKernels();
  if (rank.kernels == nullptr) return absl::UnavailableError(why_not);
  rank.stream = rank.queue->MakeStream(0);
  rank.copied = rank.queue->MakeEvent();
  rank.stats =
      rank.queue->MakeMemory(kMostInBucket * sizeof(EncodeStats), rank.stream);
  if (rank.stats.size() == 0) {
    return DeviceOutOfMemory(rank.queue->TakeError());
  }
  rank.seen =
      kernels::HostMemory(*rank.queue, kMostInBucket * sizeof(EncodeStats));
  const GroupOptions options = {.backend = backend_,
                                .transport = InProcess(),
                                .rank = static_cast<int>(index),
                                .world_size = options_.num_devices,
                                .timeout = group_->options().operation_timeout,
                                .device = rank.device.ordinal};
  ASSIGN_OR_RETURN(rank.members, Group::Make(options, exchange));
  return absl::OkStatus();
}

// All devices meet each other, so that each needs a thread from here on.
absl::Status GroupStore::Open() {
  const auto count = static_cast<size_t>(options_.num_devices);
  Meeting meeting(count);
  std::vector<absl::Status> opened(count);
  for (size_t i = 0; i < count; ++i) ranks_.push_back(std::make_unique<Rank>());
  for (size_t i = 0; i < count; ++i) {
    ranks_[i]->thread = StartThread([this, i, &meeting, &opened] {
      opened[i] = OpenRank(i, [&](const std::string& mine, TimePoint deadline) {
        return meeting.Give(i, mine, deadline);
      });
    });
  }
  for (const auto& rank : ranks_) rank->thread.join();
  for (size_t i = 0; i < count; ++i) {
    if (opened[i].ok()) continue;
    ranks_.clear();
    return absl::Status(opened[i].code(),
                        absl::StrCat("device ", i, ": ", opened[i].message()));
  }
  for (size_t i = 0; i < count; ++i) {
    ranks_[i]->thread = StartThread([this, i] { RunRank(i); });
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Key>> GroupStore::Init(
    std::span<const TensorSpec> tensors, TensorViews values) {
  RETURN_IF_ERROR(CheckTensors(tensors));
  const auto devices = static_cast<size_t>(options_.num_devices);
  if (!values.empty() && values.size() != tensors.size() * devices) {
    return absl::InvalidArgumentError(
        absl::StrCat(values.size(), " values for ", tensors.size(),
                     " tensors on ", devices, " devices"));
  }
  for (const TensorSpec& spec : tensors) {
    if (names_.contains(spec.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("Init of tensor ", spec.name, ", which is there"));
    }
  }
  RETURN_IF_ERROR(CheckPlaces(tensors, options_.num_devices));
  if (ranks_.empty()) RETURN_IF_ERROR(ChoosePlaces(tensors));
  for (const TensorSpec& spec : tensors) RETURN_IF_ERROR(CheckSpec(spec));
  if (ranks_.empty()) RETURN_IF_ERROR(Open());
  std::vector<Key> keys;
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto tensor = std::make_unique<Tensor>();
    tensor->spec = tensors[i];
    tensor->spec.devices.clear();
    for (const auto& rank : ranks_) {
      tensor->spec.devices.push_back(rank->device);
    }
    for (const auto& rank : ranks_) {
      if (tensors[i].num_elems == 0) break;
      tensor->values.push_back(
          rank->queue->MakeMemory(4 * tensors[i].num_elems, rank->stream));
      if (tensor->values.back().size() > 0) continue;
      return DeviceOutOfMemory(absl::StrCat("tensor ", tensors[i].name, ": ",
                                            rank->queue->TakeError()));
    }
    names_.insert(tensors[i].name);
    {
      MutexLock lock(&mutex_);
      keys.push_back(static_cast<Key>(tensors_.size()));
      tensors_.push_back(std::move(tensor));
    }
    if (values.empty()) continue;
    RETURN_IF_ERROR(
        Broadcast(keys.back(), 0, values.subspan(i * devices, devices), 0)
            .Wait(Clock::now() + group_->options().operation_timeout));
  }
  return keys;
}

absl::Status GroupStore::ChoosePlaces(std::span<const TensorSpec> tensors) {
  const auto named = absl::c_find_if(
      tensors, [](const TensorSpec& spec) { return !spec.devices.empty(); });
  places_.clear();
  for (size_t i = 0; i < static_cast<size_t>(options_.num_devices); ++i) {
    const Device place =
        named == tensors.end() ? DeviceOf(backend_, i) : named->devices[i];
    const bool is_gpu = place.kind == DeviceKind::kCuda;
    if (is_gpu != (DeviceOf(backend_, i).kind == DeviceKind::kCuda)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", named->name, " on ", PlaceName(place),
                       ": a store of type ", traits_.type,
                       is_gpu ? " sums in host memory" : " sums on GPUs"));
    }
    if (is_gpu && absl::c_linear_search(places_, place)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", named->name, " twice on ", PlaceName(place),
          ": a store of type ", traits_.type, " has one device on each GPU"));
    }
    places_.push_back(place);
  }
  return absl::OkStatus();
}

// Where a tensor says nothing, its views are where the ranks are.
absl::Status GroupStore::CheckSpec(const TensorSpec& spec) const {
  for (size_t i = 0; i < spec.devices.size(); ++i) {
    if (spec.devices[i] == places_[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", spec.name, " is not on device ", i, " of a store of type ",
        traits_.type, ", which is ", PlaceName(places_[i])));
  }
  if (spec.codec.empty() || spec.codec == "none") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", spec.name, " with codec ", spec.codec,
                   ": a store of type ", traits_.type, " is dense"));
}

Ticket GroupStore::PushPull(Key key, TensorViews grads, TensorViews outs,
                            int priority) {
  return Start(Kind::kPushPull, key, grads, outs, priority);
}

Ticket GroupStore::Push(Key key, TensorViews grads, int priority) {
  return Start(Kind::kPush, key, grads, {}, priority);
}

Ticket GroupStore::Pull(Key key, TensorViews outs, int priority) {
  return Start(Kind::kPull, key, {}, outs, priority);
}

Ticket GroupStore::Broadcast(Key key, int root, TensorViews values,
                             int priority) {
  const absl::Status status = CheckRoot(root, 1);
  if (!status.ok()) return FinishedTicket(status);
  return Start(Kind::kBroadcast, key, values, values, priority);
}

Ticket GroupStore::Start(Kind kind, Key key, TensorViews grads,
                         TensorViews outs, int priority) {
  MutexLock lock(&mutex_);
  if (!failure_.ok()) return FinishedTicket(failure_);
  absl::Status status = CheckKey(key, tensors_.size());
  if (!status.ok()) return FinishedTicket(status);
  Tensor& tensor = *tensors_[key];
  if (kind != Kind::kPull) {
    status = CheckViews(tensor.spec, grads, options_.num_devices);
  }
  if (kind != Kind::kPush) {
    status.Update(CheckViews(tensor.spec, outs, options_.num_devices));
  }
  status.Update(CheckTurn(tensor.spec, kind == Kind::kPull && !tensor.has_value,
                          tensor.active != nullptr));
  if (!status.ok()) return FinishedTicket(status);
  if (tensor.spec.num_elems == 0) {
    tensor.has_value = true;
    return FinishedTicket(absl::OkStatus());
  }
  auto op = std::make_shared<Op>();
  op->kind = kind;
  op->key = key;
  op->priority = priority;
  op->grads.assign(grads.begin(), grads.end());
  op->outs.assign(outs.begin(), outs.end());
  op->devices_left = ranks_.size();
  op->ticket = std::make_shared<Ticket::State>();
  op->ticket->describe = [name = tensor.spec.name] {
    return absl::StrCat("operation on tensor ", name, " did not end in time");
  };
  op->ticket->release = [this, weak = std::weak_ptr(op)] {
    if (const auto live = weak.lock()) Release(live);
  };
  tensor.active = op;
  waiting_.push_back(op);
  changed_.NotifyAll();
  return Ticket(op->ticket);
}

// Whether there was anything to begin: of what waits, the most urgent, for all
// devices alike, as collectives come in one order.
bool GroupStore::BeginNext() {
  if (waiting_.empty()) return false;
  absl::c_stable_sort(waiting_, [](const auto& a, const auto& b) {
    return a->priority > b->priority;
  });
  const Kind kind = waiting_.front()->kind;
  const size_t most = kind == Kind::kBroadcast ? 1 : kMostInBucket;
  Bucket bucket;
  size_t num_elems = 0;
  for (const auto& op : waiting_) {
    const bool fits = bucket.size() < most && num_elems < kBucketElems;
    if (op->kind != kind || !fits) break;
    num_elems += tensors_[op->key]->spec.num_elems;
    bucket.push_back(op);
  }
  waiting_.erase(waiting_.begin(),
                 waiting_.begin() + static_cast<ptrdiff_t>(bucket.size()));
  for (const auto& rank : ranks_) rank->buckets.push_back(bucket);
  ++num_buckets_;
  changed_.NotifyAll();
  return true;
}

// What has not begun does nothing; what has is waited for.
void GroupStore::Release(const std::shared_ptr<Op>& op) {
  const TimePoint deadline = Clock::now() + kCancelGrace;
  MutexLock lock(&mutex_);
  if (!op->has_begun) {
    op->is_cancelled = true;
    return;
  }
  while (op->devices_left > 0 && Clock::now() < deadline) {
    changed_.WaitUntil(&mutex_, deadline);
  }
}

void GroupStore::RunRank(size_t index) {
  Rank& rank = *ranks_[index];
  for (;;) {
    std::vector<Turn> turns;
    {
      MutexLock lock(&mutex_);
      while (rank.buckets.empty() && !BeginNext() && !is_closed_) {
        changed_.WaitUntil(&mutex_, Clock::now() + std::chrono::seconds(60));
      }
      if (rank.buckets.empty()) break;
      for (const auto& op : rank.buckets.front()) {
        turns.push_back({op, tensors_[op->key].get()});
        op->has_begun = !op->is_cancelled;
        if (op->has_begun) continue;
        turns.back().status = absl::CancelledError("cancelled before it began");
      }
      rank.buckets.pop_front();
    }
    RunBucket(index, turns);
    for (const Turn& turn : turns) EndPart(turn.op, turn.status);
  }
  // The others may still need what this one has sent.
  rank.members->Barrier().IgnoreError();
  rank.members.reset();
}

// What the device or the group cannot do is the end of all.
void GroupStore::RunBucket(size_t index, std::vector<Turn>& turns) {
  const kernels::DeviceScope scope(ranks_[index]->device);
  std::vector<Turn*> running;
  for (Turn& turn : turns) {
    if (turn.status.ok()) running.push_back(&turn);
  }
  if (running.empty()) return;
  absl::Status status;
  if (!running[0]->op->grads.empty()) status = Sum(index, running);
  if (status.ok()) status = GiveResults(index, running);
  for (Turn* const turn : running) turn->status.Update(status);
}

absl::Status GroupStore::GiveResults(size_t index,
                                     std::span<Turn* const> turns) {
  Rank& rank = *ranks_[index];
  bool has_results = false;
  for (const Turn* const turn : turns) {
    const Op& op = *turn->op;
    if (!turn->status.ok() || op.outs.empty()) continue;
    has_results = true;
    RETURN_IF_ERROR(Follow(rank, op.outs[index].stream));
    Narrow(*rank.kernels, turn->tensor->values[index].as<float>(),
           turn->tensor->spec.num_elems, op.outs[index].bytes,
           turn->tensor->spec.dtype, rank.stats.as<EncodeStats>(), rank.stream);
  }
  return has_results ? Await(rank) : absl::OkStatus();
}

// All take part in the sum before one of them says that its gradient is none,
// else the others would wait for it.
absl::Status GroupStore::Sum(size_t index, std::span<Turn* const> turns) {
  Rank& rank = *ranks_[index];
  const bool is_broadcast = turns[0]->op->kind == Kind::kBroadcast;
  const bool counts = nonfinite_ == NonFinitePolicy::kError && !is_broadcast;
  auto* const seen = rank.seen.as<EncodeStats>();
  std::fill_n(seen, kMostInBucket, EncodeStats{});
  if (counts) {
    rank.queue->Copy(rank.stats.view(), rank.seen.view(), rank.stream);
  }
  std::vector<Group::Part> parts;
  for (const Turn* const turn : turns) {
    const TensorView& grad = turn->op->grads[index];
    const size_t count = turn->tensor->spec.num_elems;
    auto* const floats = turn->tensor->values[index].as<float>();
    RETURN_IF_ERROR(Follow(rank, grad.stream));
    Widen(*rank.kernels, grad.bytes, turn->tensor->spec.dtype, count, floats,
          rank.stream);
    if (counts) {
      rank.kernels->count_nonfinite(floats, count,
                                    rank.stats.as<EncodeStats>() + parts.size(),
                                    rank.stream);
    }
    parts.push_back({floats, count});
  }
  if (counts) {
    rank.queue->Copy(rank.seen.view(), rank.stats.view(), rank.stream);
  }
  RETURN_IF_ERROR(Await(rank));
  if (is_broadcast) {
    return rank.members->Broadcast(parts[0].data, parts[0].count,
                                   Dtype::kFloat32, 0);
  }
  RETURN_IF_ERROR(
      rank.members->AllreduceAll(parts, Dtype::kFloat32, ReduceOp::kSum));
  for (size_t i = 0; i < turns.size(); ++i) {
    const Tensor& tensor = *turns[i]->tensor;
    if (counts && seen[i].num_nonfinite > 0) {
      turns[i]->status = NonFiniteError(absl::StrCat("device/", index),
                                        static_cast<int>(index), tensor.spec,
                                        tensor.num_rounds, seen[i]);
      continue;
    }
    ScaleResult(optimizer_, *rank.kernels, parts[i].count,
                static_cast<float*>(parts[i].data), rank.stream);
  }
  return absl::OkStatus();
}

// A GPU's stream without a handle is its default one, which has work, too.
absl::Status GroupStore::Follow(Rank& rank, Stream before) {
  if (rank.queue->Record(rank.copied, before) &&
      rank.queue->WaitOn(rank.stream, rank.copied)) {
    return absl::OkStatus();
  }
  return DeviceFault(rank.queue->TakeError());
}

absl::Status GroupStore::Await(Rank& rank) {
  kernels::DeviceQueue& queue = *rank.queue;
  using State = kernels::DeviceQueue::State;
  const TimePoint deadline = Clock::now() + group_->options().operation_timeout;
  State state = queue.Record(rank.copied, rank.stream) ? queue.Poll(rank.copied)
                                                       : State::kFailed;
  while (state == State::kRunning && Clock::now() < deadline) {
    std::this_thread::sleep_for(kPollPause);
    state = queue.Poll(rank.copied);
  }
  if (state == State::kRunning) {
    return absl::DeadlineExceededError("a device did not end in time");
  }
  const std::string error = queue.TakeError();
  if (state == State::kPassed && error.empty()) return absl::OkStatus();
  return DeviceFault(error);
}

void GroupStore::EndPart(const std::shared_ptr<Op>& op,
                         const absl::Status& status) {
  absl::Status result;
  bool is_failure = false;
  {
    MutexLock lock(&mutex_);
    op->status.Update(status);
    if (--op->devices_left > 0) return;
    result = op->status;
    Tensor& tensor = *tensors_[op->key];
    tensor.active = nullptr;
    if (result.ok()) tensor.has_value = true;
    tensor.num_rounds += op->kind == Kind::kPush || op->kind == Kind::kPushPull;
    is_failure = !result.ok() && op->has_begun;
    changed_.NotifyAll();
  }
  op->ticket->Finish(result);
  if (is_failure) group_->Fail(result);
}

StoreStats GroupStore::stats() const {
  MutexLock lock(&mutex_);
  return {.num_frames = num_buckets_};
}

absl::Status GroupStore::SetCodec(Key key, int) {
  MutexLock lock(&mutex_);
  if (key < tensors_.size()) return absl::OkStatus();  // dense in any case
  return absl::InvalidArgumentError(absl::StrCat(
      "key ", key, " of a store with ", tensors_.size(), " tensors"));
}

std::vector<TensorReport> GroupStore::Report() const {
  MutexLock lock(&mutex_);
  std::vector<TensorReport> reports;
  for (const auto& tensor : tensors_) {
    TensorReport& report = reports.emplace_back();
    report.name = tensor->spec.name;
    report.num_elems = tensor->spec.num_elems;
    report.codec = report.setting = "none";
    report.reason = absl::StrCat("type ", traits_.type);
    report.reply = "dense";
    report.push_bytes = 4 * tensor->spec.num_elems;
    report.is_dense = true;
  }
  return reports;
}

void GroupStore::Close() {
  {
    MutexLock lock(&mutex_);
    if (is_closed_) return;
    is_closed_ = true;
    if (failure_.ok()) {
      failure_ = absl::FailedPreconditionError("the store is closed");
    }
    changed_.NotifyAll();
  }
  for (const auto& rank : ranks_) rank->thread.join();
  group_->Leave();
}

}  // namespace telegrad
