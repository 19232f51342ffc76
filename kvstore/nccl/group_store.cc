#include "kvstore/nccl/group_store.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "kernels/device_scope.h"
#include "kernels/dispatch.h"
#include "kvstore/collective/collective.h"
#include "kvstore/collective/meeting.h"
#include "kvstore/engine/codec/checks.h"
#include "kvstore/job/path/job_options.h"
#include "kvstore/optimizer.h"

namespace telegrad {
namespace {

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

}  // namespace

GroupStore::GroupStore(const StoreOptions& options, const StoreTraits& traits,
                       WorkerGroup* group, const std::string& backend)
    : options_(options),
      traits_(traits),
      backend_(backend),
      own_group_(group == nullptr ? MakeSoloGroup() : nullptr),
      group_(group == nullptr ? own_group_.get() : group),
      schedule_(static_cast<size_t>(options.num_devices)) {
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
  if (!workers_.empty()) {
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
    if (!workers_.empty()) return CheckOptimizerChange(optimizer_, config);
    optimizer_ = config;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a store of type ", traits_.type,
                   " runs no optimizer: run it on the devices"));
}

// All devices meet each other, so that each needs a thread from here on.
absl::Status GroupStore::Open() {
  const auto count = static_cast<size_t>(options_.num_devices);
  Meeting meeting(options_.num_devices);
  std::vector<absl::Status> opened(count);
  for (size_t i = 0; i < count; ++i) {
    workers_.push_back(std::make_unique<Worker>());
    workers_[i]->schedule = &schedule_;
    workers_[i]->index = i;
  }
  for (size_t i = 0; i < count; ++i) {
    workers_[i]->thread = StartThread([this, i, &meeting, &opened] {
      const GroupOptions options = {
          .backend = backend_,
          .transport = InProcess(),
          .rank = static_cast<int>(i),
          .world_size = options_.num_devices,
          .timeout = group_->options().operation_timeout,
          .device = places_[i].ordinal};
      auto made = GroupDevice::Make(options, places_[i], optimizer_,
                                    nonfinite_ == NonFinitePolicy::kError,
                                    meeting.ExchangeOf(options.rank));
      opened[i] = made.status();
      if (made.ok()) workers_[i]->device = *std::move(made);
    });
  }
  for (const auto& worker : workers_) worker->thread.join();
  for (size_t i = 0; i < count; ++i) {
    if (opened[i].ok()) continue;
    workers_.clear();
    return absl::Status(opened[i].code(),
                        absl::StrCat("device ", i, ": ", opened[i].message()));
  }
  for (const auto& worker : workers_) {
    worker->thread = StartThread([this, &worker = *worker] { Run(worker); });
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
  if (workers_.empty()) RETURN_IF_ERROR(ChoosePlaces(tensors));
  for (const TensorSpec& spec : tensors) RETURN_IF_ERROR(CheckSpec(spec));
  if (workers_.empty()) RETURN_IF_ERROR(Open());
  std::vector<std::unique_ptr<GroupTensor>> added;
  for (const TensorSpec& spec : tensors) {
    added.push_back(std::make_unique<GroupTensor>());
    added.back()->spec = spec;
    added.back()->spec.devices = places_;
  }
  for (const auto& worker : workers_) {
    RETURN_IF_ERROR(worker->device->Place(added));
  }
  std::vector<Key> keys;
  for (auto& tensor : added) {
    names_.insert(tensor->spec.name);
    MutexLock lock(&mutex_);
    keys.push_back(static_cast<Key>(tensors_.size()));
    tensors_.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < tensors.size() && !values.empty(); ++i) {
    RETURN_IF_ERROR(
        Broadcast(keys[i], 0, values.subspan(i * devices, devices), 0)
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
  return Start(GroupKind::kPushPull, key, grads, outs, priority);
}

Ticket GroupStore::Push(Key key, TensorViews grads, int priority) {
  return Start(GroupKind::kPush, key, grads, {}, priority);
}

Ticket GroupStore::Pull(Key key, TensorViews outs, int priority) {
  return Start(GroupKind::kPull, key, {}, outs, priority);
}

Ticket GroupStore::Broadcast(Key key, int root, TensorViews values,
                             int priority) {
  const absl::Status status = CheckRoot(root, 1);
  if (!status.ok()) return FinishedTicket(status);
  return Start(GroupKind::kBroadcast, key, values, values, priority);
}

TensorView GroupStore::first(Key key) const {
  MutexLock lock(&mutex_);
  return FloatTensor(tensors_[key]->places[0].values.view());
}

Ticket GroupStore::Spread(Key key, TensorViews outs, int priority) {
  return Start(GroupKind::kSpread, key, {}, outs, priority);
}

Ticket GroupStore::Start(GroupKind kind, Key key, TensorViews grads,
                         TensorViews outs, int priority) {
  const absl::StatusOr<GroupTensor*> found = FindTensor(key);
  if (!found.ok()) return FinishedTicket(found.status());
  GroupTensor& tensor = **found;
  absl::Status status;
  if (kind != GroupKind::kPull && kind != GroupKind::kSpread) {
    status = CheckViews(tensor.spec, grads, options_.num_devices);
  }
  if (kind != GroupKind::kPush) {
    status.Update(CheckViews(tensor.spec, outs, options_.num_devices));
  }
  if (!status.ok()) return FinishedTicket(status);
  schedule_.AwaitQueued(tensor);
  const std::shared_ptr<GroupOp> op = MakeOp(tensor);
  op->kind = kind;
  op->priority = priority;
  op->grads.assign(grads.begin(), grads.end());
  op->outs.assign(outs.begin(), outs.end());
  op->Record();
  status = schedule_.Add(op);
  return status.ok() ? Ticket(op->ticket) : FinishedTicket(status);
}

absl::StatusOr<GroupTensor*> GroupStore::FindTensor(Key key) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  RETURN_IF_ERROR(CheckKey(key, tensors_.size()));
  return tensors_[key].get();
}

std::shared_ptr<GroupOp> GroupStore::MakeOp(GroupTensor& tensor) const {
  std::vector<DeviceLane*> lanes;
  for (const auto& worker : workers_) lanes.push_back(&worker->device->lane());
  auto op = std::make_shared<GroupOp>(std::move(lanes));
  op->tensor = &tensor;
  op->ticket = std::make_shared<Ticket::State>();
  Ticket::State& ticket = *op->ticket;
  ticket.describe = [name = tensor.spec.name] {
    return absl::StrCat("operation on tensor ", name, " did not end in time");
  };
  // An operation that is no more is over, and so may be the store.
  const std::weak_ptr<GroupOp> weak = op;
  GroupSchedule* const schedule = workers_[0]->schedule;
  ticket.release = [schedule, weak] {
    if (const auto live = weak.lock()) schedule->Release(live);
  };
  ticket.hurry = [schedule, weak] {
    if (const auto live = weak.lock()) schedule->Hurry();
  };
  ticket.wait_on = [weak](Stream stream) {
    const auto live = weak.lock();
    return live == nullptr || live->WaitOn(stream);
  };
  return op;
}

void GroupStore::Run(Worker& worker) {
  GroupDevice& device = *worker.device;
  const kernels::DeviceScope scope(device.lane().device());
  const auto wake = [](void* whom) {
    const auto* const woken = static_cast<const Worker*>(whom);
    woken->schedule->Wake(woken->index);
  };
  for (bool is_over = false; !is_over;) {
    const std::shared_ptr<GroupBucket> next =
        schedule_.Next(worker.index, device.is_idle(), &is_over);
    if (next != nullptr && device.Queue(next, wake, &worker)) {
      schedule_.Queued(*next);
    }
    while (const auto ended = device.TakeEnded()) {
      const absl::Status status =
          schedule_.End(*ended->bucket, ended->statuses);
      if (!status.ok()) group_->Fail(status);
    }
  }
  // The others may still need what this one has sent.
  device.Close();
}

StoreStats GroupStore::stats() const {
  return {.num_frames = schedule_.num_buckets()};
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
  }
  schedule_.Close();
  for (const auto& worker : workers_) worker->thread.join();
  group_->Leave();
}

}  // namespace telegrad
