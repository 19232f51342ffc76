#include "kvstore/ps/wire/job_config.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/crc32c.h"
#include "base/exit_code.h"
#include "base/json_fields.h"
#include "base/status_macros.h"
#include "kernels/code_sum.h"
#include "kvstore/engine/codec/checks.h"
#include "kvstore/job/control/job.h"
#include "kvstore/ps/wire/json_fields.h"
#include "transport/transport.h"

namespace telegrad {
namespace {

using Json = JsonFields::Json;

constexpr char kTable[] = "tensor table";  // the name of a fact
constexpr int64_t kMost = int64_t{1} << 62;

bool IsPlanned(const TensorSpec& tensor) {
  return tensor.chunk_elems > 0 || !tensor.codec.empty();
}

// What workers must have alike of a tensor.
std::string TensorText(const TensorSpec& tensor) {
  std::string text =
      absl::StrCat(tensor.name, " of ", tensor.num_elems, " elements");
  if (tensor.row_elems > 0) {
    absl::StrAppend(&text, " in rows of ", tensor.row_elems);
  }
  if (tensor.rates.lr != 1 || tensor.rates.wd != 1) {
    absl::StrAppendFormat(&text, ", rates times %.9g and %.9g", tensor.rates.lr,
                          tensor.rates.wd);
  }
  if (!tensor.has_momentum) text += ", without momentum";
  if (IsPlanned(tensor)) {
    absl::StrAppend(&text, ", chunks of ", tensor.chunk_elems, ", codec '",
                    tensor.codec, "'");
  }
  return text + "\n";
}

std::string TableDigest(std::span<const TensorSpec> tensors) {
  uint32_t crc = 0;
  uint64_t elems = 0;
  for (const TensorSpec& tensor : tensors) {
    const std::string text = TensorText(tensor);
    crc = Crc32c(text.data(), text.size(), crc);
    elems += tensor.num_elems;
  }
  return absl::StrFormat("%u tensors, %u elements, check %08x", tensors.size(),
                         elems, crc);
}

// As many as a gather takes.
std::string TableText(std::span<const TensorSpec> tensors) {
  std::string all;
  for (const TensorSpec& tensor : tensors) {
    const std::string text = TensorText(tensor);
    if (all.size() + text.size() > kMaxGatherBytes) break;
    all += text;
  }
  return all;
}

// Where two texts of tables differ first; empty: nowhere.
std::string FirstDifferent(absl::string_view first, absl::string_view other,
                           size_t rank) {
  const std::vector<absl::string_view> a = absl::StrSplit(first, '\n');
  const std::vector<absl::string_view> b = absl::StrSplit(other, '\n');
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const absl::string_view mine = i < a.size() ? a[i] : "";
    const absl::string_view its = i < b.size() ? b[i] : "";
    if (mine == its) continue;
    return absl::StrCat(kTable, ": tensor ", i + 1, ": worker/0 has ",
                        mine.empty() ? "none" : mine.substr(0, 600),
                        ", worker/", rank, " has ",
                        its.empty() ? "none" : its.substr(0, 600),
                        "; give all workers the same in the same order");
  }
  return "";
}

// With all digits: thresholds that differ in the last bit differ.
std::string ThresholdFact(const ThresholdSpec& spec) {
  if (spec.kind == ThresholdSpec::Kind::kAuto) return "auto";
  return absl::StrFormat("%.9g%s", spec.value,
                         spec.kind == ThresholdSpec::Kind::kBatch ? ":batch"
                         : spec.kind == ThresholdSpec::Kind::kRms ? "rms"
                                                                  : "");
}

std::string ConsistencyFact(const JobConfig& config) {
  if (config.drop_slowest > 0) {
    return absl::StrCat("sync, without the slowest ", config.drop_slowest);
  }
  if (!config.is_async) return "sync";
  return config.max_staleness == kAnyStaleness
             ? "async"
             : absl::StrCat("async, at most ", config.max_staleness,
                            " steps ahead");
}

std::string MomentumFact(const CompressionConfig& gc) {
  if (gc.momentum == PushMomentum::kNone) return "off";
  return absl::StrFormat("%s %.9g", ToString(gc.momentum), gc.momentum_rate);
}

std::string RulesFact(const std::string& rules) {
  constexpr size_t kLongest = 100;
  if (rules.empty()) return "none";
  if (rules.size() <= kLongest) return rules;
  return absl::StrFormat("%s..., check %08x", rules.substr(0, kLongest),
                         Crc32c(rules.data(), rules.size(), 0));
}

// A tensor's fields: [name, elements], with its rates where they are its own,
// with rates and the elements of a row where it has rows, with all these (0: no
// rows), chunk and codec where a plan has these.
Json TensorFields(const TensorSpec& tensor) {
  Json fields = {tensor.name, tensor.num_elems};
  const bool has_more = tensor.row_elems > 0 || IsPlanned(tensor);
  if (tensor.rates.lr != 1 || tensor.rates.wd != 1 || has_more) {
    fields.push_back(std::bit_cast<uint32_t>(tensor.rates.lr));
    fields.push_back(std::bit_cast<uint32_t>(tensor.rates.wd));
  }
  if (has_more) fields.push_back(tensor.row_elems);
  if (IsPlanned(tensor)) {
    fields.push_back(tensor.chunk_elems);
    fields.push_back(tensor.codec);
  }
  return fields;
}

// What stands behind name and elements.
bool ReadOwn(const Json& entry, TensorSpec& tensor) {
  float* const rates[] = {&tensor.rates.lr, &tensor.rates.wd};
  for (size_t i = 2; i < std::min<size_t>(entry.size(), 4); ++i) {
    if (!entry[i].is_number_unsigned() ||
        entry[i].get<uint64_t>() > UINT32_MAX) {
      return false;
    }
    *rates[i - 2] = std::bit_cast<float>(entry[i].get<uint32_t>());
  }
  if (entry.size() < 7) return true;
  if (!entry[5].is_number_unsigned() || !entry[6].is_string()) return false;
  tensor.chunk_elems = entry[5].get<uint64_t>();
  tensor.codec = entry[6].get<std::string>();
  return tensor.chunk_elems <= kMaxChunkElems;
}

absl::Status ParseTensors(const Json& json, int64_t max_model_bytes,
                          std::vector<TensorSpec>& tensors) {
  const auto list = json.find("tensors");
  if (list == json.end() || !list->is_array() || list->empty() ||
      list->size() > kMaxTensors) {
    return absl::InvalidArgumentError("job config: no list of tensors");
  }
  uint64_t left = static_cast<uint64_t>(max_model_bytes) / 4;
  for (const Json& entry : *list) {
    TensorSpec tensor;
    const size_t size = entry.is_array() ? entry.size() : 0;
    if ((size != 2 && size != 4 && size != 5 && size != 7) ||
        !entry[0].is_string() || !ReadOwn(entry, tensor) ||
        !entry[1].is_number_unsigned() ||
        !IsTensorName(entry[0].get<std::string>())) {
      return absl::InvalidArgumentError(
          absl::StrCat("job config: tensor ", tensors.size(),
                       " is not a name of [A-Za-z0-9_.:/-]{1,256}, a size, "
                       "two rates, a row, a chunk and a codec"));
    }
    const auto num_elems = entry[1].get<uint64_t>();
    uint64_t row_elems = 0;
    if (size >= 5) {
      const Json& row = entry[4];
      const bool has_none = size == 7 && row == 0u;
      if (row.is_number_unsigned()) row_elems = row.get<uint64_t>();
      if (!has_none && (row_elems == 0 || num_elems % row_elems > 0)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "job config: tensor ", entry[0].get<std::string>(), " of ",
            num_elems, " elements in rows of ", row_elems));
      }
    }
    if (num_elems > left) {
      return absl::ResourceExhaustedError(
          absl::StrCat("model beyond --max-model-bytes (", max_model_bytes,
                       ") at tensor ", entry[0].get<std::string>()));
    }
    left -= num_elems;
    tensor.name = entry[0].get<std::string>();
    tensor.num_elems = num_elems;
    tensor.row_elems = row_elems;
    tensors.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

}  // namespace

std::string OptimizerFact(const OptimizerConfig& config) {
  const SgdParameters& sgd = config.sgd;
  std::string fact = absl::StrFormat(
      "%s lr %.9g momentum %.9g wd %.9g rescale %.9g", ToString(config.kind),
      sgd.learning_rate, sgd.momentum_rate, sgd.weight_decay, sgd.rescale);
  if (config.kind != OptimizerKind::kSgd &&
      config.kind != OptimizerKind::kNag) {
    absl::StrAppendFormat(&fact, " betas %.9g %.9g epsilon %.9g",
                          config.adam.beta1, config.adam.beta2,
                          config.adam.epsilon);
  }
  return fact;
}

Facts MakeFacts(const JobConfig& config) {
  const CompressionConfig& gc = config.compression;
  Facts facts = {
      {kTable, TableDigest(config.tensors)},
      {"codec", gc.type},
      {"alternative codecs",
       gc.alternatives.empty() ? "none" : absl::StrJoin(gc.alternatives, ",")},
      {"codec rules", RulesFact(gc.rules)},
      {"min-bytes", absl::StrCat(gc.min_bytes)},
      {"reply", ToString(gc.reply)},
      {"packing", ToString(gc.packing)},
      {"non-finite policy", ToString(gc.nonfinite)},
      {"update-on", ToString(config.optimizer.update_on)},
      {"warm-up steps", absl::StrCat(gc.warmup_steps)},
      {"guard", gc.has_guard ? "on" : "off"},
      {"start", gc.starts_dense ? "dense" : "compressed"},
      {"momentum of pushes", MomentumFact(gc)},
      {"chunk elements", absl::StrCat(config.chunk_elems)},
      {"initial values", config.has_values ? "given" : "none"},
      {"consistency", ConsistencyFact(config)},
  };
  if (gc.type != "none" || !gc.rules.empty()) {
    facts.emplace_back("threshold", ThresholdFact(gc.threshold));
    facts.emplace_back("batch size", absl::StrCat(gc.batch_size));
  }
  if (config.optimizer.update_on == UpdateOn::kServer) {
    facts.emplace_back("optimizer", OptimizerFact(config.optimizer));
  } else {
    facts.emplace_back("result scale",
                       absl::StrFormat("%.9g", config.optimizer.result_scale));
  }
  return facts;
}

absl::Status AgreeOnConfig(WorkerGroup& group, absl::string_view name,
                           const JobConfig& config) {
  const absl::Status status = AgreeOnFacts(group, name, MakeFacts(config));
  if (!absl::StrContains(status.message(), kTable)) return status;
  // All workers have this status, and come here.
  const absl::StatusOr<std::vector<std::string>> tables =
      group.Gather(absl::StrCat(name, " table"), TableText(config.tensors));
  if (!tables.ok()) return status;
  for (size_t rank = 1; rank < tables->size(); ++rank) {
    const std::string text =
        FirstDifferent(tables->front(), (*tables)[rank], rank);
    if (text.empty()) continue;
    return WithExitCode(ExitCode::kMismatch,
                        absl::FailedPreconditionError(text));
  }
  return status;
}

std::string SerializeJobConfig(const JobConfig& config) {
  Json tensors = Json::array();
  for (const TensorSpec& tensor : config.tensors) {
    tensors.push_back(TensorFields(tensor));
  }
  const CompressionConfig& gc = config.compression;
  Json fields = {
      {"tensors", tensors},
      {"codec", gc.type},
      {"alternatives", gc.alternatives},
      {"rules", gc.rules},
      {"threshold_kind", static_cast<unsigned>(gc.threshold.kind)},
      {"threshold_bits", std::bit_cast<uint32_t>(gc.threshold.value)},
      {"batch_size", static_cast<unsigned>(gc.batch_size)},
      {"min_bytes", static_cast<uint64_t>(gc.min_bytes)},
      {"reply", static_cast<unsigned>(gc.reply)},
      {"packing", static_cast<unsigned>(gc.packing)},
      {"nonfinite", static_cast<unsigned>(gc.nonfinite)},
      {"warmup_steps", static_cast<uint64_t>(gc.warmup_steps)},
      {"has_guard", gc.has_guard ? 1u : 0u},
      {"starts_dense", gc.starts_dense ? 1u : 0u},
      {"chunk_elems", config.chunk_elems},
      {"has_values", config.has_values ? 1u : 0u},
      {"is_async", config.is_async ? 1u : 0u},
      // 0: any.
      {"staleness_bound", static_cast<uint64_t>(config.max_staleness + 1)},
      {"drop_slowest", static_cast<unsigned>(config.drop_slowest)}};
  fields.update(OptimizerFields(config.optimizer));
  return fields.dump();
}

absl::StatusOr<JobConfig> ParseJobConfig(absl::string_view text,
                                         int64_t max_model_bytes) {
  const Json json = ParseJson(text);
  if (!json.is_object()) {
    return absl::InvalidArgumentError("job config is not a JSON object");
  }
  JobConfig config;
  RETURN_IF_ERROR(ParseTensors(json, max_model_bytes, config.tensors));
  JsonFields fields(json, kJobConfigFields);
  CompressionConfig& gc = config.compression;
  gc.type = fields.Text("codec");
  gc.alternatives = fields.Texts("alternatives", kMaxAlternatives);
  gc.rules = fields.Text("rules");
  gc.threshold.kind = static_cast<ThresholdSpec::Kind>(
      fields.Integer("threshold_kind", 0u, 3u));
  gc.threshold.value = FloatField(fields, "threshold_bits");
  gc.batch_size = fields.Integer("batch_size", 1, 1 << 30);
  gc.min_bytes = fields.Integer("min_bytes", int64_t{0}, kMost);
  gc.reply = static_cast<ReplyMode>(fields.Integer("reply", 0u, 3u));
  gc.packing = static_cast<PackingMode>(fields.Integer("packing", 0u, 1u));
  gc.nonfinite =
      static_cast<NonFinitePolicy>(fields.Integer("nonfinite", 0u, 3u));
  gc.warmup_steps = fields.Integer("warmup_steps", int64_t{0}, kMost);
  gc.has_guard = fields.Integer("has_guard", 0, 1) != 0;
  gc.starts_dense = fields.Integer("starts_dense", 0, 1) != 0;
  config.chunk_elems =
      fields.Integer<uint64_t>("chunk_elems", 1, kMaxChunkElems);
  config.has_values = fields.Integer("has_values", 0, 1) != 0;
  config.is_async = fields.Integer("is_async", 0, 1) != 0;
  config.max_staleness =
      fields.Integer<int64_t>("staleness_bound", 0, kMaxStaleness + 1) - 1;
  config.drop_slowest =
      fields.Integer("drop_slowest", 0, config.is_async ? 0 : kMaxDropSlowest);
  ASSIGN_OR_RETURN(config.optimizer, ReadOptimizerFields(fields));
  RETURN_IF_ERROR(CheckConfig(gc, config.optimizer, config.tensors));
  if (config.drop_slowest > 0) {
    RETURN_IF_ERROR(CheckDropSlowest(gc, config.optimizer));
  }
  if (config.is_async) {
    RETURN_IF_ERROR(CheckAsync(gc, config.optimizer, config.max_staleness));
  }
  return config;
}

}  // namespace telegrad
