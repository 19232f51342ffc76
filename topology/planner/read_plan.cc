#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "topology/apply.h"
#include "topology/path.h"
#include "topology/planner/summary.h"
#include "topology/sha256.h"

namespace telegrad {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxRanks = 1'000'000;
constexpr int kMaxDepth = 64;

// Reads members of objects until one is wrong, and remembers which.
class Reader {
 public:
  template <typename T>
  void Take(const Json& json, const char* name, T* value) {
    if (!status.ok()) return;
    const auto found = json.is_object() ? json.find(name) : json.end();
    if (!json.is_object() || found == json.end() || !IsOf<T>(*found)) {
      status = absl::InvalidArgumentError(absl::StrCat(
          "the plan's '", name, "' is missing or of another type"));
      return;
    }
    *value = found->template get<T>();
  }
  // One of the names that `values` have.
  template <typename T>
  void TakeName(const Json& json, const char* name, T last, T* value) {
    std::string text;
    Take(json, name, &text);
    for (int i = 0; status.ok() && i <= static_cast<int>(last); ++i) {
      if (text != Name(static_cast<T>(i))) continue;
      *value = static_cast<T>(i);
      return;
    }
    if (!status.ok()) return;
    status = absl::InvalidArgumentError(
        absl::StrCat("the plan's '", name, "' is '", text, "'"));
  }
  Json List(const Json& json, const char* name) {
    Json list;
    Take(json, name, &list);
    if (status.ok() && !list.is_array()) {
      status = absl::InvalidArgumentError(
          absl::StrCat("the plan's '", name, "' is no list"));
    }
    return status.ok() ? list : Json::array();
  }

  absl::Status status;

 private:
  template <typename T>
  static bool IsOf(const Json& json) {
    if constexpr (std::is_same_v<T, std::string>) return json.is_string();
    if constexpr (std::is_same_v<T, bool>) return json.is_boolean();
    if constexpr (std::is_integral_v<T>) {
      return json.is_number_integer() &&
             std::abs(json.get<double>()) < std::ldexp(1.0, 8 * sizeof(T) - 1);
    }
    if constexpr (std::is_floating_point_v<T>) return json.is_number();
    return true;
  }
};

GpuPlan ReadGpu(const Json& json, Reader& reader) {
  GpuPlan gpu;
  reader.Take(json, "gpu", &gpu.gpu);
  reader.TakeName(json, "memory", MemoryPath::kGdr, &gpu.memory);
  for (const Json& each : reader.List(json, "rails")) {
    Rail& rail = gpu.rails.emplace_back();
    reader.Take(each, "nic", &rail.nic);
    reader.Take(each, "port", &rail.port);
    reader.Take(each, "gid", &rail.gid);
    reader.Take(each, "users", &rail.users);
  }
  return gpu;
}

// Without their evidence, which only whoever planned has.
void ReadDecisions(const Json& json, Reader& reader, Plan& plan) {
  for (const Json& each : reader.List(json, "decisions")) {
    Decision& decision = plan.decisions.emplace_back();
    reader.TakeName(each, "what", Decision::Kind::kAdvice, &decision.what);
    reader.Take(each, "choice", &decision.choice);
    reader.Take(each, "why", &decision.why);
  }
  for (const Json& each : reader.List(json, "warnings")) {
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

absl::StatusOr<Plan> PlanOf(const Json& json) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError("it is no plan: not a JSON object");
  }
  Reader reader;
  std::string schema;
  std::string digest;
  Plan plan;
  reader.Take(json, "schema", &schema);
  if (reader.status.ok() && schema != kPlanSchema) {
    return absl::InvalidArgumentError(
        absl::StrCat("the plan's 'schema' is '", absl::Utf8SafeCEscape(schema),
                     "', this version reads ", kPlanSchema));
  }
  reader.Take(json, "digest", &digest);
  reader.TakeName(json, "network", NetworkKind::kEfa, &plan.network);
  reader.Take(json, "transport", &plan.transport);
  reader.Take(json, "tls", &plan.tls);
  reader.TakeName(json, "aggregation", Aggregation::kAllGather,
                  &plan.aggregation);
  reader.Take(json, "hierarchical", &plan.is_hierarchical);
  for (const Json& each : reader.List(json, "pushers")) {
    plan.pushers.push_back(each.is_number_unsigned() &&
                                   each.get<uint64_t>() < kMaxRanks
                               ? each.get<int>()
                               : -1);
  }
  reader.Take(json, "workers", &plan.workers);
  reader.Take(json, "servers", &plan.servers);
  reader.Take(json, "mtu", &plan.mtu);
  reader.Take(json, "connections", &plan.connections);
  reader.Take(json, "codec", &plan.codec);
  for (const Json& each : reader.List(json, "tensors")) {
    TensorPlan& tensor = plan.tensors.emplace_back();
    reader.Take(each, "name", &tensor.name);
    reader.Take(each, "elements", &tensor.elems);
    reader.Take(each, "codec", &tensor.codec);
    reader.Take(each, "chunk_bytes", &tensor.chunk_bytes);
    reader.Take(each, "priority", &tensor.priority);
  }
  for (const Json& each : reader.List(json, "machines")) {
    MachinePlan& machine = plan.machines.emplace_back();
    reader.Take(each, "host", &machine.host);
    for (const Json& gpu : reader.List(each, "gpus")) {
      machine.gpus.push_back(ReadGpu(gpu, reader));
    }
  }
  ReadDecisions(json, reader, plan);
  RETURN_IF_ERROR(reader.status);
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

absl::StatusOr<std::string> ReadText(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxPlanBytes, '\0');
  if (file) file.read(text.data(), static_cast<int64_t>(text.size()));
  if (file.bad() || file.gcount() == 0) {
    return absl::NotFoundError(absl::StrCat(
        "it cannot be read: ", errno != 0 ? std::strerror(errno) : "empty"));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

// Discarded where it is nested so deeply that who takes it apart, by recursion,
// would leave the stack.
Json Parsed(absl::string_view text) {
  bool is_deep = false;
  Json json = Json::parse(
      text,
      [&](int depth, Json::parse_event_t /*event*/, Json& /*value*/) {
        is_deep = is_deep || depth > kMaxDepth;
        return !is_deep;
      },
      false);
  return is_deep ? Json(Json::value_t::discarded) : json;
}

absl::StatusOr<Plan> ReadPlan(const std::string& path) {
  const size_t hash = path.rfind('#');
  const std::string file = path.substr(0, hash);
  ASSIGN_OR_RETURN(const std::string text, ReadText(file));
  Json json = Parsed(text);
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
  return PlanOf(Parsed(text));
}

}  // namespace telegrad
