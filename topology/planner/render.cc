#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/units.h"
#include "topology/path.h"
#include "topology/plan.h"
#include "topology/planner/summary.h"

namespace telegrad {
namespace {

using Json = nlohmann::ordered_json;

Json EvidenceToJson(const std::vector<Evidence>& evidence) {
  Json list = Json::array();
  for (const Evidence& each : evidence) {
    list.push_back({{"what", each.what},
                    {"source", each.source},
                    {"raw", each.raw},
                    {"confidence", Name(each.confidence)}});
  }
  return list;
}

Json RailToJson(const Rail& rail) {
  return {{"nic", rail.nic},    {"port", rail.port},
          {"gid", rail.gid},    {"path", Name(rail.path)},
          {"gbps", rail.gbps},  {"gpu_share", rail.gpu_share},
          {"users", rail.users}};
}

Json MachineToJson(const MachinePlan& machine) {
  Json json = {
      {"host", machine.host}, {"gbps", machine.gbps}, {"gpus", Json::array()}};
  for (const GpuPlan& gpu : machine.gpus) {
    Json rails = Json::array();
    for (const Rail& rail : gpu.rails) rails.push_back(RailToJson(rail));
    json["gpus"].push_back({{"gpu", gpu.gpu},
                            {"memory", Name(gpu.memory)},
                            {"why", gpu.why},
                            {"rails", std::move(rails)}});
  }
  return json;
}

void AppendMachine(const MachinePlan& machine, std::string* text) {
  absl::StrAppendFormat(text, "machine %s: %g Gb/s\n", machine.host,
                        machine.gbps);
  for (const GpuPlan& gpu : machine.gpus) {
    absl::StrAppendFormat(text, "  %-14s %-11s",
                          gpu.gpu.empty() ? "CPU" : gpu.gpu, Name(gpu.memory));
    for (const Rail& rail : gpu.rails) {
      absl::StrAppendFormat(text, " %s/%d", rail.nic, rail.port);
      if (rail.gid >= 0) absl::StrAppend(text, " gid ", rail.gid);
      absl::StrAppend(text, " ", Name(rail.path));
      if (rail.users > 1) absl::StrAppend(text, " (1/", rail.users, ")");
    }
    absl::StrAppend(text, "  ", gpu.why, "\n");
  }
}

// One line for each kind of treatment.
void AppendTensors(const Plan& plan, std::string* text) {
  struct Sum {
    int64_t tensors = 0;
    int64_t elems = 0;
  };
  std::map<std::pair<std::string, int64_t>, Sum> sums;
  for (const TensorPlan& each : plan.tensors) {
    Sum& sum = sums[{each.codec, each.chunk_bytes}];
    ++sum.tensors;
    sum.elems += each.elems;
  }
  for (const auto& [kind, sum] : sums) {
    absl::StrAppendFormat(
        text, "  %4d tensors, %9s: %s, chunks of %s\n", sum.tensors,
        FormatBytes(4.0 * static_cast<double>(sum.elems)), kind.first,
        FormatBytes(static_cast<double>(kind.second)));
  }
}

}  // namespace

const char* Name(Decision::Kind what) {
  constexpr const char* kNames[] = {
      "network",      "cards",    "memory", "aggregation", "link",
      "hierarchical", "tier1",    "sums",   "compression", "connections",
      "chunk",        "priority", "advice"};
  return kNames[static_cast<size_t>(what)];
}

const Decision* FindDecision(const Plan& plan, Decision::Kind what) {
  const auto found = std::ranges::find(plan.decisions, what, &Decision::what);
  return found == plan.decisions.end() ? nullptr : &*found;
}

std::string ToText(const Decision& decision) {
  return absl::StrCat(Name(decision.what), " ", decision.choice,
                      decision.why.empty() ? "" : ": ", decision.why);
}

std::string PlanToJson(const Plan& plan) {
  Json json = {{"schema", kPlanSchema},
               {"digest", plan.digest},
               {"network", Name(plan.network)},
               {"transport", plan.transport},
               {"tls", plan.tls},
               {"aggregation", Name(plan.aggregation)},
               {"hierarchical", plan.is_hierarchical},
               {"pushers", plan.pushers},
               {"hosts", plan.hosts},
               {"sums", Json::array()},
               {"workers", plan.workers},
               {"servers", plan.servers},
               {"mtu", plan.mtu},
               {"connections", plan.connections},
               {"codec", plan.codec},
               {"link_bytes_per_s", plan.link_bytes_per_s},
               {"comm_s", plan.comm_s},
               {"comm_dense_s", plan.comm_dense_s},
               {"exposed_s", plan.exposed_s},
               {"decisions", Json::array()},
               {"warnings", plan.warnings},
               {"tensors", Json::array()},
               {"machines", Json::array()}};
  for (const SumRange& each : plan.sums) {
    Json range = {{"algorithm", Name(each.way)}};
    if (each.up_to_bytes != kAnySize) range["up_to_bytes"] = each.up_to_bytes;
    json["sums"].push_back(std::move(range));
  }
  for (const Decision& each : plan.decisions) {
    json["decisions"].push_back({{"what", Name(each.what)},
                                 {"choice", each.choice},
                                 {"why", each.why},
                                 {"evidence", EvidenceToJson(each.evidence)}});
  }
  for (const TensorPlan& each : plan.tensors) {
    json["tensors"].push_back({{"name", each.name},
                               {"elements", each.elems},
                               {"codec", each.codec},
                               {"chunk_bytes", each.chunk_bytes},
                               {"priority", each.priority}});
  }
  for (const MachinePlan& each : plan.machines) {
    json["machines"].push_back(MachineToJson(each));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<std::string> PlanToJson(Plan plan, size_t max_bytes) {
  std::string text = PlanToJson(plan);
  if (text.size() <= max_bytes) return text;
  for (Decision& each : plan.decisions) each.evidence.clear();
  text = PlanToJson(plan);
  if (text.size() <= max_bytes) return text;
  return absl::ResourceExhaustedError(
      absl::StrCat("a plan of ", text.size(), " bytes, beyond ", max_bytes));
}

std::string PlanToText(const Plan& plan) {
  std::string text = absl::StrFormat("plan %s\n", plan.digest.substr(0, 16));
  for (const Decision& each : plan.decisions) {
    absl::StrAppend(&text, "  ", ToText(each), "\n");
  }
  for (const std::string& each : plan.warnings) {
    absl::StrAppend(&text, "  warning: ", each, "\n");
  }
  AppendTensors(plan, &text);
  absl::StrAppendFormat(
      &text,
      "a step's communication: %.4g ms (%.4g ms without compression), of "
      "which %.4g ms do not hide behind backward\n",
      1e3 * plan.comm_s, 1e3 * plan.comm_dense_s, 1e3 * plan.exposed_s);
  for (const MachinePlan& each : plan.machines) AppendMachine(each, &text);
  return text;
}

}  // namespace telegrad
