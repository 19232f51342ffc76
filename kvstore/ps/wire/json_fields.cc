#include "kvstore/ps/wire/json_fields.h"

#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/optimizer.h"

namespace telegrad {

using Json = nlohmann::json;

uint64_t UnsignedField(const Json& json, const char* name, uint64_t low,
                       uint64_t high, absl::Status& status) {
  const auto found = json.find(name);
  if (found != json.end() && found->is_number_unsigned()) {
    const auto value = found->get<uint64_t>();
    if (value >= low && value <= high) return value;
  }
  status.Update(absl::InvalidArgumentError(
      absl::StrCat("job config: field ", name, " is missing or out of range")));
  return low;
}

float FloatField(const Json& json, const char* name, absl::Status& status) {
  const auto bits =
      static_cast<uint32_t>(UnsignedField(json, name, 0, UINT32_MAX, status));
  const float value = std::bit_cast<float>(bits);
  if (!std::isfinite(value)) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("job config: field ", name, " is not finite")));
  }
  return value;
}

Json OptimizerFields(const OptimizerConfig& config) {
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  const kernels::SgdParameters& sgd = config.sgd;
  return {{"update_on", static_cast<unsigned>(config.update_on)},
          {"optimizer", static_cast<unsigned>(config.kind)},
          {"lr_bits", bits(sgd.learning_rate)},
          {"momentum_bits", bits(sgd.momentum_rate)},
          {"wd_bits", bits(sgd.weight_decay)},
          {"rescale_bits", bits(sgd.rescale)},
          {"result_scale_bits", bits(config.result_scale)},
          {"beta1_bits", bits(config.adam.beta1)},
          {"beta2_bits", bits(config.adam.beta2)},
          {"epsilon_bits", bits(config.adam.epsilon)}};
}

absl::StatusOr<OptimizerConfig> ReadOptimizerFields(const Json& json) {
  absl::Status status;
  OptimizerConfig config;
  config.update_on =
      static_cast<UpdateOn>(UnsignedField(json, "update_on", 0, 1, status));
  config.kind = static_cast<OptimizerKind>(
      UnsignedField(json, "optimizer", 0, kMaxOptimizerKind, status));
  config.sgd.learning_rate = FloatField(json, "lr_bits", status);
  config.sgd.momentum_rate = FloatField(json, "momentum_bits", status);
  config.sgd.weight_decay = FloatField(json, "wd_bits", status);
  config.sgd.rescale = FloatField(json, "rescale_bits", status);
  config.result_scale = FloatField(json, "result_scale_bits", status);
  config.adam.beta1 = FloatField(json, "beta1_bits", status);
  config.adam.beta2 = FloatField(json, "beta2_bits", status);
  config.adam.epsilon = FloatField(json, "epsilon_bits", status);
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(CheckOptimizer(config));
  return config;
}

}  // namespace telegrad
