#include "kvstore/ps/job_config.h"

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/crc32c.h"
#include "base/status_macros.h"
#include "kernels/code_sum.h"
#include "kvstore/engine/checks.h"
#include "transport/transport.h"

namespace telegrad {
namespace {

using Json = nlohmann::json;

std::string TableDigest(std::span<const TensorSpec> tensors) {
  uint32_t crc = 0;
  uint64_t elems = 0;
  for (const TensorSpec& tensor : tensors) {
    const uint64_t n = tensor.num_elems;
    crc = Crc32c(tensor.name.data(), tensor.name.size(), crc);
    crc = Crc32c(&n, sizeof(n), crc);
    elems += n;
  }
  return absl::StrFormat("%u tensors, %u elements, check %08x", tensors.size(),
                         elems, crc);
}

// With all digits: thresholds that differ in the last bit differ.
std::string ThresholdFact(const ThresholdSpec& spec) {
  if (spec.kind == ThresholdSpec::Kind::kAuto) return "auto";
  return absl::StrFormat("%.9g%s", spec.value,
                         spec.kind == ThresholdSpec::Kind::kBatch ? ":batch"
                         : spec.kind == ThresholdSpec::Kind::kRms ? "rms"
                                                                  : "");
}

std::string RulesFact(const std::string& rules) {
  constexpr size_t kLongest = 100;
  if (rules.empty()) return "none";
  if (rules.size() <= kLongest) return rules;
  return absl::StrFormat("%s..., check %08x", rules.substr(0, kLongest),
                         Crc32c(rules.data(), rules.size(), 0));
}

// Reads one unsigned field; leaves an error in `status` when it is missing or
// outside [low, high].
uint64_t Field(const Json& json, const char* name, uint64_t low, uint64_t high,
               absl::Status& status) {
  const auto found = json.find(name);
  if (found != json.end() && found->is_number_unsigned()) {
    const auto value = found->get<uint64_t>();
    if (value >= low && value <= high) return value;
  }
  status.Update(absl::InvalidArgumentError(
      absl::StrCat("job config: field ", name, " is missing or out of range")));
  return low;
}

// Floats travel as their bits: decimal text would round.
float FloatField(const Json& json, const char* name, absl::Status& status) {
  const auto bits =
      static_cast<uint32_t>(Field(json, name, 0, UINT32_MAX, status));
  const float value = std::bit_cast<float>(bits);
  if (!std::isfinite(value)) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("job config: field ", name, " is not finite")));
  }
  return value;
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
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() ||
        !entry[1].is_number_unsigned() || entry[1].get<uint64_t>() == 0 ||
        !IsTensorName(entry[0].get<std::string>())) {
      return absl::InvalidArgumentError(
          absl::StrCat("job config: tensor ", tensors.size(),
                       " is not a name of [A-Za-z0-9_.:/-]{1,256} and a size"));
    }
    const auto num_elems = entry[1].get<uint64_t>();
    if (num_elems > left) {
      return absl::ResourceExhaustedError(
          absl::StrCat("model beyond --max-model-bytes (", max_model_bytes,
                       ") at tensor ", entry[0].get<std::string>()));
    }
    left -= num_elems;
    tensors.push_back({entry[0].get<std::string>(), num_elems});
  }
  return absl::OkStatus();
}

absl::Status ParseAlternatives(const Json& json,
                               std::vector<std::string>& alternatives) {
  const auto found = json.find("alternatives");
  const bool is_list = found != json.end() && found->is_array();
  if (!is_list || found->size() > kMaxAlternatives) {
    return absl::InvalidArgumentError(
        absl::StrCat("job config: no list of at most ", kMaxAlternatives,
                     " alternative codecs"));
  }
  for (const Json& entry : *found) {
    if (!entry.is_string()) {
      return absl::InvalidArgumentError(
          "job config: an alternative codec is not a string");
    }
    alternatives.push_back(entry.get<std::string>());
  }
  return absl::OkStatus();
}

}  // namespace

Facts MakeFacts(const JobConfig& config) {
  const CompressionConfig& gc = config.compression;
  Facts facts = {
      {"tensor table", TableDigest(config.tensors)},
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
      {"chunk elements", absl::StrCat(config.chunk_elems)},
      {"initial values", config.has_values ? "given" : "none"},
  };
  if (gc.type != "none" || !gc.rules.empty()) {
    facts.emplace_back("threshold", ThresholdFact(gc.threshold));
    facts.emplace_back("batch size", absl::StrCat(gc.batch_size));
  }
  if (config.optimizer.update_on == UpdateOn::kServer) {
    const kernels::SgdParameters& sgd = config.optimizer.sgd;
    facts.emplace_back(
        "optimizer",
        absl::StrFormat("sgd lr %.9g momentum %.9g wd %.9g rescale %.9g",
                        sgd.learning_rate, sgd.momentum_rate, sgd.weight_decay,
                        sgd.rescale));
  }
  return facts;
}

std::string SerializeJobConfig(const JobConfig& config) {
  Json tensors = Json::array();
  for (const TensorSpec& tensor : config.tensors) {
    tensors.push_back({tensor.name, tensor.num_elems});
  }
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  const CompressionConfig& gc = config.compression;
  const kernels::SgdParameters& sgd = config.optimizer.sgd;
  return Json{{"tensors", tensors},
              {"codec", gc.type},
              {"alternatives", gc.alternatives},
              {"rules", gc.rules},
              {"threshold_kind", static_cast<unsigned>(gc.threshold.kind)},
              {"threshold_bits", bits(gc.threshold.value)},
              {"batch_size", static_cast<unsigned>(gc.batch_size)},
              {"min_bytes", static_cast<uint64_t>(gc.min_bytes)},
              {"reply", static_cast<unsigned>(gc.reply)},
              {"packing", static_cast<unsigned>(gc.packing)},
              {"nonfinite", static_cast<unsigned>(gc.nonfinite)},
              {"warmup_steps", static_cast<uint64_t>(gc.warmup_steps)},
              {"has_guard", gc.has_guard ? 1u : 0u},
              {"starts_dense", gc.starts_dense ? 1u : 0u},
              {"update_on", static_cast<unsigned>(config.optimizer.update_on)},
              {"lr_bits", bits(sgd.learning_rate)},
              {"momentum_bits", bits(sgd.momentum_rate)},
              {"wd_bits", bits(sgd.weight_decay)},
              {"rescale_bits", bits(sgd.rescale)},
              {"chunk_elems", config.chunk_elems},
              {"has_values", config.has_values ? 1u : 0u}}
      .dump();
}

absl::StatusOr<JobConfig> ParseJobConfig(absl::string_view text,
                                         int64_t max_model_bytes) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError("job config is not a JSON object");
  }
  JobConfig config;
  RETURN_IF_ERROR(ParseTensors(json, max_model_bytes, config.tensors));
  const auto codec = json.find("codec");
  if (codec == json.end() || !codec->is_string()) {
    return absl::InvalidArgumentError("job config: no codec");
  }
  absl::Status status;
  CompressionConfig& gc = config.compression;
  gc.type = codec->get<std::string>();
  RETURN_IF_ERROR(ParseAlternatives(json, gc.alternatives));
  const auto rules = json.find("rules");
  if (rules == json.end() || !rules->is_string()) {
    return absl::InvalidArgumentError("job config: no codec rules");
  }
  gc.rules = rules->get<std::string>();
  gc.threshold.kind = static_cast<ThresholdSpec::Kind>(
      Field(json, "threshold_kind", 0, 3, status));
  gc.threshold.value = FloatField(json, "threshold_bits", status);
  gc.batch_size =
      static_cast<int>(Field(json, "batch_size", 1, 1 << 30, status));
  gc.min_bytes = static_cast<int64_t>(
      Field(json, "min_bytes", 0, uint64_t{1} << 62, status));
  gc.reply = static_cast<ReplyMode>(Field(json, "reply", 0, 3, status));
  gc.packing = static_cast<PackingMode>(Field(json, "packing", 0, 2, status));
  gc.nonfinite =
      static_cast<NonFinitePolicy>(Field(json, "nonfinite", 0, 3, status));
  gc.warmup_steps = static_cast<int64_t>(
      Field(json, "warmup_steps", 0, uint64_t{1} << 62, status));
  gc.has_guard = Field(json, "has_guard", 0, 1, status) != 0;
  gc.starts_dense = Field(json, "starts_dense", 0, 1, status) != 0;
  config.optimizer.update_on =
      static_cast<UpdateOn>(Field(json, "update_on", 0, 1, status));
  kernels::SgdParameters& sgd = config.optimizer.sgd;
  sgd.learning_rate = FloatField(json, "lr_bits", status);
  sgd.momentum_rate = FloatField(json, "momentum_bits", status);
  sgd.weight_decay = FloatField(json, "wd_bits", status);
  sgd.rescale = FloatField(json, "rescale_bits", status);
  config.chunk_elems = Field(json, "chunk_elems", 1, kMaxChunkElems, status);
  config.has_values = Field(json, "has_values", 0, 1, status) != 0;
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(CheckConfig(gc, config.optimizer));
  return config;
}

}  // namespace telegrad
