#include "topology/planner/summary.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/units.h"

namespace telegrad {
namespace {

constexpr size_t kMachinesNamed = 2;

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

// The cards of two machines are named, other machines are counted.
Decision Cards(const Plan& plan) {
  Decision cards{.what = Decision::Kind::kCards};
  if (plan.network == NetworkKind::kLocal) {
    cards.choice = "none";
    cards.why = "nothing leaves the machine";
    return cards;
  }
  std::vector<std::string> named;
  for (const MachinePlan& machine : plan.machines) {
    for (const GpuPlan& gpu : machine.gpus) {
      cards.evidence.insert(cards.evidence.end(), gpu.evidence.begin(),
                            gpu.evidence.end());
    }
    if (named.size() == kMachinesNamed) continue;
    std::vector<std::string> each;
    for (const GpuPlan& gpu : machine.gpus) each.push_back(CardsOf(gpu));
    named.push_back(absl::StrCat(machine.host, " ", absl::StrJoin(each, ", ")));
  }
  cards.choice = named.empty() ? "not known" : absl::StrJoin(named, "; ");
  if (plan.machines.size() > named.size()) {
    absl::StrAppend(&cards.choice, "; and ",
                    plan.machines.size() - named.size(), " machines more");
  }
  return cards;
}

Decision Memory(const Plan& plan) {
  if (plan.machines.empty() && plan.network == NetworkKind::kLocal) {
    return {.what = Decision::Kind::kMemory,
            .choice = Name(MemoryPath::kHost),
            .why = "nothing leaves the machine"};
  }
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const MachinePlan& machine : plan.machines) {
    for (const GpuPlan& gpu : machine.gpus) {
      ++counts[{absl::StrCat(Name(gpu.memory),
                             gpu.gpu.empty() ? " for machines" : " for GPUs"),
                gpu.why}];
    }
  }
  std::vector<std::string> kinds;
  std::vector<std::string> reasons;
  for (const auto& [kind, count] : counts) {
    kinds.push_back(absl::StrCat(kind.first, " (", count, ")"));
    reasons.push_back(kind.second);
  }
  return {.what = Decision::Kind::kMemory,
          .choice = kinds.empty() ? "not known" : absl::StrJoin(kinds, ", "),
          .why = absl::StrJoin(reasons, ", ")};
}

// "256 kB for 20 tensors, 4 MB for 3".
Decision Chunks(const PlanRequest& request, const Plan& plan) {
  std::map<int64_t, int> counts;
  for (const TensorPlan& each : plan.tensors) ++counts[each.chunk_bytes];
  std::vector<std::string> sizes;
  for (const auto& [bytes, count] : counts) {
    sizes.push_back(absl::StrCat(FormatBytes(static_cast<double>(bytes)),
                                 " for ", count, " tensors"));
  }
  return {.what = Decision::Kind::kChunk,
          .choice = absl::StrJoin(sizes, ", "),
          .why = request.chunk_bytes.is_set()
                     ? request.chunk_bytes.by
                     : "the shortest prediction for their size"};
}

}  // namespace

void SummarisePath(Plan* plan) {
  plan->decisions.push_back(Cards(*plan));
  plan->decisions.push_back(Memory(*plan));
  std::ranges::stable_sort(plan->decisions, {}, &Decision::what);
}

void SummariseExchange(const PlanRequest& request, Plan* plan) {
  plan->decisions.push_back(Chunks(request, *plan));
  plan->decisions.push_back({.what = Decision::Kind::kPriority,
                             .choice = "first layers first",
                             .why = "the next step needs them first"});
  std::ranges::stable_sort(plan->decisions, {}, &Decision::what);
}

}  // namespace telegrad
