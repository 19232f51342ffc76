#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/units.h"
#include "topology/path.h"
#include "topology/plan.h"

namespace telegrad {
namespace {

using Json = nlohmann::ordered_json;

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

// "256 kB for 20 tensors, 4 MB for 3".
std::string Chunks(const Plan& plan) {
  std::map<int64_t, int> counts;
  for (const TensorPlan& each : plan.tensors) ++counts[each.chunk_bytes];
  std::vector<std::string> sizes;
  for (const auto& [bytes, count] : counts) {
    sizes.push_back(absl::StrCat(FormatBytes(static_cast<double>(bytes)),
                                 " for ", count, " tensors"));
  }
  return absl::StrJoin(sizes, ", ");
}

// A line for each decision: those of PlanDecisions, then of all tensors.
std::vector<std::string> Reasons(const Plan& plan) {
  std::vector<std::string> lines;
  for (const PlanDecision& each : PlanDecisions(plan)) {
    lines.push_back(absl::StrCat(each.what, " ", each.text));
  }
  lines.push_back(absl::StrCat(
      "chunk ", Chunks(plan),
      plan.chunk_bytes > 0 ? ": asked for"
                           : ": the shortest prediction for their size"));
  lines.push_back(
      "priority first layers first: the next step needs them first");
  return lines;
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

std::string PlanToJson(const Plan& plan) {
  Json json = {{"schema", "telegrad-plan-1"},
               {"digest", plan.digest},
               {"network", Name(plan.network)},
               {"aggregation", Name(plan.aggregation)},
               {"hierarchical", plan.is_hierarchical},
               {"workers", plan.workers},
               {"servers", plan.servers},
               {"mtu", plan.mtu},
               {"connections", plan.connections},
               {"codec", plan.codec},
               {"link_bytes_per_s", plan.link_bytes_per_s},
               {"comm_s", plan.comm_s},
               {"comm_dense_s", plan.comm_dense_s},
               {"exposed_s", plan.exposed_s},
               {"reasons", Reasons(plan)},
               {"warnings", plan.warnings},
               {"tensors", Json::array()},
               {"machines", Json::array()}};
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

std::string PlanToText(const Plan& plan) {
  std::string text = absl::StrFormat("plan %s\n", plan.digest.substr(0, 16));
  for (const std::string& each : Reasons(plan)) {
    absl::StrAppend(&text, "  ", each, "\n");
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
