#include "kvstore/ps/worker/server_links.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/cpu_time.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/short_slices.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "kvstore/job/path/data_path.h"
#include "kvstore/job/path/job_options.h"

namespace telegrad {
namespace {

constexpr Duration kIoTick = std::chrono::milliseconds(100);
constexpr Duration kLongestPause = std::chrono::seconds(1);

const std::string& AddressOf(const WorkerGroup& group, int server) {
  return group.data_path().server_addresses[static_cast<size_t>(server)];
}

// After the data connection of a server broke, the scheduler's verdict, which
// names the dead or begins another epoch, is waited for this long: as long as
// members may stand still, on a busy machine, before it has come.
Duration VerdictGrace(const WorkerGroup& group) {
  return std::max<Duration>(std::chrono::seconds(5),
                            group.options().timing.dead);
}

// The plan has network cards read and write the memory of GPUs, and they do not
// because of `why`. An error where it was asked for.
absl::Status WithoutCards(const WorkerGroup& group, absl::string_view why) {
  if (group.options().path.gdr == GdrWish::kOn) {
    return WithExitCode(
        ExitCode::kMismatch,
        absl::FailedPreconditionError(absl::StrCat("--gdr on: ", why)));
  }
  LogWarning("GPUDirect RDMA is not used, codes go by way of host memory: ",
             why);
  return absl::OkStatus();
}

// Where the plan's way for memory of GPUs is not there, the pinned one is.
absl::StatusOr<std::unique_ptr<TransportContext>> MakeContext(
    const WorkerGroup& group, TransportHandler* handler) {
  TransportOptions transport = group.data_path().transport;
  transport.sends_wait = true;  // for Run, which follows
  auto made = MakeTransport(transport, handler);
  if (made.ok() || transport.memory != "direct") return made;
  RETURN_IF_ERROR(WithoutCards(group, made.status().message()));
  transport.memory = "host";
  return MakeTransport(transport, handler);
}

// What a run's first line says of it; empty: nothing.
std::string AboutSealing(const TransportOptions& path,
                         const TransportContext& context, int64_t num_sealed) {
  std::string text;
  if (num_sealed > 0) {
    absl::StrAppend(&text, ", encryption ", Name(path.encryption), ": ",
                    num_sealed, " sealed");
  }
  if (path.key != nullptr && context.TakesSome(DeviceKind::kCuda)) {
    absl::StrAppend(&text, ", isolated fabric: what cards read from GPUs ",
                    "cannot be sealed");
  }
  return text;
}

}  // namespace

ServerLinks::ServerLinks(WorkerGroup& group, WorkerFailure& failure,
                         Receiver& receiver,
                         std::shared_ptr<FlightRecorder> recorder)
    : group_(group),
      failure_(failure),
      receiver_(receiver),
      recorder_(std::move(recorder)) {
  leaving_.Record(recorder_);
}

ServerLinks::~ServerLinks() {
  Join();
  transport_.reset();  // before the memory that it reads and writes
}

absl::Status ServerLinks::Connect() {
  ASSIGN_OR_RETURN(transport_, MakeContext(group_, this));
  const TransportInfo info = transport_->info();
  details_ = absl::StrCat(info.name, ": ", info.details);
  links_.resize(group_.membership().servers.size());
  for (size_t i = 0; i < links_.size(); ++i) {
    RETURN_IF_ERROR(Reach(static_cast<int>(i)));
  }
  RETURN_IF_ERROR(AwaitReady(Clock::now() + group_.options().timing.join));
  absl::StrAppend(
      &details_,
      AboutSealing(group_.data_path().transport, *transport_,
                   absl::c_count_if(links_, [this](const Link& link) {
                     return transport_->IsSealed(link.endpoint);
                   })));
  return CheckCards();
}

absl::Status ServerLinks::Reach(int server) {
  const Membership& membership = group_.membership();
  const Identity self{.node = membership.self, .epoch = membership.epoch};
  Link& link = At(server);
  Link fresh;
  fresh.refused = link.refused;
  fresh.pause = link.pause;
  link = std::move(fresh);
  ASSIGN_OR_RETURN(link.endpoint,
                   transport_->Connect(AddressOf(group_, server)));
  server_of_[link.endpoint] = server;
  link.sender = std::make_unique<FrameSender>(transport_.get(), link.endpoint,
                                              kSendWindowBytes, &leaving_);
  link.handshake = std::make_unique<HandshakeClient>(
      group_.options().secret, group_.options().job_id, self,
      NodeId{Role::kServer, server});
  SendHandshake(server, FrameType::kHello, link.handshake->Hello());
  return absl::OkStatus();
}

// Once it is known over what each server is reached.
absl::Status ServerLinks::CheckCards() const {
  const DataPath& path = group_.data_path();
  if (path.transport.memory != "direct") return absl::OkStatus();
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i].is_unchecked) continue;
    return WithoutCards(group_,
                        absl::StrCat("server/", i,
                                     " is reached over a network without "
                                     "checks of its packets (",
                                     details_, ")"));
  }
  return absl::OkStatus();
}

// Codes of a tensor may be for any server.
CardAccess ServerLinks::CardsFor(Device device) const {
  if (device.kind == DeviceKind::kCpu) return {};
  MutexLock lock(&mutex_);  // while it is open, there is a transport
  const bool is_possible = is_open_ && transport_->Takes(device.kind) &&
                           absl::c_all_of(links_, [](const Link& link) {
                             return link.is_unchecked;
                           });
  if (!is_possible) return {};
  const MemoryPath memory = group_.data_path().memory;
  return {.sends = memory == MemoryPath::kGdr,
          .receives = memory >= MemoryPath::kGdrReceive};
}

// A server that is there may have had no place for us; of one that is not, the
// scheduler tells.
absl::Status ServerLinks::AwaitReady(TimePoint deadline) {
  for (size_t i = 0; i < links_.size(); ++i) {
    const int server = static_cast<int>(i);
    while (!links_[i].is_ready) {
      RETURN_IF_ERROR(connect_status_);
      RETURN_IF_ERROR(failure_.status());
      const TimePoint now = Clock::now();
      if (now >= deadline && !links_[i].refused.ok()) {
        group_.SuspectPeer({Role::kServer, server},
                           links_[i].refused.message());
        return VerdictOr(links_[i].refused);
      }
      if (now >= deadline) {
        return WithExitCode(ExitCode::kJoinTimeout,
                            absl::DeadlineExceededError(absl::StrCat(
                                "server/", i, " at ", AddressOf(group_, server),
                                " did not answer the handshake")));
      }
      for (size_t other = i; other < links_.size(); ++other) {
        if (links_[other].again_at > now) continue;
        RETURN_IF_ERROR(Reach(static_cast<int>(other)));
      }
      transport_->Progress(now + kIoTick);
    }
  }
  return absl::OkStatus();
}

void ServerLinks::Start() {
  {
    MutexLock lock(&mutex_);
    is_open_ = true;
  }
  thread_ = StartThread([this] { Run(); });
}

void ServerLinks::Join() {
  if (thread_.joinable()) thread_.join();
}

void ServerLinks::Post(std::function<void()> job) {
  MutexLock lock(&mutex_);
  if (!is_open_) return;  // the tickets have ended
  posted_.push_back(std::move(job));
  if (posted_.size() == 1) transport_->Wake();
}

void ServerLinks::Wake() {
  MutexLock lock(&mutex_);
  if (is_open_) transport_->Wake();
}

double ServerLinks::io_cpu_s() const {
  MutexLock lock(&mutex_);
  return clock_.has_value() ? SecondsOf(*clock_) : cpu_s_;
}

void ServerLinks::Send(int server, OutgoingFrame frame) {
  At(server).sender->Enqueue(std::move(frame));
}

FrameHeader ServerLinks::Addressed(int server, FrameHeader header) const {
  header.epoch = group_.membership().epoch;
  header.source = static_cast<uint16_t>(group_.rank());
  header.destination = static_cast<uint16_t>(server);
  return header;
}

void ServerLinks::Run() {
  const ShortSlices slices;
  {
    MutexLock lock(&mutex_);
    clock_ = OwnCpuClock();
  }
  std::vector<std::function<void()>> jobs;
  while (!failure_.is_set()) {
    {
      MutexLock lock(&mutex_);
      jobs.swap(posted_);
    }
    for (const auto& job : jobs) job();
    jobs.clear();
    transport_->Progress(Clock::now() + kIoTick);
    CheckLost();
  }
  End();
  MutexLock lock(&mutex_);
  clock_.reset();
  cpu_s_ = ThreadCpuSeconds();
}

// Nobody may touch a caller's memory once its ticket has ended: the transport
// lets go first.
void ServerLinks::End() {
  is_cutting_ = true;
  for (Link& link : links_) transport_->Close(link.endpoint);
  const TimePoint deadline = Clock::now() + kCloseGrace + kIoTick;
  while (!server_of_.empty() && Clock::now() < deadline) {
    transport_->Progress(deadline);
  }
  if (!server_of_.empty()) LogWarning("a connection does not close");
  {
    MutexLock lock(&mutex_);
    is_open_ = false;
    posted_.clear();
  }
  // With it goes whatever a connection that does not close would still touch.
  for (Link& link : links_) link.sender.reset();
  transport_.reset();
  receiver_.OnEnd();
}

void ServerLinks::OnAccept(EndpointId endpoint) { transport_->Close(endpoint); }

absl::StatusOr<Bytes> ServerLinks::OnHeader(EndpointId from, ConstBytes bytes,
                                            size_t payload_bytes) {
  const auto found = server_of_.find(from);
  if (found == server_of_.end()) {
    return absl::FailedPreconditionError("a refused connection");
  }
  const int server = found->second;
  absl::StatusOr<Bytes> target = JudgeHeader(server, bytes, payload_bytes);
  if (target.ok() || is_cutting_) return target;
  const absl::Status why = WithExitCode(
      ExitCodeOfFrame(target.status()),
      absl::Status(
          target.status().code(),
          absl::StrCat("server/", server, ": ", target.status().message())));
  if (At(server).is_ready) {
    failure_.FailJob(why);
  } else if (absl::IsDataLoss(why)) {
    At(server).refused = why;  // the next try may come through whole
  } else {
    connect_status_ = why;
  }
  return target;
}

absl::StatusOr<Bytes> ServerLinks::JudgeHeader(int server, ConstBytes bytes,
                                               size_t payload_bytes) {
  ASSIGN_OR_RETURN(const FrameHeader header, ParseFrameHeader(bytes));
  if (header.payload_bytes != payload_bytes) {
    return absl::DataLossError(absl::StrCat("frame of ", payload_bytes,
                                            " bytes, header says ",
                                            header.payload_bytes));
  }
  Link& link = At(server);
  if (link.is_ready) return receiver_.OnHeader(server, header);
  if (payload_bytes > kMaxHandshakeBytes || link.is_receiving) {
    return absl::InvalidArgumentError("handshake out of order or too long");
  }
  link.is_receiving = true;
  link.handshake_buffer = Buffer(kMaxHandshakeBytes);
  return link.handshake_buffer.view();
}

void ServerLinks::OnMessage(EndpointId from, ConstBytes bytes, Bytes payload) {
  const auto found = server_of_.find(from);
  if (found == server_of_.end()) return;
  const int server = found->second;
  const FrameHeader header = ReadFrameHeader(bytes);  // judged by OnHeader
  if (!At(server).is_ready) {
    const absl::Status whole = CheckFramePayload(bytes, payload);
    if (whole.ok()) return OnHandshake(server, header, payload);
    At(server).refused = WithExitCode(
        ExitCode::kIntegrity,
        absl::Status(whole.code(),
                     absl::StrCat("server/", server, ": ", whole.message())));
    return transport_->Close(from);
  }
  NoteFrame(recorder_, static_cast<size_t>(server), header, false);
  receiver_.OnFrame(header, bytes, payload);
}

void ServerLinks::OnHandshake(int server, const FrameHeader& header,
                              Bytes payload) {
  Link& link = At(server);
  link.is_receiving = false;
  if (header.type == FrameType::kReady && link.has_proved) {
    link.is_ready = true;
    link.is_unchecked =
        group_.data_path().IsUnchecked(*transport_, link.endpoint);
    return;
  }
  const absl::string_view message(reinterpret_cast<char*>(payload.data),
                                  payload.size);
  absl::StatusOr<std::string> proof =
      header.type == FrameType::kChallenge
          ? link.handshake->OnChallenge(message)
          : WithExitCode(
                ExitCode::kAuthentication,
                absl::UnauthenticatedError(absl::StrCat(
                    "server/", server, " at ", AddressOf(group_, server),
                    " has not proved who it is")));
  if (!proof.ok()) {
    connect_status_ = proof.status();
    return;
  }
  link.has_proved = true;
  SendHandshake(server, FrameType::kProof, *proof);
}

void ServerLinks::SendHandshake(int server, FrameType type,
                                absl::string_view message) {
  auto kept = std::make_shared<std::string>(message);
  const ConstBytes payload(kept->data(), kept->size());
  const FrameHeader header = Addressed(
      server,
      {.type = type, .payload_bytes = static_cast<uint32_t>(payload.size)});
  Send(server, {.header = SerializeFrame(header, payload),
                .payload = payload,
                .keep_alive = kept,
                .priority = 0});
}

void ServerLinks::OnClosed(EndpointId endpoint, const absl::Status& why) {
  const auto found = server_of_.find(endpoint);
  if (found == server_of_.end()) return;
  const int server = found->second;
  server_of_.erase(found);
  if (is_cutting_ || failure_.is_set()) return;
  Link& link = At(server);
  if (!link.is_ready)
    return link.Refuse(server, AddressOf(group_, server), why);
  if (absl::IsDataLoss(why)) {
    return failure_.FailJob(absl::DataLossError(
        absl::StrCat("server/", server, " at ", AddressOf(group_, server), ": ",
                     why.message())));
  }
  group_.SuspectPeer({Role::kServer, server}, why.message());
  link.is_lost = true;
  link.lost_at = Clock::now();
  link.lost_why = why;
}

void ServerLinks::Link::Refuse(int server, const std::string& address,
                               const absl::Status& why) {
  again_at = Clock::now() + pause;
  pause = std::min(2 * pause, kLongestPause);
  // Why we have closed it is known already.
  if (absl::IsCancelled(why) && !refused.ok()) return;
  refused = WithExitCode(
      absl::IsUnauthenticated(why) ? ExitCode::kAuthentication
                                   : ExitCode::kServerLost,
      absl::Status(why.code(), absl::StrCat("server/", server, " at ", address,
                                            ": ", why.message())));
}

absl::Status ServerLinks::VerdictOr(const absl::Status& lost) {
  const TimePoint until = Clock::now() + VerdictGrace(group_);
  while (!failure_.is_set() && Clock::now() < until) {
    transport_->Progress(Clock::now() + std::chrono::milliseconds(10));
  }
  const absl::Status verdict = failure_.status();
  return verdict.ok() ? lost : verdict;
}

void ServerLinks::CheckLost() {
  for (size_t i = 0; i < links_.size(); ++i) {
    Link& link = links_[i];
    if (!link.is_lost || Clock::now() - link.lost_at < VerdictGrace(group_)) {
      continue;
    }
    link.is_lost = false;
    failure_.FailJob(
        WithExitCode(ExitCode::kServerLost,
                     absl::UnavailableError(absl::StrCat(
                         "server/", i, ": ", link.lost_why.message()))));
  }
}

}  // namespace telegrad
