#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/input_file.h"
#include "base/json_fields.h"
#include "base/of_flag.h"
#include "base/status_macros.h"
#include "topology/apply.h"
#include "topology/path.h"
#include "topology/planner/summary.h"
#include "topology/sha256.h"

namespace telegrad {
namespace {

using Json = JsonFields::Json;

constexpr uint64_t kMaxRanks = 1'000'000;

GpuPlan ReadGpu(JsonFields& json) {
  GpuPlan gpu;
  json.Read("gpu", gpu.gpu);
  json.ReadName("memory", gpu.memory, MemoryPath::kGdr);
  json.Each("rails", JsonFields::kAny, [&](JsonFields& each) {
    Rail& rail = gpu.rails.emplace_back();
    each.Read("nic", rail.nic);
    each.Read("port", rail.port);
    each.Read("gid", rail.gid);
    each.Read("users", rail.users);
  });
  return gpu;
}

// Without their evidence, which only whoever planned has.
void ReadDecisions(JsonFields& json, Plan& plan) {
  json.Each("decisions", JsonFields::kAny, [&](JsonFields& each) {
    Decision& decision = plan.decisions.emplace_back();
    each.ReadName("what", decision.what, Decision::Kind::kAdvice);
    each.Read("choice", decision.choice);
    each.Read("why", decision.why);
  });
  for (const Json& each : json.List("warnings")) {
    if (each.is_string()) plan.warnings.push_back(each.get<std::string>());
  }
}

constexpr size_t kMaxPlanBytes = size_t{64} << 20;

absl::Status CheckRanges(const Plan& plan) {
  const auto wrong = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("the plan has ", what...));
  };
  if (plan.workers < 1 || plan.servers < 0) {
    return wrong(plan.workers, " workers and ", plan.servers, " servers");
  }
  if (plan.connections < 1) return wrong(plan.connections, " connections");
  for (const TensorPlan& each : plan.tensors) {
    if (each.elems < 1 || each.chunk_bytes < 4) {
      return wrong("the tensor ", each.name, " of ", each.elems,
                   " elements in chunks of ", each.chunk_bytes, " bytes");
    }
  }
  return absl::OkStatus();
}

void ReadRanks(JsonFields& json, const char* name, std::vector<int>& ranks) {
  for (const Json& each : json.List(name)) {
    ranks.push_back(each.is_number_unsigned() &&
                            each.get<uint64_t>() < kMaxRanks
                        ? each.get<int>()
                        : -1);
  }
}

absl::StatusOr<Plan> PlanOf(const Json& json) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError("it is no plan: not a JSON object");
  }
  JsonFields fields(json, "the plan's '$0' $1");
  Plan plan;
  const std::string schema = fields.Text("schema");
  if (fields.status().ok() && schema != kPlanSchema) {
    return absl::InvalidArgumentError(
        absl::StrCat("the plan's 'schema' is '", absl::Utf8SafeCEscape(schema),
                     "', this version reads ", kPlanSchema));
  }
  const std::string digest = fields.Text("digest");
  fields.ReadName("network", plan.network, NetworkKind::kEfa);
  fields.Read("transport", plan.transport);
  fields.Read("tls", plan.tls);
  fields.ReadName("aggregation", plan.aggregation, Aggregation::kAllGather);
  fields.Read("hierarchical", plan.is_hierarchical);
  ReadRanks(fields, "pushers", plan.pushers);
  ReadRanks(fields, "hosts", plan.hosts);
  fields.Each("sums", JsonFields::kAny, [&](JsonFields& each) {
    SumRange& range = plan.sums.emplace_back();
    each.ReadName("algorithm", range.way, SumWay::kTwoLevel);
    range.up_to_bytes = kAnySize;
    int64_t bytes = -1;
    if (each.Has("up_to_bytes")) each.Read("up_to_bytes", bytes);
    if (bytes >= 0) range.up_to_bytes = static_cast<uint64_t>(bytes);
  });
  fields.Read("workers", plan.workers);
  fields.Read("servers", plan.servers);
  fields.Read("mtu", plan.mtu);
  fields.Read("connections", plan.connections);
  fields.Read("codec", plan.codec);
  fields.Read("link_bytes_per_s", plan.link_bytes_per_s);
  fields.Each("tensors", JsonFields::kAny, [&](JsonFields& each) {
    TensorPlan& tensor = plan.tensors.emplace_back();
    each.Read("name", tensor.name);
    each.Read("elements", tensor.elems);
    each.Read("codec", tensor.codec);
    each.Read("chunk_bytes", tensor.chunk_bytes);
    each.Read("priority", tensor.priority);
  });
  fields.Each("machines", JsonFields::kAny, [&](JsonFields& each) {
    MachinePlan& machine = plan.machines.emplace_back();
    each.Read("host", machine.host);
    each.Each("gpus", JsonFields::kAny,
              [&](JsonFields& gpu) { machine.gpus.push_back(ReadGpu(gpu)); });
  });
  ReadDecisions(fields, plan);
  RETURN_IF_ERROR(fields.status());
  plan.digest = Sha256Hex(PlanFacts(plan));
  if (plan.digest != digest) {
    return absl::InvalidArgumentError(
        "the plan's digest is not that of what it says: it was changed, or "
        "made by another version");
  }
  RETURN_IF_ERROR(CheckRanges(plan));
  return plan;
}

// The plan of a run in a list of summaries; of that setting, or the only one.
absl::StatusOr<Json> PlanOfRun(const Json& runs, absl::string_view setting) {
  Json file;
  std::vector<std::string> settings;
  for (const Json& run : runs) {
    if (!run.is_object() || !run.contains("plan")) continue;
    const Json& plan = run["plan"];
    if (!plan.is_object() || !plan.contains("file")) continue;
    const std::string name = run.value("setting", Json("")).dump();
    if (!setting.empty() && name != Json(setting).dump()) continue;
    if (plan["file"] == file) continue;
    file = plan["file"];
    settings.push_back(name);
  }
  if (settings.size() == 1) return file;
  return absl::InvalidArgumentError(
      settings.empty()
          ? "no run in it has a plan"
          : absl::StrCat("it has the plans of ", absl::StrJoin(settings, ", "),
                         "; FILE#SETTING is one of them"));
}

absl::StatusOr<Plan> ReadPlan(const std::string& path) {
  const size_t hash = path.rfind('#');
  const std::string file = path.substr(0, hash);
  ASSIGN_OR_RETURN(const std::string text,
                   OfFlag("it cannot be read", ReadFile(file, kMaxPlanBytes)));
  Json json = ParseJson(text);
  if (json.is_array()) {
    ASSIGN_OR_RETURN(
        json, PlanOfRun(json, hash == path.npos ? "" : path.substr(hash + 1)));
  }
  return PlanOf(json);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const GivenPlan>> LoadPlan(
    const std::string& path) {
  absl::StatusOr<Plan> plan = ReadPlan(path);
  const std::string by = absl::StrCat("--plan ", path);
  if (!plan.ok()) {
    return absl::Status(plan.status().code(),
                        absl::StrCat(by, ": ", plan.status().message()));
  }
  return std::make_shared<const GivenPlan>(GivenPlan{by, *std::move(plan)});
}

absl::StatusOr<Plan> PlanFromJson(absl::string_view text) {
  return PlanOf(ParseJson(text));
}

}  // namespace telegrad
