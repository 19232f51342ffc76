#include "kvstore/ps/worker/worker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/engine/codec/checks.h"
#include "kvstore/job/flight/flight_log.h"
#include "kvstore/job/path/data_path.h"
#include "kvstore/job/path/job_options.h"
#include "kvstore/optimizer.h"
#include "kvstore/ps/wire/json_fields.h"

namespace telegrad {
namespace {

// Made if it is not there; null for the host.
absl::StatusOr<WorkerDevice*> FindDevice(
    Device place, ChunkPipeline* pipeline, Mutex& mutex,
    std::vector<std::unique_ptr<WorkerDevice>>& devices) {
  if (place == Device{}) return nullptr;
  for (const auto& device : devices) {
    if (device->lane().device() == place) return device.get();
  }
  ASSIGN_OR_RETURN(std::unique_ptr<WorkerDevice> made,
                   WorkerDevice::Make(place, pipeline));
  MutexLock lock(&mutex);  // others read
  devices.push_back(std::move(made));
  return devices.back().get();
}

// Null where nobody asks for one.
std::shared_ptr<FlightRecorder> RecorderOf(const WorkerGroup& group,
                                           const StoreTraits& traits) {
  const JobOptions& options = group.options();
  if (options.flight == nullptr) return nullptr;
  FlightRecorder::Setup setup{
      .self = group.id(),
      .type = traits.type,
      .num_pushers = static_cast<size_t>(group.num_pushers()),
      .num_servers = static_cast<size_t>(group.num_servers()),
      .timeout = options.operation_timeout};
  for (const Member& member : group.membership().workers) {
    setup.ranks.push_back(member.id.rank);
  }
  return options.flight->Add(std::move(setup));
}

}  // namespace

DistWorker::DistWorker(const StoreOptions& options, const StoreTraits& traits,
                       WorkerGroup& group)
    : options_(options),
      traits_(traits),
      group_(group),
      rank_(group.rank()),
      num_workers_(group.num_pushers()),
      recorder_(RecorderOf(group, traits)),
      failure_(group, [this] { links_.Wake(); }),
      pipeline_(options_, traits_, group, failure_, links_, engine_, tensors_,
                recorder_),
      links_(group, failure_, *this, recorder_),
      questions_(links_, failure_, group.options().operation_timeout),
      codecs_(tensors_),
      backups_(tensors_, pipeline_),
      states_(traits_, group, config_, engine_, tensors_, questions_,
              failure_) {
  group_.OnFailure([this](const absl::Status& why) { failure_.Set(why); });
}

DistWorker::~DistWorker() {
  Close();
  group_.OnFailure(nullptr);
}

absl::Status DistWorker::SetCompression(const CompressionConfig& config) {
  if (planner_.has_value()) {
    return absl::FailedPreconditionError("SetCompression after Init");
  }
  config_.compression = config;
  config_.compression.packing =
      ChoosePacking(config.packing, group_.data_path().link_bytes_per_s());
  return absl::OkStatus();
}

absl::Status DistWorker::SetOptimizer(const OptimizerConfig& config) {
  if (!planner_.has_value()) {
    config_.optimizer = config;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(failure_.status());
  RETURN_IF_ERROR(CheckOptimizerChange(config_.optimizer, config));
  RETURN_IF_ERROR(tensors_.CheckIdle("SetOptimizer"));
  config_.optimizer = config;
  if (config.update_on == UpdateOn::kWorker) return absl::OkStatus();
  // No worker has a round under way from the first meeting to the second, so
  // that all chunks have the rates from the same one on.
  const auto change = [&]() -> absl::Status {
    RETURN_IF_ERROR(
        AgreeOnFacts(group_, "rates", {{"optimizer", OptimizerFact(config)}}));
    if (rank_ == 0) {
      RETURN_IF_ERROR(questions_
                          .Ask({.type = FrameType::kRates},
                               OptimizerFields(config).dump(),
                               ServerQuestions::kAllServers)
                          .status());
    }
    return group_.Gather("rates set", "").status();
  };
  const absl::Status status = change();
  if (!status.ok()) failure_.FailJob(status);  // the others wait for us
  return status;
}

absl::StatusOr<std::vector<Key>> DistWorker::Init(
    std::span<const TensorSpec> tensors, TensorViews values) {
  RETURN_IF_ERROR(failure_.status());
  RETURN_IF_ERROR(CheckInit(tensors, values));
  for (const TensorSpec& tensor : tensors) {
    RETURN_IF_ERROR(
        FindDevice(PlaceOf(tensor, 0), &pipeline_, mutex_, devices_).status());
  }
  const size_t first = tensors_.size();
  if (const absl::Status status = Add(tensors, values); !status.ok()) {
    failure_.FailJob(status);  // the others wait for us
    // It goes on for them where one that has just come is why.
    if (group_.options().elastic.min > 0) group_.FailOrGoOn(status);
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
  if (options_.drop_slowest > 0) {
    RETURN_IF_ERROR(CheckDropSlowest(config_.compression, config_.optimizer));
  }
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
  config_.drop_slowest = options_.drop_slowest;
  if (traits_.is_async) config_.max_staleness = options_.max_staleness;
  const size_t first = tensors_.size();
  RETURN_IF_ERROR(AgreeOnConfig(group_, absl::StrCat("init ", first), config_));
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
  pipeline_.switches().counts_traffic = false;
  if (!values.empty()) RETURN_IF_ERROR(BroadcastValues(first, values));
  RETURN_IF_ERROR(group_.Gather("init", "").status());
  pipeline_.switches().counts_traffic = true;
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
  RETURN_IF_ERROR(links_.Connect());
  pipeline_.Open();
  links_.Start();
  return absl::OkStatus();
}

absl::Status DistWorker::AddTensor(const TensorSpec& spec) {
  ASSIGN_OR_RETURN(const TensorLayout layout, planner_->Add(spec));
  ASSIGN_OR_RETURN(WorkerDevice* const device,
                   FindDevice(PlaceOf(spec, 0), &pipeline_, mutex_, devices_));
  const EngineConfig& engine =
      device == nullptr
          ? engine_
          : device->Configure(engine_,
                              links_.CardsFor(device->lane().device()));
  ASSIGN_OR_RETURN(std::unique_ptr<WorkerTensor> tensor,
                   MakeWorkerTensor(spec, layout, engine));
  tensor->device = device;
  const auto key = static_cast<Key>(tensors_.size());
  key_of_[spec.name] = key;
  if (recorder_ != nullptr) recorder_->SetName(key, spec.name);
  tensors_.Add(std::move(tensor));
  return absl::OkStatus();
}

absl::Status DistWorker::BroadcastValues(size_t first_key, TensorViews values) {
  const TimePoint deadline = Clock::now() + group_.options().operation_timeout;
  std::vector<Ticket> tickets;
  for (size_t i = 0; i < values.size(); ++i) {
    tickets.push_back(Broadcast(static_cast<Key>(first_key + i), group_.elder(),
                                values.subspan(i, 1), -static_cast<int>(i)));
  }
  for (const Ticket& ticket : tickets) RETURN_IF_ERROR(ticket.Wait(deadline));
  return absl::OkStatus();
}

Ticket DistWorker::PushPull(Key key, TensorViews grads, TensorViews outs,
                            int priority) {
  return pipeline_.Start(OpKind::kPushPull, key, grads, outs, priority);
}

Ticket DistWorker::Push(Key key, TensorViews grads, int priority) {
  return pipeline_.Start(OpKind::kPush, key, grads, {}, priority);
}

Ticket DistWorker::Pull(Key key, TensorViews outs, int priority) {
  return pipeline_.Start(OpKind::kPull, key, {}, outs, priority);
}

Ticket DistWorker::Broadcast(Key key, int root, TensorViews values,
                             int priority) {
  const absl::Status status = CheckRoot(root, num_workers_);
  if (!status.ok()) return FinishedTicket(status);
  return root == rank_
             ? pipeline_.Start(OpKind::kGiveValue, key, values, {}, priority)
             : pipeline_.Start(OpKind::kTakeValue, key, {}, values, priority);
}

StoreStats DistWorker::stats() const {
  StoreStats stats = pipeline_.stats();
  stats.io_cpu_s = links_.io_cpu_s();
  stats.network_s = links_.busy().seconds();
  MutexLock lock(&mutex_);
  for (const auto& device : devices_) {
    stats.to_device_bytes += device->lane().up_bytes();
    stats.from_device_bytes += device->lane().down_bytes();
  }
  return stats;
}

absl::StatusOr<Bytes> DistWorker::OnHeader(int server,
                                           const FrameHeader& header) {
  switch (header.type) {
    case FrameType::kDeclared:
    case FrameType::kState:
      return questions_.OnHeader(server, header);
    default:
      return pipeline_.OnHeader(server, header);
  }
}

void DistWorker::OnFrame(const FrameHeader& header, ConstBytes header_bytes,
                         Bytes payload) {
  switch (header.type) {
    case FrameType::kDeclared:
      return;
    case FrameType::kState:
      return questions_.OnState(header_bytes, payload);
    default:
      return pipeline_.OnAnswer(header, header_bytes, payload);
  }
}

void DistWorker::OnEnd() {
  const absl::Status why = failure_.status();
  pipeline_.End(why);
  questions_.End(why);
}

void DistWorker::Close() {
  if (is_stopping_.exchange(true)) return;
  group_.Leave();
  failure_.Set(absl::FailedPreconditionError("the store is closed"));
  links_.Join();
  pipeline_.Close();
}

}  // namespace telegrad
