#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "kvstore/engine/checks.h"
#include "kvstore/ps/worker.h"

namespace telegrad {
namespace {

constexpr int kUrgent = INT32_MAX;  // priority of what Init sends

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
  RETURN_IF_ERROR(failure());
  RETURN_IF_ERROR(CheckInit(tensors, values));
  for (const TensorSpec& tensor : tensors) {
    RETURN_IF_ERROR(
        FindDevice(PlaceOf(tensor, 0), this, mutex_, devices_).status());
  }
  const size_t first = tensors_.size();
  if (const absl::Status status = Add(tensors, values); !status.ok()) {
    FailJob(status);  // the others wait for us
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
    RETURN_IF_ERROR(Ask({.type = FrameType::kDeclare},
                        SerializeJobConfig(config_), kAllServers)
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
  TransportOptions transport = group_.data_path().transport;
  transport.sends_wait = true;  // for RunIo, which follows
  ASSIGN_OR_RETURN(transport_, MakeTransport(transport, this));
  const TransportInfo info = transport_->info();
  transport_details_ = absl::StrCat(info.name, ": ", info.details);
  RETURN_IF_ERROR(Connect());
  pool_ = std::make_unique<ThreadPool>(options_.num_threads);
  {
    MutexLock lock(&mutex_);
    is_open_ = true;
  }
  io_thread_ = std::thread([this] { RunIo(); });
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
  const bool is_open = tensor->codec->chunks()[0].codings().has_open_packing();
  if (const PackingMode mode = packing_;
      is_open && mode != PackingMode::kAuto) {
    tensor->codec->DecidePacking(static_cast<uint8_t>(mode));
  }
  has_open_packing_ |= is_open;
  key_of_[spec.name] = static_cast<Key>(tensors_.size());
  tensors_.Add(std::move(tensor));
  return absl::OkStatus();
}

absl::StatusOr<Buffer> DistWorker::Ask(FrameHeader header, std::string text,
                                       int server) {
  if (text.size() > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a message of ", text.size(), " bytes to servers, at most ",
        kMaxPayloadBytes, ": fewer tensors in one Init, or smaller chunks"));
  }
  auto declaration = std::make_shared<Declaration>();
  declaration->text = std::move(text);
  if (header.type == FrameType::kAskState) {
    declaration->answer_type = FrameType::kState;
  }
  declaration->is_answered.resize(links_.size(), server != kAllServers);
  declaration->num_left = server == kAllServers ? links_.size() : 1;
  if (server != kAllServers) {
    declaration->is_answered[static_cast<size_t>(server)] = false;
  }
  declaration->ticket = std::make_shared<Ticket::State>();
  declaration->ticket->describe = [] {
    return std::string("a server did not answer between rounds");
  };
  {
    MutexLock lock(&mutex_);
    if (!failure_.ok()) return failure_;  // nobody would end the ticket
    declaration_ = declaration;
  }
  header.epoch = epoch_;
  header.source = static_cast<uint16_t>(rank_);
  header.payload_bytes = static_cast<uint32_t>(declaration->text.size());
  Post([this, declaration, header]() mutable {
    const ConstBytes payload(declaration->text.data(),
                             declaration->text.size());
    for (size_t to = 0; to < links_.size(); ++to) {
      if (declaration->is_answered[to]) continue;
      header.destination = static_cast<uint16_t>(to);
      links_[to].sender->Enqueue({.header = SerializeFrame(header, payload),
                                  .payload = payload,
                                  .keep_alive = declaration,
                                  .priority = kUrgent});
    }
  });
  RETURN_IF_ERROR(Ticket(declaration->ticket)
                      .Wait(Clock::now() + group_.options().operation_timeout));
  return std::move(declaration->answer);
}

// Without a payload that is all; else OnMessage ends it.
absl::StatusOr<Bytes> DistWorker::OnDeclared(int server,
                                             const FrameHeader& header) {
  std::shared_ptr<Declaration> declaration;
  {
    MutexLock lock(&mutex_);
    declaration = declaration_;
  }
  const auto index = static_cast<size_t>(server);
  const bool has_payload = header.type == FrameType::kState;
  if (declaration == nullptr || declaration->is_answered[index] ||
      header.type != declaration->answer_type ||
      has_payload != (header.payload_bytes > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "answer of type ", static_cast<int>(header.type), ", ",
        header.payload_bytes, " bytes: nothing of the kind was asked for"));
  }
  declaration->is_answered[index] = true;
  if (has_payload) {
    ASSIGN_OR_RETURN(declaration->answer, Buffer::Create(header.payload_bytes));
    return declaration->answer.view();
  }
  if (--declaration->num_left == 0) {
    declaration->ticket->Finish(absl::OkStatus());
  }
  return Bytes();
}

absl::Status DistWorker::Connect() {
  const Membership& membership = group_.membership();
  const Identity self{.node = membership.self, .epoch = epoch_};
  links_.resize(membership.servers.size());
  answer_times_.Resize(membership.servers.size());
  for (size_t i = 0; i < links_.size(); ++i) {
    ServerLink& link = links_[i];
    ASSIGN_OR_RETURN(
        link.endpoint,
        transport_->Connect(group_.data_path().server_addresses[i]));
    server_of_[link.endpoint] = static_cast<int>(i);
    link.sender = std::make_unique<FrameSender>(transport_.get(), link.endpoint,
                                                kSendWindowBytes, &leaving_);
    link.handshake = std::make_unique<HandshakeClient>(
        group_.options().secret, group_.options().job_id, self);
    SendHandshake(link, FrameType::kHello, link.handshake->Hello());
  }
  const TimePoint deadline = Clock::now() + group_.options().timing.join;
  for (size_t i = 0; i < links_.size(); ++i) {
    const ServerLink& link = links_[i];
    while (!link.is_ready) {
      if (ExitCodeOf(connect_status_) == ExitCode::kServerLost) {
        return VerdictOr(connect_status_);
      }
      RETURN_IF_ERROR(connect_status_);
      RETURN_IF_ERROR(failure());
      if (Clock::now() >= deadline) {
        return WithExitCode(
            ExitCode::kJoinTimeout,
            absl::DeadlineExceededError(absl::StrCat(
                "server/", i, " at ", group_.data_path().server_addresses[i],
                " did not answer the handshake")));
      }
      transport_->Progress(Clock::now() + std::chrono::milliseconds(100));
    }
  }
  return absl::OkStatus();
}

void DistWorker::SendHandshake(ServerLink& link, FrameType type,
                               absl::string_view message) {
  auto payload = std::make_shared<std::string>(message);
  const FrameHeader header{
      .type = type,
      .epoch = epoch_,
      .payload_bytes = static_cast<uint32_t>(payload->size()),
      .source = static_cast<uint16_t>(rank_),
      .destination = static_cast<uint16_t>(&link - links_.data()),
  };
  const ConstBytes bytes(payload->data(), payload->size());
  link.sender->Enqueue({.header = SerializeFrame(header, bytes),
                        .payload = bytes,
                        .keep_alive = payload,
                        .priority = 0});
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
