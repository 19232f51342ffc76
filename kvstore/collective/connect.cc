#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/crc32c.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "kvstore/collective/choose.h"
#include "kvstore/collective/mesh.h"

// How a mesh comes to be: every rank connects to the lower ones and says its
// rank and a digest of all addresses; they answer with theirs.
namespace telegrad::collective {
namespace {

// Between tries to reach a rank.
constexpr Duration kPause = std::chrono::milliseconds(200);

// What all ranks must have alike, besides addresses.
std::string SettingsOf(const GroupOptions& options) {
  return absl::StrCat(
      "world_size ", options.world_size, " chunk_bytes ", options.chunk_bytes,
      " latency_s ", options.latency_s, " bytes_per_s ", options.bytes_per_s,
      " host_latency_s ", options.host_latency_s, " host_bytes_per_s ",
      options.host_bytes_per_s, " hosts ", absl::StrJoin(options.hosts, ","),
      " allreduce ", ToString(options.allreduce), " sums ",
      ToText(options.sums), " connections ", NumConnections(options.transport),
      " sends ", options.sends, " encryption ",
      Name(options.transport.encryption));
}

absl::Status CheckOptions(const GroupOptions& options) {
  if (options.world_size < 1 || options.world_size > 4096 || options.rank < 0 ||
      options.rank >= options.world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("group: rank ", options.rank, " of ", options.world_size,
                     "; 1 to 4096 ranks, counted from 0"));
  }
  if (options.chunk_bytes < 4096 || options.chunk_bytes > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("group: chunk_bytes ", options.chunk_bytes,
                     ", take 4096 to ", kMaxPayloadBytes));
  }
  if (!(options.latency_s >= 0 && options.bytes_per_s > 0 &&
        options.host_latency_s >= 0 && options.host_bytes_per_s > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "group: latency_s ", options.latency_s, ", host_latency_s ",
        options.host_latency_s, " and bytes_per_s ", options.bytes_per_s,
        ", host_bytes_per_s ", options.host_bytes_per_s,
        " must be at least and above 0"));
  }
  if (!options.hosts.empty() &&
      options.hosts.size() != static_cast<size_t>(options.world_size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("group: hosts of ", options.hosts.size(), " ranks of ",
                     options.world_size));
  }
  return Choose(Operation::kAllreduce, options.allreduce, 0, options).status();
}

// "settings\naddress" of each rank becomes its address.
absl::Status Separate(const std::string& settings,
                      std::vector<std::string>* texts) {
  for (size_t i = 0; i < texts->size(); ++i) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit((*texts)[i], absl::MaxSplits('\n', 1));
    if (parts.first != settings) {
      return WithExitCode(ExitCode::kMismatch,
                          absl::FailedPreconditionError(absl::StrCat(
                              "group: rank ", i, " has \"", parts.first,
                              "\", this rank \"", settings, "\"")));
    }
    (*texts)[i] = parts.second;
  }
  return absl::OkStatus();
}

}  // namespace

Mesh::Mesh(const GroupOptions& options)
    : options_(options),
      ranks_(options.rank, options.world_size),
      agreement_(options.rank),
      inboxes_(static_cast<size_t>(options.world_size)) {}

absl::StatusOr<std::unique_ptr<Mesh>> Mesh::Make(
    const GroupOptions& options, const AddressExchange& exchange) {
  RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<Mesh> mesh(new Mesh(options));
  TransportOptions transport = options.transport;
  transport.sends_wait = true;  // Mesh::End comes last
  ASSIGN_OR_RETURN(mesh->context_, MakeTransport(transport, mesh.get()));
  RETURN_IF_ERROR(mesh->Connect(exchange));
  // What it was sent last it answers within Progress, perhaps in vain at first.
  if (transport.resend) {
    mesh->keeper_ = std::make_unique<Keeper>(*mesh->context_);
  }
  return mesh;
}

absl::Status Mesh::Connect(const AddressExchange& exchange) {
  const TimePoint deadline = Clock::now() + options_.timeout;
  ASSIGN_OR_RETURN(const std::string mine, context_->Listen());
  const std::string settings = SettingsOf(options_);
  ASSIGN_OR_RETURN(std::vector<std::string> texts,
                   exchange(absl::StrCat(settings, "\n", mine), deadline));
  if (texts.size() != inboxes_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("group: the exchange gave ", texts.size(),
                     " addresses for ", world_size(), " ranks"));
  }
  const std::string all = absl::StrJoin(texts, "\n");
  digest_ = (uint64_t{Crc32c(all.data(), all.size())} << 32) |
            Crc32c(all.data(), all.size(), 1);
  RETURN_IF_ERROR(Separate(settings, &texts));
  addresses_ = std::move(texts);
  const absl::Status status = AwaitPeers(deadline);
  addresses_.clear();
  strangers_.CutLate({}, [this](EndpointId id) { context_->Close(id); });
  return status;
}

// Ranks that had no place for this one are tried again.
absl::Status Mesh::AwaitPeers(TimePoint deadline) {
  TimePoint reach_at;
  while (!ranks_.Missing().empty()) {
    const TimePoint now = Clock::now();
    for (int peer = 0; peer < world_size(); ++peer) {
      if (ranks_.has_greeted(peer) || now >= deadline) {
        RETURN_IF_ERROR(CheckPeer(peer));
      }
    }
    RETURN_IF_ERROR(agreement_.broken());
    if (now >= deadline) {
      return WithExitCode(ExitCode::kJoinTimeout,
                          absl::DeadlineExceededError(absl::StrCat(
                              "group: rank ", rank(), " received nothing from ",
                              "rank ", ranks_.Missing(), " in time")));
    }
    strangers_.CutLate(kGreetGrace,
                       [this](EndpointId id) { context_->Close(id); });
    for (const int to :
         now < reach_at ? std::vector<int>() : ranks_.TakeUnreached()) {
      ASSIGN_OR_RETURN(const EndpointId endpoint,
                       context_->Connect(addresses_[static_cast<size_t>(to)]));
      ranks_.Add(to, endpoint);
      RETURN_IF_ERROR(Post(to, MessageKind::kHello, 0, {}, nullptr));
      reach_at = now + kPause;
    }
    context_->Progress(std::min<TimePoint>(deadline, now + kPause));
  }
  return agreement_.broken();
}

}  // namespace telegrad::collective
