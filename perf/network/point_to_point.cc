#include "perf/network/point_to_point.h"

#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"

namespace telegrad::perf {
namespace {

constexpr int64_t kEventsPerLook = 64;

}  // namespace

Endpoint::Endpoint(const NetworkOptions& options, int rank)
    : timeout_(TimeoutOf(options)), other_(1 - rank) {}

absl::StatusOr<std::unique_ptr<Endpoint>> Endpoint::Make(
    const NetworkOptions& options, WorkerGroup& group, size_t max_bytes) {
  const int rank = group.rank();
  std::unique_ptr<Endpoint> self(new Endpoint(options, rank));
  ASSIGN_OR_RETURN(const Device device, PayloadDevice(options.memory, rank));
  ASSIGN_OR_RETURN(self->in_, PayloadMemory::Make(device, max_bytes));
  ASSIGN_OR_RETURN(self->out_, PayloadMemory::Make(device, max_bytes));
  TransportOptions transport = group.data_path().transport;
  transport.sends_wait = true;  // for DriveUntil
  ASSIGN_OR_RETURN(self->context_, MakeTransport(transport, self.get()));
  ASSIGN_OR_RETURN(const std::string mine, self->context_->Listen());
  ASSIGN_OR_RETURN(const std::vector<std::string> addresses,
                   group.Gather("address", mine));
  if (rank == 0) {
    ASSIGN_OR_RETURN(self->peer_, self->context_->Connect(addresses[1]));
    RETURN_IF_ERROR(self->Send(0));
  }
  // A message each way: both are connected then.
  RETURN_IF_ERROR(self->DriveUntil([&] { return self->num_heard_ > 0; }));
  if (rank == 1) RETURN_IF_ERROR(self->Send(0));
  return self;
}

void Endpoint::OnAccept(EndpointId endpoint) {
  if (peer_ == 0) peer_ = endpoint;
}

absl::StatusOr<Bytes> Endpoint::OnHeader(EndpointId from, ConstBytes,
                                         size_t payload_bytes) {
  if (from != peer_ || payload_bytes > in_->size()) {
    return absl::InvalidArgumentError("not the other rank's message");
  }
  return in_->view(payload_bytes);
}

void Endpoint::OnMessage(EndpointId, ConstBytes, Bytes) {
  ++num_heard_;
  ++num_events_;
}

void Endpoint::OnClosed(EndpointId endpoint, const absl::Status& why) {
  if (endpoint != peer_) return;
  closed_ = WithExitCode(ExitCode::kPeerDied,
                         absl::UnavailableError(absl::StrCat(
                             "rank ", other_, " is gone: ", why.message())));
}

absl::Status Endpoint::Send(size_t bytes) {
  ++num_begun_;
  return context_->Send(peer_, {}, out_->view(bytes),
                        [this](const absl::Status& status) {
                          ++num_events_;
                          if (status.ok()) ++num_sent_;
                        });
}

absl::Status Endpoint::AwaitSends() {
  return DriveUntil([this] { return num_sent_ == num_begun_; });
}

void Endpoint::DriveDuring(const std::function<void()>& call) {
  std::atomic<bool> is_done = false;
  std::thread caller([&] {
    call();
    is_done = true;
    context_->Wake();
  });
  while (!is_done) context_->Progress(Clock::now() + timeout_);
  caller.join();
}

absl::Status Endpoint::DriveUntil(const std::function<bool()>& is_done) {
  bool is_first_look = true;  // the deadline is of an earlier wait
  while (!is_done()) {
    if (!closed_.ok()) return closed_;
    const int64_t before = num_events_;
    context_->Progress(deadline_);
    // A look at the clock takes a fifth of a message through memory.
    if (num_events_ != before && num_events_ - seen_ < kEventsPerLook) continue;
    const TimePoint now = Clock::now();
    if (is_first_look || num_events_ != seen_) {
      is_first_look = false;
      deadline_ = now + timeout_;
      seen_ = num_events_;
    } else if (now >= deadline_) {
      return absl::DeadlineExceededError(
          absl::StrCat("nothing received from rank ", other_, " for ",
                       ToSeconds(timeout_), " s"));
    }
  }
  return absl::OkStatus();
}

}  // namespace telegrad::perf
