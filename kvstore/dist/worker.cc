#include "kvstore/dist/worker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/cpu_time.h"
#include "base/status_macros.h"
#include "kvstore/dist/members.h"

namespace telegrad {

DistWorker::DistWorker(const DistOptions& options) : options_(options) {}

DistWorker::~DistWorker() {
  Close();
  control_.reset();    // its thread calls on_fatal until here
  transport_.reset();  // before the memory that it reads and writes
}

absl::Status DistWorker::SetCompression(const CompressionConfig& config) {
  if (control_ != nullptr) {
    return absl::FailedPreconditionError("SetCompression after Init");
  }
  config_.compression = config;
  if (const double rate = options_.transport.link_bytes_per_s; rate > 0) {
    config_.compression.packing = ChoosePacking(config.packing, rate);
  }
  return absl::OkStatus();
}

absl::Status DistWorker::SetOptimizer(const OptimizerConfig& config) {
  if (control_ != nullptr) {
    return absl::FailedPreconditionError("SetOptimizer after Init");
  }
  config_.optimizer = config;
  return absl::OkStatus();
}

Ticket DistWorker::PushPull(Key key, ConstBytes grad, Bytes out, int priority) {
  return Start(OpKind::kPushPull, key, grad, out, priority);
}

Ticket DistWorker::Push(Key key, ConstBytes grad, int priority) {
  return Start(OpKind::kPush, key, grad, {}, priority);
}

Ticket DistWorker::Pull(Key key, Bytes out, int priority) {
  return Start(OpKind::kPull, key, {}, out, priority);
}

absl::StatusOr<std::vector<std::string>> DistWorker::Gather(
    absl::string_view name, absl::string_view payload) {
  if (control_ == nullptr) {
    return absl::FailedPreconditionError("Gather before Init");
  }
  return control_->GatherWorkers(name, payload,
                                 Clock::now() + options_.operation_timeout);
}

Traffic DistWorker::traffic() const {
  MutexLock lock(&mutex_);
  return {
      .push_raw_bytes = push_raw_bytes_,
      .push_wire_bytes = push_wire_bytes_,
      .pull_raw_bytes = pull_raw_bytes_,
      .pull_wire_bytes = pull_wire_bytes_,
      .num_nonfinite = num_nonfinite_,
      .num_frames = num_frames_,
      .io_cpu_s = io_clock_.has_value() ? SecondsOf(*io_clock_) : io_cpu_s_};
}

std::vector<TensorReport> DistWorker::Report() const {
  std::vector<TensorReport> reports;
  for (const auto& tensor : tensors_) reports.push_back(ReportOf(*tensor));
  return reports;
}

absl::Status DistWorker::SetCodec(Key key, int codec) {
  if (control_ == nullptr) {
    return absl::FailedPreconditionError("SetCodec before Init");
  }
  if (key >= tensors_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "key ", key, " of a store with ", tensors_.size(), " tensors"));
  }
  WorkerTensor& tensor = *tensors_[key];
  const size_t num_codecs = tensor.chunks[0]->stages.codings().size();
  if (codec < kDenseCodec || codec >= static_cast<int>(num_codecs)) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec ", codec, " of tensor ", tensor.spec.name,
                     ", which has ", num_codecs, "; -1: dense"));
  }
  tensor.wish = codec == kDenseCodec ? ChunkStage::kPaused
                                     : StageOfCodec(static_cast<size_t>(codec));
  return absl::OkStatus();
}

PackingMode DistWorker::packing() const { return config_.compression.packing; }

absl::Status DistWorker::SetPacking(PackingMode mode) {
  if (control_ == nullptr || packing() != PackingMode::kAuto ||
      mode == PackingMode::kAuto) {
    return absl::FailedPreconditionError(
        absl::StrCat("SetPacking to ", ToString(mode), " of a store with ",
                     control_ == nullptr ? "no job yet" : ToString(packing())));
  }
  const bool is_late =
      std::any_of(tensors_.begin(), tensors_.end(), [this](const auto& tensor) {
        MutexLock lock(&mutex_);
        return tensor->rounds > 0 || tensor->active != nullptr;
      });
  if (is_late) {
    return absl::FailedPreconditionError("SetPacking after the first push");
  }
  config_.compression.packing = mode;
  for (const auto& tensor : tensors_) {
    for (const auto& chunk : tensor->chunks) {
      chunk->stages.DecidePacking(static_cast<uint8_t>(mode));
    }
  }
  return absl::OkStatus();
}

ServerMachines DistWorker::server_machines() const {
  return control_ == nullptr ? ServerMachines()
                             : ServerMachinesOf(control_->membership());
}

absl::StatusOr<std::vector<ServerAbout>> DistWorker::AskServers() {
  if (control_ == nullptr) {
    return absl::FailedPreconditionError("AskServers before Init");
  }
  const Membership& membership = control_->membership();
  std::vector<ServerAbout> all;
  for (const int rank : ServersElsewhere(membership)) {
    ServerAbout& about = all.emplace_back();
    about.rank = rank;
    about.host = membership.servers[static_cast<size_t>(rank)].host;
    ASSIGN_OR_RETURN(
        about.text,
        control_->AskServer(rank, Clock::now() + options_.operation_timeout));
  }
  return all;
}

TransportChoice DistWorker::transport_choice() const {
  return control_ == nullptr
             ? own_.choice
             : SettledChoice(control_->membership(), own_.choice);
}

ConnectionChoice DistWorker::connection_choice() const {
  return SettledConnections(
      control_ == nullptr ? Membership() : control_->membership(), own_.offers);
}

std::string DistWorker::transport_details() const { return transport_details_; }

void DistWorker::SetStep(int64_t step) {
  if (control_ != nullptr) control_->SetStep(step);
}

void DistWorker::Fail(const absl::Status& why) {
  if (!why.ok()) FailJob(why);
}

void DistWorker::FailJob(const absl::Status& why) {
  FailLocal(why);
  if (control_ == nullptr) return;
  FatalEvent event{.code = ExitCodeOf(why), .message = {}, .dead = {}};
  event.message = std::string(why.message());
  if (const auto details = why.GetPayload("telegrad/details")) {
    event.details_json = std::string(*details);
  }
  control_->Fail(event);
}

void DistWorker::FailLocal(const absl::Status& why) {
  {
    MutexLock lock(&mutex_);
    if (failure_.ok()) failure_ = why;
    has_failed_ = true;
    if (!is_open_) return;
  }
  transport_->Wake();
}

absl::Status DistWorker::failure() {
  MutexLock lock(&mutex_);
  return failure_;
}

void DistWorker::Close() {
  if (is_stopping_.exchange(true)) return;
  if (control_ != nullptr) control_->Leave();
  FailLocal(absl::FailedPreconditionError("the store is closed"));
  if (io_thread_.joinable()) io_thread_.join();
  pool_.reset();
}

}  // namespace telegrad
