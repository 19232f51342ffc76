#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "kvstore/engine/checks.h"
#include "kvstore/ps/worker.h"

namespace telegrad {
namespace {

// Made if it is not there; null for the host.
absl::StatusOr<WorkerDevice*> FindDevice(
    Device place, DistWorker* worker, Mutex& mutex,
    std::vector<std::unique_ptr<WorkerDevice>>& devices) {
  if (place == Device{}) return nullptr;
  for (const auto& device : devices) {
    if (device->lane().device() == place) return device.get();
  }
  ASSIGN_OR_RETURN(std::unique_ptr<WorkerDevice> made,
                   WorkerDevice::Make(place, worker));
  MutexLock lock(&mutex);  // others read
  devices.push_back(std::move(made));
  return devices.back().get();
}

}  // namespace

absl::StatusOr<std::vector<Key>> DistWorker::Init(
    std::span<const TensorSpec> tensors, TensorViews values) {
  RETURN_IF_ERROR(failure_.status());
  RETURN_IF_ERROR(CheckInit(tensors, values));
  for (const TensorSpec& tensor : tensors) {
    RETURN_IF_ERROR(
        FindDevice(PlaceOf(tensor, 0), this, mutex_, devices_).status());
  }
  const size_t first = tensors_.size();
  if (const absl::Status status = Add(tensors, values); !status.ok()) {
    failure_.FailJob(status);  // the others wait for us
    return status;
  }
  std::vector<Key> keys;
  for (size_t key = first; key < tensors_.size(); ++key) {
    keys.push_back(static_cast<Key>(key));
  }
  return keys;
}

absl::Status DistWorker::CheckInit(std::span<const TensorSpec> tensors,
                                   TensorViews values) const {
  RETURN_IF_ERROR(CheckTensors(tensors));
  RETURN_IF_ERROR(CheckPlaces(tensors, 1));
  if (tensors.size() > TensorTable::kMaxTensors - tensors_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(tensors.size(), " tensors beside ", tensors_.size(),
                     "; at most ", TensorTable::kMaxTensors));
  }
  for (const TensorSpec& tensor : tensors) {
    if (key_of_.contains(tensor.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("Init of tensor ", tensor.name, ", which is there"));
    }
  }
  RETURN_IF_ERROR(CheckChunkElems(options_.chunk_elems));
  RETURN_IF_ERROR(CheckConfig(config_.compression, config_.optimizer, tensors));
  if (traits_.is_async) {
    RETURN_IF_ERROR(CheckAsync(config_.compression, config_.optimizer,
                               options_.max_staleness));
  }
  return CheckValues(tensors, values, 1, config_.optimizer);
}

absl::Status DistWorker::Add(std::span<const TensorSpec> tensors,
                             TensorViews values) {
  config_.tensors.assign(tensors.begin(), tensors.end());
  config_.chunk_elems = options_.chunk_elems;
  config_.has_values = !values.empty();
  config_.is_async = traits_.is_async;
  if (traits_.is_async) config_.max_staleness = options_.max_staleness;
  const size_t first = tensors_.size();
  RETURN_IF_ERROR(
      AgreeOnFacts(group_, absl::StrCat("init ", first), MakeFacts(config_)));
  if (!planner_.has_value()) RETURN_IF_ERROR(Open());
  for (const TensorSpec& tensor : tensors) RETURN_IF_ERROR(AddTensor(tensor));
  RETURN_IF_ERROR(tensors_.Place(first));
  if (rank_ == 0) {
    RETURN_IF_ERROR(questions_
                        .Ask({.type = FrameType::kDeclare},
                             SerializeJobConfig(config_),
                             ServerQuestions::kAllServers)
                        .status());
  }
  // Nobody talks of keys that servers do not know.
  RETURN_IF_ERROR(group_.Gather("declared", "").status());
  counts_traffic_ = false;
  if (!values.empty()) RETURN_IF_ERROR(BroadcastValues(first, values));
  RETURN_IF_ERROR(group_.Gather("init", "").status());
  counts_traffic_ = true;
  return absl::OkStatus();
}

absl::Status DistWorker::Open() {
  ASSIGN_OR_RETURN(
      planner_, ShardPlanner::Make(group_.num_servers(), options_.chunk_elems,
                                   config_.compression));
  engine_ = {.compression = config_.compression,
             .optimizer = config_.optimizer,
             .num_contributors = traits_.is_async ? 1 : num_workers_,
             .buffers = &buffers_};
  answer_times_.Resize(group_.membership().servers.size());
  RETURN_IF_ERROR(links_.Connect());
  pool_ = std::make_unique<ThreadPool>(options_.num_threads);
  links_.Start();
  return absl::OkStatus();
}

absl::Status DistWorker::AddTensor(const TensorSpec& spec) {
  ASSIGN_OR_RETURN(const TensorLayout layout, planner_->Add(spec));
  ASSIGN_OR_RETURN(WorkerDevice* const device,
                   FindDevice(PlaceOf(spec, 0), this, mutex_, devices_));
  const EngineConfig& engine =
      device == nullptr ? engine_ : device->Configure(engine_);
  ASSIGN_OR_RETURN(std::unique_ptr<WorkerTensor> tensor,
                   MakeWorkerTensor(spec, layout, engine));
  tensor->device = device;
  codecs_.Add(*tensor->codec);
  key_of_[spec.name] = static_cast<Key>(tensors_.size());
  tensors_.Add(std::move(tensor));
  return absl::OkStatus();
}

absl::Status DistWorker::BroadcastValues(size_t first_key, TensorViews values) {
  const TimePoint deadline = Clock::now() + group_.options().operation_timeout;
  std::vector<Ticket> tickets;
  for (size_t i = 0; i < values.size(); ++i) {
    tickets.push_back(Broadcast(static_cast<Key>(first_key + i), 0,
                                values.subspan(i, 1), -static_cast<int>(i)));
  }
  for (const Ticket& ticket : tickets) RETURN_IF_ERROR(ticket.Wait(deadline));
  return absl::OkStatus();
}

}  // namespace telegrad
