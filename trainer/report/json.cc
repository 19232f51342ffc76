#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/json_fields.h"
#include "base/status_macros.h"
#include "trainer/report/results.h"

namespace telegrad {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

constexpr char kMessage[] = "field '$0' $1";

absl::StatusOr<JsonFields::Json> ParseObject(absl::string_view text) {
  auto json = ParseJson(text);
  if (!json.is_object()) {
    return absl::InvalidArgumentError("not a JSON object");
  }
  return json;
}

// Reads by type what FieldWriter writes.
class FieldReader {
 public:
  explicit FieldReader(JsonFields& fields) : fields_(fields) {}
  template <typename T>
  void Optional(const char* name, T& out) {
    if (fields_.Has(name)) Required(name, out);
  }
  template <typename T>
  void Required(const char* name, T& out) {
    fields_.Read(name, out);
  }
  void Required(const char* name, double& out) {
    out = fields_.NumberOrNan(name);
  }
  void Required(const char* name, std::vector<std::string>& out) {
    out = fields_.Texts(name);
  }
  void Required(const char* name, ReportedPlan& out) {
    JsonFields plan = fields_.Object(name);
    out.digest = plan.Text("digest");
    plan.Each("decisions", JsonFields::kAny, [&](JsonFields& each) {
      ReportedDecision& choice = out.decisions.emplace_back();
      choice.what = each.Text("what");
      choice.choice = each.Text("choice");
      choice.why = each.Text("why");
    });
  }
  template <typename Part>
  void Required(const char* name, std::vector<Part>& out);

 private:
  JsonFields& fields_;
};

struct FieldWriter {
  template <typename T>
  void Required(const char* name, const T& value) {
    json[name] = value;
  }
  template <typename T>
  void Optional(const char* name, const T& value) {
    json[name] = value;
  }
  void Optional(const char* name, const ReportedPlan& value) {
    Json& plan =
        json[name] = {{"digest", value.digest}, {"decisions", Json::array()}};
    for (const ReportedDecision& each : value.decisions) {
      plan["decisions"].push_back(
          {{"what", each.what}, {"choice", each.choice}, {"why", each.why}});
    }
    Json file = ParseJson<Json>(value.file);
    if (file.is_object()) plan["file"] = std::move(file);
  }
  void Optional(const char* name, const std::vector<std::string>& value) {
    json[name] = value;
  }
  template <typename Part>
  void Optional(const char* name, const std::vector<Part>& parts);
  Json json;
};

template <typename Visitor, typename Tensor>
void VisitPart(Visitor& visitor, Tensor& tensor) requires
    std::is_same_v<std::remove_const_t<Tensor>, TensorBytes> {
  visitor.Required("tensor", tensor.tensor);
  visitor.Required("codec", tensor.codec);
  visitor.Required("reason", tensor.reason);
  visitor.Required("reply", tensor.reply);
  visitor.Required("elements", tensor.elements);
  visitor.Required("push_bytes", tensor.push_bytes);
  visitor.Required("pull_bytes", tensor.pull_bytes);
}

template <typename Visitor, typename Fact>
void VisitPart(Visitor& visitor, Fact& fact) requires
    std::is_same_v<std::remove_const_t<Fact>, EnvironmentFact> {
  visitor.Required("what", fact.what);
  visitor.Required("value", fact.value);
}

template <typename Visitor, typename Span>
void VisitPart(Visitor& visitor, Span& span) requires
    std::is_same_v<std::remove_const_t<Span>, StageSpan> {
  visitor.Required("row", span.row);
  visitor.Required("what", span.what);
  visitor.Required("begin_s", span.begin_s);
  visitor.Required("end_s", span.end_s);
}

template <typename Part>
void FieldWriter::Optional(const char* name, const std::vector<Part>& parts) {
  Json& list = json[name] = Json::array();
  for (const Part& part : parts) {
    FieldWriter writer;
    VisitPart(writer, part);
    list.push_back(std::move(writer.json));
  }
}

template <typename Part>
void FieldReader::Required(const char* name, std::vector<Part>& out) {
  fields_.Each(name, JsonFields::kAny, [&](JsonFields& part) {
    FieldReader reader(part);
    VisitPart(reader, out.emplace_back());
  });
}

template <typename Visitor, typename Tensor>
void VisitTensor(Visitor& visitor, Tensor& tensor) {
  visitor.Required("tensor", tensor.tensor);
  visitor.Required("codec", tensor.codec);
  visitor.Required("residual_ratio", tensor.residual_ratio);
  visitor.Required("zero_share", tensor.zero_share);
  visitor.Required("saturated_share", tensor.saturated_share);
  visitor.Required("cosine", tensor.cosine);
  visitor.Optional("relative_error", tensor.relative_error);
  visitor.Required("num_nonfinite", tensor.num_nonfinite);
}

// The one list of names: the fields that every summary has, then later ones.
template <typename Visitor, typename Run>
void VisitRun(Visitor& visitor, Run& run) {
  visitor.Required("setting", run.setting);
  visitor.Required("seed", run.seed);
  visitor.Required("workers", run.workers);
  visitor.Required("servers", run.servers);
  visitor.Required("accuracy", run.accuracy);
  visitor.Required("loss", run.loss);
  visitor.Required("steps", run.steps);
  visitor.Required("seconds", run.seconds);
  visitor.Required("samples_per_s", run.samples_per_s);
  visitor.Required("push_raw_bytes", run.push_raw_bytes);
  visitor.Required("push_wire_bytes", run.push_wire_bytes);
  visitor.Required("pull_raw_bytes", run.pull_raw_bytes);
  visitor.Required("pull_wire_bytes", run.pull_wire_bytes);
  visitor.Required("comm_wait_s", run.comm_wait_s);
  visitor.Required("weights_sha256", run.weights_sha256);
  visitor.Optional("network", run.network);
  visitor.Optional("data", run.data);
  visitor.Optional("codec", run.codec);
  visitor.Optional("reply", run.reply);
  visitor.Optional("update_on", run.update_on);
  visitor.Optional("threshold", run.threshold);
  visitor.Optional("transport", run.transport);
  visitor.Optional("link", run.link);
  visitor.Optional("step_seconds_p50", run.step_seconds_p50);
  visitor.Optional("step_seconds_min", run.step_seconds_min);
  visitor.Optional("byte_limit_s", run.byte_limit_s);
  visitor.Optional("worker_peak_bytes", run.worker_peak_bytes);
  visitor.Optional("server_peak_bytes", run.server_peak_bytes);
  visitor.Optional("model_bytes", run.model_bytes);
  visitor.Optional("to_device_bytes", run.to_device_bytes);
  visitor.Optional("from_device_bytes", run.from_device_bytes);
  visitor.Optional("num_tensors", run.num_tensors);
  visitor.Optional("num_compressed", run.num_compressed);
  visitor.Optional("num_small", run.num_small);
  visitor.Optional("compressed_share", run.compressed_share);
  visitor.Optional("decisions", run.decisions);
  visitor.Optional("warnings", run.warnings);
  visitor.Optional("plan", run.plan);
  visitor.Optional("tensors", run.tensors);
  visitor.Optional("environment", run.environment);
  visitor.Optional("staleness", run.staleness);
  visitor.Optional("stragglers", run.stragglers);
  visitor.Optional("jobs", run.jobs);
  visitor.Optional("identity", run.identity);
  visitor.Optional("timeline", run.timeline);
}

absl::StatusOr<RunSummary> RunOf(const Json& json) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError("not a JSON object");
  }
  const JsonFields::Json sorted(json);
  JsonFields fields(sorted, kMessage);
  FieldReader reader(fields);
  RunSummary run;
  VisitRun(reader, run);
  RETURN_IF_ERROR(fields.status());
  const Json::json_pointer plan("/plan/file");
  if (json.contains(plan)) run.plan.file = Dump(json.at(plan));
  return run;
}

}  // namespace

std::string ToJson(const MetricPoint& point, absl::string_view setting,
                   uint64_t seed) {
  Json json;
  json["setting"] = std::string(setting);
  json["seed"] = seed;
  json["epoch"] = point.epoch;
  json["step"] = point.step;
  json["seconds"] = point.seconds;
  json["train_loss"] = point.train_loss;
  json["train_accuracy"] = point.train_accuracy;
  if (point.test_accuracy >= 0) {
    json["test_loss"] = point.test_loss;
    json["test_accuracy"] = point.test_accuracy;
  }
  json["wire_bytes"] = point.wire_bytes;
  for (const TensorMetrics& tensor : point.tensors) {
    FieldWriter writer;
    VisitTensor(writer, tensor);
    json["tensors"].push_back(std::move(writer.json));
  }
  return Dump(json);
}

std::string ToJson(const RunSummary& run) {
  FieldWriter writer;
  VisitRun(writer, run);
  return Dump(writer.json);
}

absl::StatusOr<RunSummary> RunSummaryFromJson(absl::string_view text) {
  return RunOf(ParseJson<Json>(text));
}

absl::StatusOr<std::vector<RunSummary>> RunSummariesFromJson(
    absl::string_view text) {
  const auto json = ParseJson<Json>(text);
  if (!json.is_array()) {
    return absl::InvalidArgumentError("not a JSON array of runs");
  }
  std::vector<RunSummary> runs;
  for (const Json& entry : json) {
    absl::StatusOr<RunSummary> run = RunOf(entry);
    if (!run.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("run ", runs.size() + 1, ": ", run.status().message()));
    }
    runs.push_back(*std::move(run));
  }
  return runs;
}

absl::StatusOr<RunName> RunNameFromJson(absl::string_view line) {
  ASSIGN_OR_RETURN(const auto json, ParseObject(line));
  JsonFields fields(json, kMessage);
  RunName name;
  fields.Read("setting", name.setting);
  fields.Read("seed", name.seed);
  RETURN_IF_ERROR(fields.status());
  return name;
}

absl::StatusOr<MetricPoint> MetricPointFromJson(absl::string_view line) {
  ASSIGN_OR_RETURN(const auto json, ParseObject(line));
  JsonFields fields(json, kMessage);
  FieldReader reader(fields);
  MetricPoint point;
  reader.Required("epoch", point.epoch);
  reader.Required("step", point.step);
  reader.Required("seconds", point.seconds);
  reader.Required("train_loss", point.train_loss);
  reader.Required("train_accuracy", point.train_accuracy);
  reader.Required("wire_bytes", point.wire_bytes);
  if (fields.Has("tensors")) {
    fields.Each("tensors", JsonFields::kAny, [&](JsonFields& each) {
      FieldReader part(each);
      VisitTensor(part, point.tensors.emplace_back());
    });
  }
  reader.Optional("test_loss", point.test_loss);
  reader.Optional("test_accuracy", point.test_accuracy);
  RETURN_IF_ERROR(fields.status());
  return point;
}

}  // namespace telegrad
