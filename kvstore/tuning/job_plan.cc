#include "kvstore/tuning/job_plan.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "topology/machine_json.h"

namespace telegrad {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxNameBytes = 255;
constexpr size_t kMaxErrorBytes = 1000;
constexpr size_t kMaxIntroductionBytes = 8192;
constexpr size_t kMaxMachineBytes =
    512 * 1024;  // the control plane takes 1 MiB
constexpr size_t kMaxFactBytes = 512 * 1024;
constexpr size_t kMaxLineBytes = 200;

absl::Status Mismatch(absl::string_view text) {
  return WithExitCode(ExitCode::kMismatch, absl::FailedPreconditionError(text));
}

// What comes first, from each member: short, so that a thousand may.
struct Introduction {
  std::string host = {};
  std::string boot_id = {};
  std::string error = {};  // why there is no machine

  bool has_machine() const { return error.empty(); }
  std::pair<std::string, std::string> key() const { return {host, boot_id}; }
};

std::string Serialize(const Introduction& mine) {
  return Json{{"host", mine.host.substr(0, kMaxNameBytes)},
              {"boot_id", mine.boot_id.substr(0, kMaxNameBytes)},
              {"error", mine.error.substr(0, kMaxErrorBytes)}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<Introduction> ParseIntroduction(const std::string& member,
                                               absl::string_view text) {
  Introduction introduction;
  const Json json = text.size() > kMaxIntroductionBytes
                        ? Json()
                        : Json::parse(text, nullptr, false);
  const auto take = [&json](const char* name, std::string& value) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_string()) return false;
    value = absl::Utf8SafeCEscape(found->get<std::string>());
    return true;
  };
  if (json.is_object() && take("host", introduction.host) &&
      take("boot_id", introduction.boot_id) &&
      take("error", introduction.error)) {
    return introduction;
  }
  return Mismatch(absl::StrCat(member, " does not say what machine it is on: '",
                               absl::Utf8SafeCEscape(text.substr(0, 100)),
                               "'"));
}

// Without what no plan needs and others need not see.
Machine Condensed(Machine machine) {
  machine.environment.clear();
  machine.notes.clear();
  machine.capabilities.why.clear();
  for (NetInterface& each : machine.interfaces) each.addresses.clear();
  for (auto* paths : {&machine.gpu_nic, &machine.gpu_gpu}) {
    for (std::vector<PathInfo>& row : *paths) {
      for (PathInfo& path : row) path.why.clear();
    }
  }
  return machine;
}

// The machine's text; sets `error` where there is none to send.
std::string MachineText(const MachineReport& mine, std::string* error) {
  if (!mine.machine.ok()) {
    *error = std::string(mine.machine.status().message());
    if (error->empty()) *error = mine.machine.status().ToString();
    return "";
  }
  std::string text = ToJson(Condensed(*mine.machine), -1);
  if (text.size() <= kMaxMachineBytes) return text;
  *error = absl::StrCat("its description has ", text.size(), " bytes, beyond ",
                        kMaxMachineBytes);
  return "";
}

// Who is there and its machine's text, of `mine`.
Introduction Introduce(const MachineReport& mine, std::string* text) {
  Introduction introduction{.host = mine.host, .boot_id = mine.boot_id};
  *text = MachineText(mine, &introduction.error);
  return introduction;
}

std::string LineForError(absl::string_view line) {
  return absl::Utf8SafeCEscape(line.substr(0, kMaxLineBytes));
}

// The first line in which two plans differ.
absl::Status Difference(const std::vector<std::string>& facts, size_t rank) {
  const std::vector<std::string> first = absl::StrSplit(facts[0], '\n');
  const std::vector<std::string> other = absl::StrSplit(facts[rank], '\n');
  const auto [a, b] =
      std::mismatch(first.begin(), first.end(), other.begin(), other.end());
  const auto text = [](auto at, auto end) {
    return at == end ? "nothing" : absl::StrCat("'", LineForError(*at), "'");
  };
  return Mismatch(
      absl::StrCat("the plans of worker/0 and worker/", rank,
                   " differ in line ", a - first.begin() + 1, ": ",
                   text(a, first.end()), " against ", text(b, other.end()),
                   "; all ranks need the same version and the same flags"));
}

class Agreement {
 public:
  Agreement(KVStore& store, const MachineReport& mine) : store_(store) {
    introduction_ = Introduce(mine, &text_);
  }

  absl::StatusOr<JobPlan> Run(const Calibration& calibration,
                              PlanRequest request) {
    RETURN_IF_ERROR(MeetWorkers());
    RETURN_IF_ERROR(ExchangeMachines());
    RETURN_IF_ERROR(AskServers());
    request.workers = job_.machines;
    SetServers(request);
    absl::StatusOr<Plan> plan = MakePlan(machines_, calibration, request);
    RETURN_IF_ERROR(Compare(plan));
    if (plan.ok()) {
      job_.plan = *std::move(plan);
    } else {
      job_.notes.push_back(absl::StrCat("none: ", plan.status().message()));
    }
    return std::move(job_);
  }

 private:
  // What the store's servers are to a plan of machines.
  void SetServers(PlanRequest& request) const {
    const ServerMachines servers = store_.link()->server_machines();
    const bool are_beside = servers.without_worker == 0;
    const bool are_apart = servers.without_worker == servers.all;
    request.servers = are_apart ? servers.all : 0;
    if (!request.aggregation.is_set()) return;
    Aggregation& aggregation = request.aggregation.value;
    if (are_beside && job_.machines == 1) {
      aggregation = Aggregation::kLocal;
    } else if (are_beside && servers.all >= job_.machines) {
      aggregation = Aggregation::kColocatedServers;
    } else {
      // A server that stands beside a worker of many serves mostly others.
      request.servers = servers.all;
      aggregation = Aggregation::kDedicatedServers;
    }
  }

  absl::Status MeetWorkers() {
    ASSIGN_OR_RETURN(
        const std::vector<std::string> all,
        store_.group().Gather("plan-machines", Serialize(introduction_)));
    for (size_t rank = 0; rank < all.size(); ++rank) {
      ASSIGN_OR_RETURN(workers_.emplace_back(),
                       ParseIntroduction(WorkerName(rank), all[rank]));
      const Introduction& worker = workers_.back();
      const auto [speaker, is_new] = speakers_.emplace(worker.key(), rank);
      // The first who knows it speaks for a machine.
      if (!is_new && !workers_[speaker->second].has_machine() &&
          worker.has_machine()) {
        speaker->second = rank;
      }
    }
    job_.machines = static_cast<int>(speakers_.size());
    return absl::OkStatus();
  }

  absl::Status ExchangeMachines() {
    const auto rank = static_cast<size_t>(store_.group().rank());
    const bool speaks =
        rank < workers_.size() && speakers_[workers_[rank].key()] == rank;
    ASSIGN_OR_RETURN(
        const std::vector<std::string> all,
        store_.group().Gather("plan-machine", speaks ? text_ : ""));
    for (size_t i = 0; i < std::min(all.size(), workers_.size()); ++i) {
      if (speakers_[workers_[i].key()] != i) continue;
      RETURN_IF_ERROR(TakeMachine(WorkerName(i), workers_[i], all[i]));
    }
    return absl::OkStatus();
  }

  // Their machines are links of the job, too.
  absl::Status AskServers() {
    ASSIGN_OR_RETURN(const std::vector<ServerAbout> servers,
                     store_.link()->AskServers());
    for (const ServerAbout& each : servers) {
      const std::string name = ToString(NodeId{Role::kServer, each.rank});
      Introduction server{.host = absl::Utf8SafeCEscape(each.host),
                          .boot_id = "",
                          .error = "it says nothing"};
      const size_t end = std::min(each.text.find('\n'), each.text.size());
      if (!each.text.empty()) {
        ASSIGN_OR_RETURN(server,
                         ParseIntroduction(name, each.text.substr(0, end)));
      }
      if (speakers_.contains(server.key())) continue;
      RETURN_IF_ERROR(TakeMachine(
          name, server, each.text.substr(std::min(end + 1, each.text.size()))));
    }
    return absl::OkStatus();
  }

  static std::string WorkerName(size_t rank) {
    return ToString(NodeId{Role::kWorker, static_cast<int>(rank)});
  }

  absl::Status TakeMachine(const std::string& name, const Introduction& member,
                           const std::string& text) {
    if (!member.has_machine()) {
      job_.notes.push_back(absl::StrCat(
          "nothing is known of the machine of ", name, " (", member.host,
          "), it is taken to be like the others: ", member.error));
      return absl::OkStatus();
    }
    absl::StatusOr<Machine> machine = MachineFromJson(text);
    if (!machine.ok()) {
      return Mismatch(absl::StrCat(
          "the machine of ", name, " (", member.host,
          ") cannot be read: ", LineForError(machine.status().message())));
    }
    machines_.push_back(*std::move(machine));
    return absl::OkStatus();
  }

  // All see the same texts and so take the same way through this.
  absl::Status Compare(const absl::StatusOr<Plan>& plan) {
    std::string facts =
        plan.ok() ? PlanFacts(*plan) : std::string(plan.status().message());
    ASSIGN_OR_RETURN(
        const std::vector<std::string> digests,
        store_.group().Gather("plan-digest", plan.ok() ? plan->digest : facts));
    size_t rank = 0;
    while (rank < digests.size() && digests[rank] == digests[0]) ++rank;
    if (rank == digests.size()) return absl::OkStatus();
    facts.resize(std::min(facts.size(), kMaxFactBytes));
    ASSIGN_OR_RETURN(const std::vector<std::string> all,
                     store_.group().Gather("plan-facts", facts));
    return Difference(all, rank);
  }

  KVStore& store_;
  Introduction introduction_;
  std::string text_;
  JobPlan job_;
  std::vector<Introduction> workers_;
  std::map<std::pair<std::string, std::string>, size_t> speakers_;
  std::vector<Machine> machines_;
};

}  // namespace

std::string AboutMachine(const MachineReport& mine) {
  std::string machine;
  const std::string introduction = Serialize(Introduce(mine, &machine));
  return absl::StrCat(introduction, "\n", machine);
}

absl::StatusOr<JobPlan> AgreeOnPlan(KVStore& store, const MachineReport& mine,
                                    const Calibration& calibration,
                                    PlanRequest request) {
  return Agreement(store, mine).Run(calibration, std::move(request));
}

}  // namespace telegrad
