#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "topology/plan.h"

namespace telegrad {
namespace {

constexpr size_t kMachinesNamed = 2;

// "ring" of "aggregation ring: ...", "4" of "4 connections: ...".
PlanDecision FromReason(absl::string_view reason) {
  const size_t space = std::min(reason.find(' '), reason.size());
  absl::string_view first = reason.substr(0, space);
  absl::string_view rest = reason.substr(space);
  if (!first.empty() && absl::ascii_isdigit(first[0])) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    return {std::string(absl::StripAsciiWhitespace(rest.substr(0, colon))),
            absl::StrCat(first, rest.substr(colon))};
  }
  if (!first.empty() && first.back() == ':') first.remove_suffix(1);
  return {std::string(first), std::string(absl::StripAsciiWhitespace(rest))};
}

std::string CardsOf(const GpuPlan& gpu) {
  std::vector<std::string> cards;
  for (const Rail& rail : gpu.rails) {
    cards.push_back(absl::StrCat(rail.nic, "/", rail.port));
    if (rail.gbps > 0) {
      absl::StrAppendFormat(&cards.back(), " %g Gb/s", rail.gbps);
    }
  }
  const std::string text =
      cards.empty() ? "none that fits" : absl::StrJoin(cards, " and ");
  return gpu.gpu.empty() ? text : absl::StrCat(gpu.gpu, " ", text);
}

PlanDecision Cards(const Plan& plan) {
  if (plan.network == NetworkKind::kLocal) {
    return {"cards", "none: nothing leaves the machine"};
  }
  std::vector<std::string> machines;
  for (const MachinePlan& machine : plan.machines) {
    if (machines.size() == kMachinesNamed) break;
    std::vector<std::string> cards;
    for (const GpuPlan& gpu : machine.gpus) cards.push_back(CardsOf(gpu));
    machines.push_back(
        absl::StrCat(machine.host, ": ", absl::StrJoin(cards, ", ")));
  }
  std::string text = absl::StrJoin(machines, "; ");
  if (plan.machines.size() > machines.size()) {
    absl::StrAppend(&text, "; and ", plan.machines.size() - machines.size(),
                    " machines more");
  }
  return {"cards", text.empty() ? "not known" : text};
}

PlanDecision Memory(const Plan& plan) {
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const MachinePlan& machine : plan.machines) {
    for (const GpuPlan& gpu : machine.gpus) {
      ++counts[{absl::StrCat(Name(gpu.memory),
                             gpu.gpu.empty() ? " for machines" : " for GPUs"),
                gpu.why}];
    }
  }
  std::vector<std::string> kinds;
  for (const auto& [kind, count] : counts) {
    kinds.push_back(absl::StrCat(kind.first, " (", count, "): ", kind.second));
  }
  return {"memory", kinds.empty() ? "not known" : absl::StrJoin(kinds, "; ")};
}

}  // namespace

std::vector<PlanDecision> PlanDecisions(const Plan& plan) {
  std::vector<PlanDecision> others;
  std::vector<PlanDecision> decisions;
  PlanDecision aggregation;
  for (const std::string& reason : plan.reasons) {
    PlanDecision each = FromReason(reason);
    if (each.what == "network") {
      decisions.push_back(std::move(each));
    } else if (each.what == "aggregation") {
      aggregation = std::move(each);
    } else {
      others.push_back(std::move(each));
    }
  }
  decisions.push_back(Cards(plan));
  decisions.push_back(Memory(plan));
  decisions.push_back(std::move(aggregation));
  std::move(others.begin(), others.end(), std::back_inserter(decisions));
  return decisions;
}

}  // namespace telegrad
