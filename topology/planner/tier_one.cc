#include "topology/planner/tier_one.h"

#include <map>

#include "absl/strings/str_cat.h"

namespace telegrad {

void ChooseTierOne(const PlanRequest& request, Plan* plan) {
  std::map<std::string, int> first;  // rank, by host
  std::vector<int> pushers;
  for (const std::string& host : request.worker_hosts) {
    const int rank = static_cast<int>(pushers.size());
    pushers.push_back(first.emplace(host, rank).first->second);
  }
  const size_t hosts = first.size();
  const Constraint<bool>& told = request.tier_one;
  const bool is_asked_for = told.is_set() && told.value;
  if (hosts == pushers.size()) {
    if (!is_asked_for || hosts < 2) return;  // nothing to decide
    plan->decisions.push_back(
        {.what = Decision::Kind::kTierOne,
         .choice = "off",
         .why =
             absl::StrCat(told.by, ": ", hosts, " workers on as many hosts")});
    return;
  }
  const bool is_one_host = hosts == 1 && request.servers == 0;
  const bool is_on = told.is_set() ? is_asked_for : !is_one_host;
  Decision decision{.what = Decision::Kind::kTierOne,
                    .choice = is_on ? "on" : "off"};
  if (told.is_set()) absl::StrAppend(&decision.why, told.by, ": ");
  absl::StrAppend(&decision.why, pushers.size(), " workers on ", hosts,
                  hosts == 1 ? " host" : " hosts");
  if (is_on) {
    absl::StrAppend(&decision.why, "; one of each host pushes");
    plan->pushers = std::move(pushers);
  }
  if (is_one_host) {
    absl::StrAppend(&decision.why, is_on ? ", though gradients do not leave it"
                                         : ", which gradients do not leave");
  }
  plan->decisions.push_back(std::move(decision));
}

}  // namespace telegrad
