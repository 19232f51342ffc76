#include "topology/cli/doctor.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/socket.h"
#include "base/status_macros.h"
#include "topology/calibration.h"
#include "topology/cli/load.h"
#include "topology/cli/output.h"
#include "topology/cli/peer.h"
#include "topology/cost_model.h"
#include "topology/doctor.h"
#include "topology/import.h"
#include "topology/machine_json.h"
#include "topology/path.h"
#include "topology/plan.h"

namespace telegrad::topo {
namespace {

struct DoctorFlags {
  std::string root = {};
  std::string from = {};
  std::vector<std::string> diff = {};
  std::vector<std::string> peers = {};
  std::string serve = {};
  double seconds = 30;
  std::string calibration = {};
  double link_gbps = 0;
  int workers = 2;
  double registered_mib = 1024;
  int priority = 3;
  int processes = 2;
  bool json = false;
  bool probe = false;
};

constexpr int64_t kBreakEvenElems = int64_t{1} << 26;  // 256 MB of gradients

constexpr int kActiveState = 4;  // IBV_PORT_ACTIVE

// The link whose costs of a core count, as in a plan.
const char* NetworkOf(const Machine& machine) {
  for (const Nic& nic : machine.nics) {
    for (const Port& port : nic.ports) {
      const bool is_planned_with = port.fabric == Fabric::kInfiniBand ||
                                   port.fabric == Fabric::kRoceV2 ||
                                   port.fabric == Fabric::kEfa;
      if (nic.is_rdma && port.state.value == kActiveState && is_planned_with) {
        return Name(port.fabric);
      }
    }
  }
  return Name(NetworkKind::kTcp);
}

// The speed of the lossy codec that pays on the fastest links, among those that
// were measured.
absl::StatusOr<std::optional<CodecSpeed>> SpeedOf(const DoctorFlags& flags,
                                                  const Machine& machine) {
  if (flags.calibration.empty()) return std::optional<CodecSpeed>();
  ASSIGN_OR_RETURN(const Calibration calibration,
                   LoadCalibration(flags.calibration));
  ClusterCost cluster{.workers = flags.workers};
  SetCores(calibration, &cluster);
  SetLink(calibration, NetworkOf(machine), &cluster);
  std::optional<CodecSpeed> best;
  for (const CodecFigures& codec : calibration.codecs) {
    if (!codec.is_lossy || !codec.encode.is_grounded()) continue;
    ASSIGN_OR_RETURN(const CodecCost cost, CostOf(codec, cluster));
    const CodecSpeed speed{
        .codec = codec.name,
        .encode_gbytes_per_s = 4e-9 * codec.encode.value,
        .decode_gbytes_per_s = 4e-9 * codec.decode.value,
        .break_even_gbps =
            8e-9 * BreakEvenBytesPerS(Aggregation::kColocatedServers,
                                      Aggregation::kColocatedServers, cluster,
                                      cost, kBreakEvenElems),
        .link_gbps = flags.link_gbps};
    if (!best.has_value() || speed.break_even_gbps > best->break_even_gbps) {
      best = speed;
    }
  }
  if (best.has_value()) {
    for (const Nic& nic : machine.nics) {
      if (flags.link_gbps > 0 || nic.ports.empty()) continue;
      best->link_gbps =
          std::max(best->link_gbps, nic.ports[0].gbps.value_or(0));
    }
    return best;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      flags.calibration, " holds no lossy codec whose speed was measured"));
}

Finding PeerFinding(const char* name, Level severity, std::string sentence,
                    std::string evidence, std::string hint) {
  return {.id = "P01",
          .name = name,
          .severity = severity,
          .sentence = std::move(sentence),
          .evidence = std::move(evidence),
          .hint = std::move(hint)};
}

void AskPeers(const DoctorFlags& flags, std::vector<Machine>& machines,
              std::vector<Finding>& findings) {
  const std::string mine = ToJson(machines[0], -1);
  for (const std::string& peer : flags.peers) {
    const absl::StatusOr<PeerResult> result =
        ProbePeer(peer, mine, FromSeconds(flags.seconds));
    absl::Status status = result.status();
    if (status.ok()) {
      absl::StatusOr<Machine> machine = MachineFromJson(result->machine_json);
      status = machine.status();
      if (machine.ok()) machines.push_back(*std::move(machine));
    }
    if (!status.ok()) {
      const std::string host = ParseHostPort(peer, 0)->host;
      findings.push_back(PeerFinding(
          "peer", Level::kFail, absl::StrCat(peer, " cannot be reached"),
          std::string(status.message()),
          absl::StrCat("there: telegrad-topo doctor --serve ", peer,
                       "; look at routes and firewalls: ip route get ",
                       ParseIp(host, 0).ok() ? host : "ADDRESS")));
      continue;
    }
    findings.push_back(PeerFinding(
        "peer", Level::kInfo,
        absl::StrFormat("%s answers: one TCP stream carries %.3g Gb/s, a round "
                        "trip takes %.0f us",
                        peer, 8e-9 * result->bytes_per_s,
                        result->round_trip_us),
        absl::StrFormat("connected in %.0f us, %d MiB sent", result->connect_us,
                        kProbeBytes >> 20),
        ""));
  }
}

absl::Status Serve(const DoctorFlags& flags, std::vector<Machine>& machines) {
  ASSIGN_OR_RETURN(PeerServer server, PeerServer::Listen(flags.serve));
  std::fprintf(stderr,
               "telegrad-topo: serving on %s for %.0f s; on the other host: "
               "telegrad-topo doctor --peer %s\n",
               server.address().c_str(), flags.seconds,
               server.address().c_str());
  const TimePoint until = Clock::now() + FromSeconds(flags.seconds);
  const std::string mine = ToJson(machines[0], -1);
  while (Clock::now() < until) {
    const absl::StatusOr<std::string> json = server.ServeOne(mine, until);
    if (absl::IsDeadlineExceeded(json.status()) && Clock::now() >= until) break;
    if (!json.ok()) continue;  // a peer that misbehaved
    absl::StatusOr<Machine> machine = MachineFromJson(*json);
    const bool is_new =
        machine.ok() && std::find(machines.begin() + 1, machines.end(),
                                  *machine) == machines.end();
    if (is_new && machines.size() < 4096) {
      machines.push_back(*std::move(machine));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Finding>> Run(const DoctorFlags& flags) {
  for (const std::string& peer : flags.peers) {
    RETURN_IF_ERROR(CheckPeerAddress(peer));
  }
  std::vector<Machine> machines;
  std::vector<Finding> findings;
  if (!flags.diff.empty()) {
    for (const std::string& path : flags.diff) {
      ASSIGN_OR_RETURN(Machine machine, MachineFromFile(path));
      if (machine.host.empty()) machine.host = path;
      machines.push_back(std::move(machine));
    }
    return Compare(machines);
  }
  ASSIGN_OR_RETURN(
      Machine machine,
      LoadMachine(flags.from.empty() ? flags.root : flags.from, flags.probe));
  DoctorOptions options{
      .registered_bytes = static_cast<uint64_t>(flags.registered_mib * 0x1p20),
      .priority = flags.priority,
      .processes = flags.processes};
  ASSIGN_OR_RETURN(options.codec, SpeedOf(flags, machine));
  findings = Examine(machine, options);
  machines.push_back(std::move(machine));
  AskPeers(flags, machines, findings);
  if (!flags.serve.empty()) RETURN_IF_ERROR(Serve(flags, machines));
  if (machines.size() > 1) {
    std::vector<Finding> compared = Compare(machines);
    findings.insert(findings.end(), compared.begin(), compared.end());
  }
  return findings;
}

void AddFlags(CLI::App& app, DoctorFlags& flags) {
  CLI::Option* root = app.add_option(
      "--root", flags.root,
      "A recorded /sys (with /proc, /dev): folder or tar archive");
  app.add_option("--from", flags.from,
                 "A machine's dump, NCCL's or hwloc's XML")
      ->excludes(root);
  CLI::Option* diff =
      app.add_option("--diff", flags.diff,
                     "Compare dumps of several machines (telegrad-topo show "
                     "--dump FILE) instead of looking at one")
          ->expected(2, 1 << 16);
  app.add_option("--peer", flags.peers,
                 "HOST:PORT of a doctor --serve: reachability, bandwidth, and "
                 "what differs; may be repeated")
      ->take_all();
  app.add_option("--serve", flags.serve,
                 "Answer --peer on HOST:PORT for --seconds; whoever reaches it "
                 "reads this machine's dump");
  app.add_option("--seconds", flags.seconds, "How long to serve, or to wait")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  app.add_option("--calibration", flags.calibration,
                 "Measured speeds of codecs (docs/calibration.md), for T28");
  app.add_option("--link-gbps", flags.link_gbps,
                 "The link's rate for T28; else the fastest card's")
      ->check(CLI::Range(0.0, 1e5));
  app.add_option("--workers", flags.workers, "Machines of the job, for T28")
      ->check(CLI::Range(2, 65535))
      ->capture_default_str();
  app.add_option("--registered-mib", flags.registered_mib,
                 "MiB of memory that a job registers, for T02 and T31")
      ->check(CLI::Range(1.0, 1e9))
      ->capture_default_str();
  app.add_option("--processes", flags.processes,
                 "Workers and servers of a job on this machine, for T29 to T31")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--priority", flags.priority,
                 "Priority of the traffic class, for T24")
      ->check(CLI::Range(0, 7))
      ->capture_default_str();
  app.add_flag("--probe", flags.probe, "Try what files alone cannot tell");
  // Options of how to look at one machine mean nothing beside --diff.
  for (CLI::Option* each : app.get_options()) {
    if (each != diff && each != app.get_help_ptr()) diff->excludes(each);
  }
  app.add_flag("--json", flags.json, "As JSON (docs/doctor.md)");
}

}  // namespace

void AddDoctor(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<DoctorFlags>();
  AddFlags(app, *flags);
  app.callback([flags, &exit_code] {
    const absl::StatusOr<std::vector<Finding>> findings = Run(*flags);
    absl::Status status = findings.status();
    if (status.ok()) {
      status =
          Print(flags->json ? ToJson(*findings) + "\n" : ToText(*findings));
    }
    exit_code = status.ok() ? static_cast<int>(ExitCodeOf(*findings))
                            : Finish("doctor", status);
  });
}

}  // namespace telegrad::topo
