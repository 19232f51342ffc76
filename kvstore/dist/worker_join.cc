#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kvstore/dist/members.h"
#include "kvstore/dist/worker.h"

namespace telegrad {
namespace {

// How the data travels is no part of the job's configuration, which servers
// follow, but the same on all workers.
Facts AllFacts(const JobConfig& config, const DistOptions& options,
               const TransportChoice& choice) {
  Facts facts = MakeFacts(config);
  const Facts transport = TransportFacts(choice);
  facts.insert(facts.end(), transport.begin(), transport.end());
  facts.insert(facts.end(), options.facts.begin(), options.facts.end());
  return facts;
}

}  // namespace

absl::Status DistWorker::Init(std::span<const TensorSpec> tensors,
                              std::span<const Bytes> values) {
  if (control_ != nullptr) {
    return absl::FailedPreconditionError("Init was called already");
  }
  RETURN_IF_ERROR(CheckInit(tensors, values));
  RETURN_IF_ERROR(Join(tensors, !values.empty()));
  const absl::Status status = Open(values);
  if (!status.ok()) FailJob(status);  // the others wait for us
  return status;
}

absl::Status DistWorker::CheckInit(std::span<const TensorSpec> tensors,
                                   std::span<const Bytes> values) const {
  RETURN_IF_ERROR(CheckTensors(tensors));
  if (!values.empty() && values.size() != tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat("Init with ", tensors.size(),
                                                   " tensors and ",
                                                   values.size(), " values"));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].size != 4 * tensors[i].num_elems) {
      return absl::InvalidArgumentError(
          absl::StrCat("value of ", tensors[i].name, " has ", values[i].size,
                       " bytes, not ", 4 * tensors[i].num_elems));
    }
  }
  if (options_.chunk_elems < 1 || options_.chunk_elems > kMaxChunkElems) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunks of ", options_.chunk_elems, " elements; at most ",
                     kMaxChunkElems));
  }
  RETURN_IF_ERROR(CheckConfig(config_.compression, config_.optimizer));
  if (config_.optimizer.update_on == UpdateOn::kServer && values.empty()) {
    return absl::InvalidArgumentError(
        "an optimizer on the servers needs initial values");
  }
  return absl::OkStatus();
}

absl::Status DistWorker::Open(std::span<const Bytes> values) {
  RETURN_IF_ERROR(MakeTensors());
  RETURN_IF_ERROR(Connect());
  pool_ = std::make_unique<ThreadPool>(options_.num_threads);
  {
    MutexLock lock(&mutex_);
    is_open_ = true;
  }
  io_thread_ = std::thread([this] { RunIo(); });
  if (!values.empty()) RETURN_IF_ERROR(BroadcastValues(values));
  RETURN_IF_ERROR(Gather("init", "").status());
  counts_traffic_ = true;
  return absl::OkStatus();
}

absl::Status DistWorker::Join(std::span<const TensorSpec> tensors,
                              bool has_values) {
  config_.tensors.assign(tensors.begin(), tensors.end());
  config_.chunk_elems = options_.chunk_elems;
  config_.has_values = has_values;
  config_.resends = options_.transport.resend;
  own_ = TransportsOf(options_);
  absl::Status taken = Take(own_.transports[0]);
  while (!taken.ok() && own_.transports.size() > 1) {
    Withdraw(0, taken, own_);
    taken = Take(own_.transports[0]);
  }
  RETURN_IF_ERROR(taken);
  JoinRequest request{
      .scheduler_address = options_.scheduler_address,
      .role = Role::kWorker,
      .wanted_rank = options_.wanted_rank,
      .data_address = "",
      .offers = own_.offers,
      .facts = AllFacts(config_, options_, own_.choice),
      .shared = SerializeJobConfig(config_),
      .job_id = options_.job_id,
      .secret = options_.secret,
      .timing = options_.timing,
      .on_fatal =
          [this](const FatalEvent& event) {
            if (options_.on_fatal) options_.on_fatal(event);
            FailLocal(WithExitCode(event.code,
                                   absl::UnavailableError(event.message)));
          },
  };
  ASSIGN_OR_RETURN(control_, ControlClient::Join(request));
  const Membership& membership = control_->membership();
  rank_ = membership.self.rank;
  num_workers_ = static_cast<int>(membership.workers.size());
  epoch_ = membership.epoch;
  const absl::Status status = Settle();
  if (!status.ok()) FailJob(status);
  return status;
}

absl::Status DistWorker::Settle() {
  const Membership& membership = control_->membership();
  if (rank_ == 0 && !membership.transport_reason.empty()) {
    LogWarning("transport ", membership.transport,
               " for all: ", membership.transport_reason);
  }
  const size_t settled = SettledIndex(membership, own_);
  TransportOptions transport = own_.transports[settled];
  transport.connections = connection_choice().connections;
  const bool is_taken =
      settled == 0 && transport.connections == own_.offers.connections;
  return is_taken ? absl::OkStatus() : Take(transport);
}

absl::Status DistWorker::Take(TransportOptions transport) {
  transport_.reset();
  transport.sends_wait = true;  // for RunIo, which follows
  ASSIGN_OR_RETURN(transport_, MakeTransport(transport, this));
  const TransportInfo info = transport_->info();
  transport_details_ = absl::StrCat(info.name, ": ", info.details);
  return absl::OkStatus();
}

absl::Status DistWorker::MakeTensors() {
  const auto num_servers =
      static_cast<int>(control_->membership().servers.size());
  ASSIGN_OR_RETURN(const std::vector<TensorLayout> plan,
                   MakeShardPlan(config_.tensors, num_servers,
                                 config_.chunk_elems, config_.compression));
  for (size_t key = 0; key < plan.size(); ++key) {
    ASSIGN_OR_RETURN(
        std::unique_ptr<WorkerTensor> tensor,
        MakeWorkerTensor(config_.tensors[key], plan[key], config_.compression,
                         config_.optimizer, num_workers_));
    for (const auto& chunk : tensor->chunks) {
      largest_chunk_bytes_ =
          std::max(largest_chunk_bytes_, 4 * chunk->plan.num_elems);
    }
    tensors_.push_back(std::move(tensor));
  }
  const bool is_open =
      std::any_of(tensors_.begin(), tensors_.end(), [](const auto& tensor) {
        return tensor->chunks[0]->stages.has_open_packing();
      });
  if (packing() == PackingMode::kAuto && !is_open) {
    config_.compression.packing = PackingMode::kPlain;  // of nothing
  }
  return absl::OkStatus();
}

absl::Status DistWorker::Connect() {
  const Membership& membership = control_->membership();
  const Identity self{.node = membership.self, .epoch = epoch_};
  links_.resize(membership.servers.size());
  for (size_t i = 0; i < links_.size(); ++i) {
    ServerLink& link = links_[i];
    ASSIGN_OR_RETURN(link.endpoint,
                     transport_->Connect(membership.servers[i].data_address));
    server_of_[link.endpoint] = static_cast<int>(i);
    link.sender = std::make_unique<FrameSender>(transport_.get(), link.endpoint,
                                                kSendWindowBytes);
    link.handshake = std::make_unique<HandshakeClient>(options_.secret,
                                                       options_.job_id, self);
    SendHandshake(link, FrameType::kHello, link.handshake->Hello());
  }
  const TimePoint deadline = Clock::now() + options_.timing.join;
  for (ServerLink& link : links_) {
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
                "server/", &link - links_.data(), " at ",
                membership.servers[static_cast<size_t>(&link - links_.data())]
                    .data_address,
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
      .sequence = next_sequence_++,
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

absl::Status DistWorker::BroadcastValues(std::span<const Bytes> values) {
  const TimePoint deadline = Clock::now() + options_.operation_timeout;
  const auto for_all = [&](OpKind kind) -> absl::Status {
    std::vector<Ticket> tickets;
    for (size_t key = 0; key < values.size(); ++key) {
      tickets.push_back(Start(kind, static_cast<Key>(key), values[key],
                              values[key], -static_cast<int>(key)));
    }
    for (const Ticket& ticket : tickets) {
      RETURN_IF_ERROR(ticket.Wait(deadline));
    }
    return absl::OkStatus();
  };
  if (rank_ == 0) RETURN_IF_ERROR(for_all(OpKind::kInit));
  return for_all(OpKind::kPull);
}

}  // namespace telegrad
