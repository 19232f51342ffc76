#include "kvstore/ps/worker/worker_link.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "kvstore/job/path/data_path.h"
#include "kvstore/job/path/gather_numbers.h"
#include "kvstore/job/path/job_options.h"

namespace telegrad {
namespace {

// Of one measurement of some tens of milliseconds.
constexpr double kSpread = 0.1;

// What a worker tells the others of its links.
struct Seen {
  double send = 0;
  double receive = 0;
  double latency_s = 0;
  LinkProbe::Costs costs = {};
  bool is_local = false;  // all its servers are on its machine
};

// Three digits: the others are noise. Within what a number can be, whatever
// was sent.
Figure Measured(double value) {
  value = std::clamp(value, 1e-15, 1e15);
  const double unit = std::pow(10, std::floor(std::log10(value)) - 2);
  return {.value = std::round(value / unit) * unit,
          .spread = kSpread,
          .confidence = Confidence::kMeasured,
          .reason = "slowest worker's"};
}

// The slowest machine's; workers of one machine share its link. Where some have
// servers on other machines only these count, else each for itself.
LinkFigures Slowest(const std::vector<Seen>& workers,
                    const std::vector<Member>& members) {
  const bool is_local =
      std::all_of(workers.begin(), workers.end(),
                  [](const Seen& seen) { return seen.is_local; });
  std::map<std::string, Seen> machines;
  double latency_s = 0;
  LinkProbe::Costs costs;
  bool knows_costs = true;
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    const Seen& seen = workers[rank];
    if (seen.is_local != is_local) continue;
    costs.frame_s = std::max(costs.frame_s, seen.costs.frame_s);
    costs.byte_s = std::max(costs.byte_s, seen.costs.byte_s);
    knows_costs &= seen.costs.frame_s > 0;
    const std::string name = is_local ? absl::StrCat(rank) : members[rank].host;
    machines[name].send += seen.send;
    machines[name].receive += seen.receive;
    latency_s = std::max(latency_s, seen.latency_s);
  }
  Seen least = machines.begin()->second;
  for (const auto& [name, machine] : machines) {
    least.send = std::min(least.send, machine.send);
    least.receive = std::min(least.receive, machine.receive);
  }
  LinkFigures link{.name = "link",
                   .send = Measured(least.send),
                   .receive = Measured(least.receive),
                   .latency_s = Measured(latency_s)};
  if (knows_costs) {
    link.frame_cpu_s = Measured(costs.frame_s);
    link.cpu_s_per_byte = Measured(costs.byte_s);
  }
  return link;
}

// Without the ports, which are others in each run.
std::string HostOf(const Member& member, absl::string_view address) {
  std::string text = member.host;
  for (const absl::string_view rail : absl::StrSplit(address, ',')) {
    absl::StrAppend(&text, " ", rail.substr(0, rail.rfind(':')));
  }
  return text;
}

}  // namespace

absl::StatusOr<LinkFigures> WorkerLink::Measure(Duration at_most) {
  RETURN_IF_ERROR(group_.Gather("link", "").status());  // all begin at once
  ASSIGN_OR_RETURN(const std::shared_ptr<Measurement> measured,
                   MeasureMine(at_most));
  const std::vector<LinkProbe::Speeds> speeds = measured->probe->speeds();
  const std::vector<Member>& servers = group_.membership().servers;
  const std::vector<Member>& workers = group_.membership().workers;
  Seen mine{.costs = measured->probe->costs(), .is_local = true};
  for (const Member& server : servers) {
    mine.is_local &=
        server.host == workers[static_cast<size_t>(group_.rank())].host;
  }
  for (const size_t i : CountedServers()) {
    mine.send += speeds[i].send;
    mine.receive += speeds[i].receive;
    mine.latency_s = std::max(mine.latency_s, speeds[i].round_trip_s / 2);
  }
  const std::vector<double> numbers = {
      mine.send,          mine.receive,      mine.latency_s,
      mine.costs.frame_s, mine.costs.byte_s, mine.is_local ? 1.0 : 0.0};
  ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all,
                   GatherNumbers(group_, "link-figures", numbers));
  std::vector<Seen> seen;
  for (const std::vector<double>& each : all) {
    seen.push_back(
        {each[0], each[1], each[2], {each[3], each[4]}, each[5] > 0});
  }
  return Slowest(seen, workers);
}

// Those on other machines, or all where there is none.
std::vector<size_t> WorkerLink::CountedServers() const {
  const Membership& membership = group_.membership();
  const std::string& here =
      membership.workers[static_cast<size_t>(group_.rank())].host;
  std::vector<size_t> all;
  std::vector<size_t> others;
  for (size_t i = 0; i < membership.servers.size(); ++i) {
    all.push_back(i);
    if (membership.servers[i].host != here) others.push_back(i);
  }
  return others.empty() ? all : others;
}

// Servers have equal shares, or nearly. Where none is on another machine, each
// worker's figures are of its own connections (Slowest).
double WorkerLink::load() const {
  const Membership& membership = group_.membership();
  const auto num_servers = static_cast<double>(membership.servers.size());
  std::map<std::string, double> loads;
  for (const Member& worker : membership.workers) {
    for (const Member& server : membership.servers) {
      if (server.host != worker.host) loads[worker.host] += 1 / num_servers;
    }
  }
  double most = 0;
  for (const auto& [host, load] : loads) most = std::max(most, load);
  return most > 0 ? most : 1;
}

std::string WorkerLink::identity() const {
  const TransportOptions& transport = group_.data_path().transport;
  const Membership& membership = group_.membership();
  std::vector<std::string> parts = {
      links_.details(),
      absl::StrFormat("at %s, tls '%s', %d connections, %g bytes/s, %g s",
                      transport.bind_address, transport.tls,
                      transport.connections, transport.link_bytes_per_s,
                      transport.link_latency_s)};
  for (const auto& [name, value] : group_.options().facts) {
    if (absl::StartsWith(name, "--")) continue;  // a flag of the training
    parts.push_back(absl::StrCat(name, "=", value));
  }
  for (const Member& worker : membership.workers) {
    parts.push_back(absl::StrCat("worker ", worker.host));
  }
  for (size_t i = 0; i < membership.servers.size(); ++i) {
    parts.push_back(absl::StrCat(
        "server ",
        HostOf(membership.servers[i], group_.data_path().server_addresses[i])));
  }
  return absl::StrJoin(parts, ", ");
}

absl::StatusOr<std::shared_ptr<WorkerLink::Measurement>>
WorkerLink::MeasureMine(Duration duration) {
  auto mine = std::make_shared<Measurement>();
  mine->ticket = std::make_shared<Ticket::State>();
  mine->ticket->describe = [] {
    return std::string("a server did not answer while the link was measured");
  };
  const uint32_t most =
      MaxProbeBytes(static_cast<size_t>(group_.num_workers()), links_.size());
  mine->payload = ProbePayload(most);
  mine->frames.resize(links_.size());
  mine->headers.resize(links_.size());
  mine->echoes.resize(links_.size());
  mine->probe = std::make_unique<LinkProbe>(
      links_.size(), most, duration,
      [this, weak = std::weak_ptr(mine)](size_t server,
                                         const ProbeFrame& frame) {
        const auto live = weak.lock();
        if (live == nullptr) return;
        SendProbe(live, static_cast<int>(server), frame);
      });
  {
    MutexLock lock(&mutex_);
    if (failure_.is_set()) return failure_.status();
    const bool is_open = links_.is_open();
    if (!is_open || measurement_ != nullptr) {
      return absl::FailedPreconditionError(
          !is_open ? "the store is not open"
          : measurement_->is_abandoned
              ? "a server still owes answers to the last measurement"
              : "the link is measured already");
    }
    measurement_ = mine;
  }
  links_.Post([mine] { mine->probe->Start(Clock::now()); });
  const absl::Status status =
      Ticket(mine->ticket)
          .Wait(Clock::now() + group_.options().operation_timeout);
  MutexLock lock(&mutex_);
  mine->is_abandoned = !status.ok();  // OnEcho ends it
  if (status.ok() || mine->is_over) measurement_ = nullptr;
  RETURN_IF_ERROR(status);
  return mine;
}

void WorkerLink::SendProbe(const std::shared_ptr<Measurement>& active,
                           int server, const ProbeFrame& frame) {
  const auto index = static_cast<size_t>(server);
  const ConstBytes payload(active->payload.data(), frame.payload_bytes);
  FrameHeaderBytes& bytes = active->headers[index];
  // The check of a payload takes time, which gradients take on other threads.
  if (bytes == FrameHeaderBytes{} || !(active->frames[index] == frame)) {
    bytes = SerializeFrame(
        links_.Addressed(server, {.type = FrameType::kProbe,
                                  .step = frame.answer_bytes,
                                  .payload_bytes = frame.payload_bytes}),
        payload);
    active->frames[index] = frame;
  }
  links_.Send(server, {.header = bytes,
                       .payload = payload,
                       .keep_alive = active,
                       .priority = 0});
}

absl::StatusOr<Bytes> WorkerLink::OnHeader(int server,
                                           const FrameHeader& header) {
  const auto index = static_cast<size_t>(server);
  const std::shared_ptr<Measurement> active = measurement();
  if (header.epoch != group_.membership().epoch || header.source != server ||
      header.destination != group_.rank() || active == nullptr ||
      !active->probe->BeginAnswer(index, header.payload_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "echo of ", header.payload_bytes, " bytes, epoch ", header.epoch,
        " from ", header.source, " to ", header.destination,
        ": nothing of the kind was asked for"));
  }
  if (header.payload_bytes == 0) return Bytes();
  // Nobody reads what comes, so several may come at once.
  Buffer& buffer = active->echoes[index];
  if (buffer.size() == 0) buffer = Buffer(active->payload.size());
  return buffer.view();
}

void WorkerLink::OnEcho(int server) {
  const std::shared_ptr<Measurement> active = measurement();
  if (active == nullptr) return;
  active->probe->OnAnswer(static_cast<size_t>(server), Clock::now());
  if (!active->probe->is_done()) return;
  {
    MutexLock lock(&mutex_);
    active->is_over = true;
    if (active->is_abandoned) measurement_ = nullptr;
  }
  active->ticket->Finish(absl::OkStatus());
}

void WorkerLink::End(const absl::Status& why) {
  if (const auto active = measurement()) active->ticket->Finish(why);
}

}  // namespace telegrad
