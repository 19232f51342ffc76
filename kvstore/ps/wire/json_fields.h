#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/options.h"

// Fields of the JSON that workers and servers tell each other.
namespace telegrad {

// Reads one unsigned field; leaves an error in `status` when it is missing or
// outside [low, high].
uint64_t UnsignedField(const nlohmann::json& json, const char* name,
                       uint64_t low, uint64_t high, absl::Status& status);

// Floats travel as their bits: decimal text would round. One that is not finite
// is an error.
float FloatField(const nlohmann::json& json, const char* name,
                 absl::Status& status);

// An optimizer as an object.
nlohmann::json OptimizerFields(const OptimizerConfig& config);
// Reads these fields of an object.
absl::StatusOr<OptimizerConfig> ReadOptimizerFields(const nlohmann::json& json);

}  // namespace telegrad
