#include "kvstore/ps/wire/json_fields.h"

#include <bit>
#include <cmath>

#include "base/status_macros.h"
#include "kvstore/optimizer.h"

namespace telegrad {

using Json = JsonFields::Json;

float FloatField(JsonFields& json, const char* name) {
  const float value = std::bit_cast<float>(json.Integer<uint32_t>(name));
  if (!std::isfinite(value)) json.Fail(name, "is not finite");
  return value;
}

Json OptimizerFields(const OptimizerConfig& config) {
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  const SgdParameters& sgd = config.sgd;
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

absl::StatusOr<OptimizerConfig> ReadOptimizerFields(JsonFields& json) {
  OptimizerConfig config;
  config.update_on = static_cast<UpdateOn>(json.Integer("update_on", 0u, 1u));
  config.kind = static_cast<OptimizerKind>(
      json.Integer<unsigned>("optimizer", 0, kMaxOptimizerKind));
  config.sgd.learning_rate = FloatField(json, "lr_bits");
  config.sgd.momentum_rate = FloatField(json, "momentum_bits");
  config.sgd.weight_decay = FloatField(json, "wd_bits");
  config.sgd.rescale = FloatField(json, "rescale_bits");
  config.result_scale = FloatField(json, "result_scale_bits");
  config.adam.beta1 = FloatField(json, "beta1_bits");
  config.adam.beta2 = FloatField(json, "beta2_bits");
  config.adam.epsilon = FloatField(json, "epsilon_bits");
  RETURN_IF_ERROR(json.status());
  RETURN_IF_ERROR(CheckOptimizer(config));
  return config;
}

}  // namespace telegrad
