// libFuzzer: plans; what is read is written as it is.
#include <cstdlib>
#include <string>

#include "tests/fuzz/edited.h"
#include "topology/apply.h"
#include "topology/plan.h"
#include "topology/sha256.h"

namespace telegrad {
namespace {

std::string GoodPlan() {
  Plan plan{.transport = "tcp", .workers = 2, .servers = 1};
  plan.tensors = {{.name = "w", .elems = 1000, .codec = "2bit"}};
  plan.tensors[0].chunk_bytes = 4000;
  plan.machines = {{.host = "node1"}};
  plan.digest = Sha256Hex(PlanFacts(plan));
  return PlanToJson(plan);
}

}  // namespace
}  // namespace telegrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace telegrad;
  static const std::string* const good = new std::string(GoodPlan());
  const auto plan = PlanFromJson(EditedOrRaw(*good, data, size));
  if (plan.ok() && !PlanFromJson(PlanToJson(*plan)).ok()) std::abort();
  return 0;
}
